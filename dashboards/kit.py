"""What a page of a dashboard is made of, and how it becomes Grafana's JSON.

A page is rows of panels, a panel is a question and the queries that answer it. `document` alone knows Grafana.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models

WIDTH = 24  # columns of Grafana's grid
HEIGHT = {"lines": 8, "stacked": 8, "number": 4}

RATE = "$__rate_interval"
HERE = 'instance=~"$instance"'
ENDPOINT = HERE + ', endpoint=~"$endpoint"'
MODEL = ENDPOINT + ', model=~"$model"'

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression; `legend` names its series, `{{label}}` in it is the label's value."""

    expr: str
    legend: str
    exemplars: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """A question (`title`), what its answer means, Grafana's name of the unit, and the queries.

    `maximum` is the end of the axis where there is one: 1 for shares.
    """

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Literal["lines", "stacked", "number"] = "lines"
    width: int = 12
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading; they wrap after 24 columns."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable at the top of a page: the values of a label of a metric, several or all."""

    name: str
    of: str


@dataclass(frozen=True, slots=True)
class Page:
    """One dashboard. `name` is its file's and, after `loopline-`, its uid: links keep working over imports."""

    name: str
    title: str
    description: str
    rows: tuple[Row, ...]
    choices: tuple[Choice, ...] = ()

    def panels(self) -> Iterator[Panel]:
        """Every panel, in order."""
        for row in self.rows:
            yield from row.panels


def percentiles(family: str, where: str, *, exemplars: bool = False) -> tuple[Query, ...]:
    """Median, 95th and 99th percentile of a histogram whose series match `where`."""
    return tuple(
        Query(
            f"histogram_quantile({quantile}, sum by (le) (rate({family}_bucket{{{where}}}[{RATE}])))",
            f"p{round(quantile * 100)}",
            exemplars,
        )
        for quantile in (0.5, 0.95, 0.99)
    )


def rate(family: str, by: str = "", where: str = HERE) -> str:
    """What a counter gains a second, summed over all but the labels `by`."""
    return f"sum{f' by ({by})' if by else ''} (rate({family}{{{where}}}[{RATE}]))"


def total(family: str, by: str = "", where: str = HERE) -> str:
    """A gauge, summed over all but the labels `by`."""
    return f"sum{f' by ({by})' if by else ''} ({family}{{{where}}})"


def document(page: Page) -> str:
    """The page as Grafana imports it: JSON text, the same for the same page."""
    built = (
        builders.Dashboard(f"Loopline: {page.title}")
        .uid(f"loopline-{page.name}")
        .description(page.description)
        .tags(["loopline"])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(_others())
        .with_variable(
            builders.DatasourceVariable("datasource")
            .label("Data source")
            .type("prometheus")
            .current(models.VariableOption(text="default", value="default", selected=True))
        )
    )
    for choice in (Choice("instance", "loopline_build_info"), *page.choices):
        built.with_variable(_variable(choice))
    ids, y = count(1), 0
    for row in page.rows:
        place = models.GridPos(h=1, w=WIDTH, x=0, y=y)
        built.with_row(builders.Row(row.title).id(next(ids)).grid_pos(place))
        y += 1
        for panel, x, below in _placed(row):
            place = models.GridPos(h=HEIGHT[panel.kind], w=panel.width, x=x, y=y + below)
            built.with_panel(_panel(panel).id(next(ids)).grid_pos(place))
        y += _height(row)
    return JSONEncoder(sort_keys=True, indent=2).encode(_plain(built.build())) + "\n"


def _plain(built: models.Dashboard) -> models.Dashboard:
    """Without what the library says of every variable, and what @grafana/schema does not know."""
    assert built.templating is not None
    for variable in built.templating.list_val or ():
        variable.auto = variable.auto_min = variable.auto_count = None
    return built


def _placed(row: Row) -> Iterator[tuple[Panel, int, int]]:
    """Each panel with its column and how far below the heading it stands."""
    x = y = tallest = 0
    for panel in row.panels:
        if x + panel.width > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        yield panel, x, y
        x += panel.width
        tallest = max(tallest, HEIGHT[panel.kind])


def _height(row: Row) -> int:
    return max(below + HEIGHT[panel.kind] for panel, _, below in _placed(row))


def _others() -> builders.DashboardLink:
    link = builders.DashboardLink("Loopline").type(models.DashboardLinkType.DASHBOARDS).tags(["loopline"])
    return link.as_dropdown(True).include_vars(True).keep_time(True)


def _variable(choice: Choice) -> builders.QueryVariable:
    return (
        builders.QueryVariable(choice.name)
        .label(choice.name.capitalize())
        .datasource(_SOURCE)
        .query({"query": f"label_values({choice.of}, {choice.name})", "refId": choice.name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(models.VariableOption(text="All", value="$__all", selected=True))
    )


def _panel(panel: Panel) -> timeseries.Panel | stat.Panel:
    made = _number() if panel.kind == "number" else _lines(stacked=panel.kind == "stacked")
    made.title(panel.title).description(panel.description).unit(panel.unit).datasource(_SOURCE).min(0)
    if panel.maximum is not None:
        made.max(panel.maximum)
    for at, query in enumerate(panel.queries):
        target = prometheus.Dataquery().ref_id(chr(ord("A") + at)).datasource(_SOURCE)
        target.expr(query.expr).legend_format(query.legend)
        if panel.kind == "number":
            target.instant()
        else:
            target.range().exemplar(query.exemplars)
        made.with_target(target)
    return made


def _lines(*, stacked: bool) -> timeseries.Panel:
    legend = common_builders.VizLegendOptions().show_legend(True).calcs(["mean", "max"])
    legend.display_mode(common.LegendDisplayMode.TABLE).placement(common.LegendPlacement.BOTTOM)
    made = timeseries.Panel().legend(legend).line_width(1).fill_opacity(40 if stacked else 5)
    made.show_points(common.VisibilityMode.AUTO)
    tooltip = common_builders.VizTooltipOptions()
    made.tooltip(tooltip.mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    if stacked:
        made.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    return made


def _number() -> stat.Panel:
    reduce = common_builders.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields("")
    made = stat.Panel().reduce_options(reduce).graph_mode(common.BigValueGraphMode.NONE)
    return made.text_mode(common.BigValueTextMode.VALUE_AND_NAME).color_mode(common.BigValueColorMode.NONE)
