"""What dashboards, rules and alerts ask, asked of a real Prometheus before a Loopline that did everything.

`make test-metrics`. Where Prometheus is not installed these tests are skipped, and say so.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dashboards.build import pages
from dashboards.kit import MODEL, Choice
from proxy.telemetry.families import FAMILIES
from tests.house import House
from tests.metrics.load import everything, loaded_house
from tests.metrics.prometheus import CONFIG, WHY_NOT, Prometheus, prometheus

pytestmark = [pytest.mark.metrics, pytest.mark.timeout(90)]

OUTCOMES = ("completed", "incomplete", "failed", "refused", "cancelled")
VARIABLES = {"$__rate_interval": "1m", "$__range": "1m", "$instance": ".*", "$endpoint": ".*", "$model": ".*"}
# What the load is there for; a counter that stays at 0 would answer every query, too.
HAPPENED = (
    *(f'loopline_turn_ended_total{{outcome="{outcome}"}}' for outcome in OUTCOMES),
    *(f'loopline_turn_ended_total{{transport="{transport}"}}' for transport in ("websocket", "http")),
    *(f'loopline_loop_stage_seconds_sum{{stage="{stage}"}}' for stage in ("client", "idle", "proxy", "upstream")),
    *(f'loopline_turn_cancels_total{{by="{by}"}}' for by in ("request", "leaving")),
    *(f'loopline_turn_tokens_total{{direction="{direction}"}}' for direction in ("input", "cached", "output")),
    *(f'loopline_cache_hits_total{{cache="{cache}"}}' for cache in ("store", "catalog", "terms", "tools")),
    "loopline_cache_misses_total",
    "loopline_turn_warm_ups_total",
    "loopline_turn_forks_total",
    "loopline_turn_steers_total",
    "loopline_turn_history_saved_bytes_total",
    "loopline_translate_left_out_total",
    'loopline_turn_errors_total{kind="upstream_closed"}',
    'loopline_turn_errors_total{kind="parent_not_found"}',
    'loopline_upstream_errors_total{kind="upstream_failed"}',
    'loopline_limit_hits_total{limit="access.turns"}',
    'loopline_passthrough_total{outcome="passed", status="4xx"}',
    'loopline_http_unreadable_total{reason="malformed"}',
    "loopline_session_ended_total",
)
_THRESHOLD = re.compile(r"(?:==|>=|>)\s*(?:\([^()]*\)|[\d.]+)")


def need(program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(WHY_NOT.format(program))


def test_the_rules_do_what_their_tests_say() -> None:
    need("promtool")
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=CONFIG, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


async def test_every_query_of_every_panel_rule_and_alert_has_data(tmp_path: Path) -> None:
    need("prometheus")
    need("promtool")
    async with loaded_house() as house, prometheus(tmp_path, house.root.removeprefix("http://")) as prom:
        for _ in range(2):  # a rate needs what grows between two scrapes
            await everything(house)
            await scraped(prom, house)
        missing = [expr for expr in HAPPENED if sum(await prom.numbers(expr)) <= 0]
        assert not missing, "this did not happen under load"
        await is_well_formed(house)
        async with house.connect():  # what is open now
            rules = await prom.rules()
            assert {rule["type"] for rule in rules} == {"recording", "alerting"}
            asked = [shown(query.expr) for page in pages() for panel in page.panels() for query in panel.queries]
            asked += [rule["query"] for rule in rules if rule["type"] == "recording"]
            asked += [rule["name"] for rule in rules if rule["type"] == "recording"]
            asked += [without_threshold(rule["query"]) for rule in rules if rule["type"] == "alerting"]
            await all_have_data(prom, asked)
            await all_choices_have_values(prom)
            await rules_are_evaluated(prom)
            await metrics_are_those_of_the_table(prom)


async def is_well_formed(house: House) -> None:
    """Prometheus' own check finds nothing wrong with names, units and help."""
    async with house.http.get(f"{house.root}/metrics") as response:
        text = await response.read()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def shown(expr: str) -> str:
    """A panel's expression with what Grafana puts into it."""
    for name, text in VARIABLES.items():
        expr = expr.replace(name, text)
    assert "$" not in expr, expr
    return expr


def without_threshold(expr: str) -> str:
    """An alert's expression that holds whatever its figures are."""
    always, count = _THRESHOLD.subn(">= 0", expr)
    assert count, f"no threshold in {expr}"
    return always


async def scraped(prom: Prometheus, house: House) -> None:
    """Prometheus has seen every turn that ended."""

    async def seen() -> bool:
        return sum(await prom.numbers("loopline_turn_ended_total")) == len(house.watcher.turns)

    await holds(seen, "Prometheus did not see all turns")


async def holds(condition: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    """Ask until it holds."""
    try:
        async with asyncio.timeout(30):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(otherwise)


async def all_have_data(prom: Prometheus, asked: list[str]) -> None:
    left = list(dict.fromkeys(asked))

    async def answered() -> bool:
        left[:] = [expr for expr in left if not await prom.numbers(expr)]
        return not left

    try:
        await holds(answered, "")
    except pytest.fail.Exception:
        pytest.fail("no data for:\n" + "\n".join(left))


async def all_choices_have_values(prom: Prometheus) -> None:
    choices = {Choice("instance", "loopline_build_info"), *(choice for page in pages() for choice in page.choices)}
    for choice in choices:
        assert f"${choice.name}" in MODEL
        assert await prom.ask(f"label/{choice.name}/values", **{"match[]": choice.of}), choice


async def rules_are_evaluated(prom: Prometheus) -> None:
    async def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in await prom.rules())

    await holds(evaluated, "rules were not evaluated")
    assert not [rule["lastError"] for rule in await prom.rules() if rule["health"] != "ok"]


async def metrics_are_those_of_the_table(prom: Prometheus) -> None:
    parts = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
    documented = {family.name + part for family in FAMILIES for part in parts[family.type]}
    names = set(await prom.ask("label/__name__/values"))
    assert {name for name in names if name.startswith("loopline_")} == documented
