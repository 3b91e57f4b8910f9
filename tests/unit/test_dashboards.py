"""Dashboards, rules and documents speak of metrics that exist, and leave none out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboards.build import files, pages
from dashboards.kit import WIDTH, Page, Panel
from proxy.errors import TABLE, Kind, Source
from proxy.telemetry.families import FAMILIES

ROOT = Path(__file__).parents[2]
RULES = (ROOT / "config" / "rules.yml").read_text(encoding="utf-8")
ALERTS = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
PAGES = pages()
FILES = files()
PANELS = [(page, panel) for page in PAGES for panel in page.panels()]
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
SAMPLES = {family.name + part: family.name for family in FAMILIES for part in PARTS[family.type]}
DOCUMENTS = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]  # the changelog names what was, too

# Of the units that Grafana knows (@grafana/data 11.6.0, valueFormats/categories) those that are used; or
# `suffix:` and a word, before which it puts a space by itself.
UNIT = re.compile(r"Bps|bytes|ops|percentunit|reqps|s|short|suffix:\S+")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def named(text: str) -> set[str]:
    """Names of metrics in a text, but not those of recording rules."""
    return set(re.findall(r"(?<![\w:])loopline_[a-z_]+[a-z](?![\w:])", text))


def targets(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in document["panels"]:
        yield from panel.get("targets", ())


@pytest.mark.parametrize("path", sorted(FILES))
def test_a_committed_file_is_what_the_script_writes(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == FILES[path], "run `make dashboards`"


def test_there_is_no_file_that_the_script_does_not_write() -> None:
    written = {Path(path).name for path in FILES if path.endswith(".json")}
    assert {path.name for path in (ROOT / "dashboards").glob("*.json")} == written


@each_page
def test_a_page_imports_without_edits(page: Page) -> None:
    document = json.loads(FILES[f"dashboards/{page.name}.json"])
    assert "__inputs" not in document
    assert "id" not in document
    source, *others = document["templating"]["list"]
    assert (source["type"], source["name"], source["query"]) == ("datasource", "datasource", "prometheus")
    here = {"type": "prometheus", "uid": "${datasource}"}
    assert all(each["datasource"] == here for each in [*others, *targets(document)])
    assert all(panel["datasource"] == here for panel in document["panels"] if panel["type"] != "row")
    assert {each["name"] for each in others} >= {
        name for target in targets(document) for name in re.findall(r"\$([a-z]+)", target["expr"])
    }
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    assert document["uid"] == f"loopline-{page.name}", "links and a second import find it by this"


@each_page
def test_what_is_imported_has_every_question_description_and_unit(page: Page) -> None:
    shown = [panel for panel in json.loads(FILES[f"dashboards/{page.name}.json"])["panels"] if panel["type"] != "row"]
    told = [(each["title"], each["description"], each["fieldConfig"]["defaults"]["unit"]) for each in shown]
    assert told == [(panel.title, panel.description, panel.unit) for panel in page.panels()]


@each_page
def test_no_two_panels_of_a_page_overlap(page: Page) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(FILES[f"dashboards/{page.name}.json"])["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize(("page", "panel"), PANELS, ids=lambda each: getattr(each, "title", None))
def test_a_panel_asks_a_question_and_explains_its_answer(page: Page, panel: Panel) -> None:
    assert panel.title.endswith("?")
    assert panel.description.endswith(".")
    assert UNIT.fullmatch(panel.unit)
    assert panel.queries
    assert all(query.legend for query in panel.queries)
    assert [other.title for other in page.panels()].count(panel.title) == 1


def test_every_metric_is_on_a_panel() -> None:
    shown = {name for _, panel in PANELS for query in panel.queries for name in named(query.expr)}
    assert shown <= SAMPLES.keys()
    assert {SAMPLES[name] for name in shown} == {family.name for family in FAMILIES}


def test_every_metric_in_rules_and_their_tests_exists() -> None:
    for text in (RULES, (ROOT / "config" / "rules_test.yml").read_text(encoding="utf-8")):
        assert named(text)
        assert named(text) <= SAMPLES.keys()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_metric_in_a_document_exists(document: Path) -> None:
    families = {family.name for family in FAMILIES}
    assert named(document.read_text(encoding="utf-8")) <= SAMPLES.keys() | families


def test_the_objective_counts_what_is_no_clients_fault() -> None:
    [counted] = set(re.findall(r'kind=~"([^"]+)"', RULES))
    ours = {kind.value for kind, row in TABLE.items() if row.source is not Source.CLIENT}
    # A socket at the end of its life: its client opens another, as it was told.
    ours.discard(Kind.CONNECTION_LIMIT.value)
    assert {kind.value for kind in Kind if re.fullmatch(counted, kind.value)} == ours


def test_every_alert_has_what_whoever_is_woken_needs() -> None:
    alerts = re.findall(r"- alert: (\w+)\n(.*?)(?=\n      -|\Z)", RULES, re.DOTALL)
    assert len({name for name, _ in alerts}) > 5
    for name, text in alerts:
        assert re.search(r'summary: "\S', text), name
        assert re.search(r"description: >-\n +\S", text), name
        assert re.search(r"severity: (page|ticket)", text), name
        assert f"runbook_url: docs/alerts.md#{name.lower()}\n" in text + "\n", name
    assert set(re.findall(r"^### (\w+)$", ALERTS, re.MULTILINE)) == {name for name, _ in alerts}
