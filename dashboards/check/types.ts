// What Grafana's JSON must be. `Json` is a type as JSON writes it: enums of strings become their texts.
import type { Dashboard, DataQuery, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts';

type Json<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends Array<infer U>
      ? Json<U>[]
      : unknown extends T
        ? unknown
        : { [K in keyof T]: Json<T[K]> };

// @grafana/schema has no type for a query of Prometheus; this is what its data source reads beside a DataQuery.
interface PrometheusQuery extends DataQuery {
  expr: string;
  legendFormat?: string;
  instant?: boolean;
  range?: boolean;
  exemplar?: boolean;
}

// A panel of one kind: `Panel` leaves its options, its fields' own settings and its targets open.
type Kind<Type extends string, Options, Custom> = Json<
  Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets' | 'title' | 'description'>
> & {
  type: Type;
  title: string;
  description: string;
  options: Json<Partial<Options>>;
  fieldConfig: Json<{ defaults: Omit<NonNullable<Panel['fieldConfig']>['defaults'], 'custom'>; overrides: [] }> & {
    defaults: { unit: string; custom?: Json<Custom> };
  };
  targets: Json<PrometheusQuery>[];
};

export type Drawn = Kind<'timeseries', timeseries.Options, timeseries.FieldConfig> | Kind<'stat', stat.Options, never>;
export type Page = Json<Omit<Dashboard, 'panels' | 'templating'>> & {
  panels: Array<Drawn | Json<RowPanel>>;
  templating: { list: Json<VariableModel>[] };
};
