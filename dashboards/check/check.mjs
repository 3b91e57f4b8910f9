// Check dashboards/*.json against the types of @grafana/schema: `make check-dashboards`.
//
// Each file becomes a TypeScript constant of that type in build/dashboards, and tsc checks it. Files that were broken on
// purpose stand beside them and must not pass, so that a check that accepts everything is noticed.
import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const pages = dirname(here);
const build = join(dirname(pages), 'build', 'dashboards');
const pinned = { '@grafana/schema': '11.6.0', typescript: '5.9.3' };

// Each breaks a drawn panel (`p`) or the page.
const broken = {
  draw: (page, p) => (p.fieldConfig.defaults.custom.drawStyle = 'zigzag'),
  legend: (page, p) => (p.options.legend.placement = 'left'),
  option: (page, p) => (p.options.nothing = 1),
  kind: (page, p) => (p.type = 'graph2'),
  title: (page, p) => delete p.title,
  query: (page, p) => delete p.targets[0].expr,
  place: (page, p) => (p.gridPos.x = 'left'),
  member: (page) => (page.nothing = 1),
  tooltip: (page) => (page.graphTooltip = 7),
  variable: (page) => (page.templating.list[0].type = 'source'),
};

const source = (page) => `import type { Page } from './types';\nexport const page: Page = ${JSON.stringify(page, null, 1)};\n`;
const read = (name) => JSON.parse(readFileSync(join(pages, name), 'utf8'));
const names = readdirSync(pages).filter((name) => name.endsWith('.json'));

mkdirSync(build, { recursive: true });
writeFileSync(join(build, 'package.json'), JSON.stringify({ private: true, dependencies: pinned }));
execFileSync('npm', ['install', '--no-audit', '--no-fund', '--ignore-scripts', '--silent'], { cwd: build, stdio: 'inherit' });
copyFileSync(join(here, 'types.ts'), join(build, 'types.ts'));
for (const name of names) {
  writeFileSync(join(build, name.replace('.json', '.ts')), source(read(name)));
}
for (const [name, change] of Object.entries(broken)) {
  const page = read('agent-loop.json');
  change(page, page.panels.find((panel) => panel.type === 'timeseries'));
  writeFileSync(join(build, `broken-${name}.ts`), source(page));
}

const tsc = (files) => {
  const options = ['--noEmit', '--strict', '--module', 'nodenext', '--skipLibCheck'];
  return spawnSync('node_modules/.bin/tsc', [...options, ...files], { cwd: build, encoding: 'utf8' }).stdout;
};
const wrong = tsc(names.map((name) => name.replace('.json', '.ts')));
if (wrong) {
  console.error(wrong);
  process.exit(1);
}
const seen = tsc(Object.keys(broken).map((name) => `broken-${name}.ts`));
const missed = Object.keys(broken).filter((name) => !seen.includes(`broken-${name}.ts`));
if (missed.length) {
  console.error(`accepted although broken on purpose: ${missed.join(', ')}`);
  process.exit(1);
}
console.log(`${names.length} pages are what @grafana/schema ${pinned['@grafana/schema']} says; ${Object.keys(broken).length} broken ones are refused`);
