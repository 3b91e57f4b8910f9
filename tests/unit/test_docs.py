"""What documents say of the code is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.errors import TABLE
from proxy.session import steers
from proxy.session.session import _HANDLERS
from proxy.session.state import diagram
from proxy.settings import CATALOG
from proxy.settings.model import Limits, Server

ROOT = Path(__file__).parents[2]
LANES = (ROOT / "docs" / "lanes.md").read_text()
SECURITY = (ROOT / "docs" / "security.md").read_text()
SECTIONS = {"limits": Limits.model_fields, "server": Server.model_fields}
MIB, KIB = 1024 * 1024, 1024


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/[\w/]+\.py[:\w]*)`", SECURITY))))
def test_every_test_that_a_promise_rests_on_exists(named: str) -> None:
    path, _, name = named.partition("::")
    source = (ROOT / path).read_text()
    assert re.search(rf"^(async )?(def|class) {name}\b", source, re.MULTILINE)


def test_every_setting_of_the_document_on_security_exists() -> None:
    named = re.findall(r"`((?:access|limits|server|endpoints|store)\.\w+)`", SECURITY)
    assert len(named) > 5
    for key in named:
        assert key.replace("endpoints.", "endpoints[0].") in CATALOG


def test_the_diagram_of_a_lane_is_its_table() -> None:
    [drawn] = re.findall(r"```mermaid\n(.*?)```", LANES, re.DOTALL)
    assert drawn == diagram()


def test_every_setting_exists() -> None:
    named = re.findall(r"`(limits|server)\.(\w+)`", LANES)
    assert len(named) > 8
    for section, name in named:
        assert name in SECTIONS[section], f"{section}.{name}"


@pytest.mark.parametrize("line", re.findall(r"^\| `(?:limits|server)\..*$", LANES, re.MULTILINE))
def test_every_default_in_the_table_of_limits_is_right(line: str) -> None:
    setting, default = (cell.strip() for cell in line.split("|")[1:3])
    section, name = setting.strip("`").split(".")
    number, _, unit = default.partition(" ")
    assert SECTIONS[section][name].default == int(number) * {"MiB": MIB, "KiB": KIB, "": 1}[unit]


def test_every_error_code_and_message_exists() -> None:
    codes = {row.code for row in TABLE.values()}
    for code in ("websocket_stream_limit_reached", "rate_limit_exceeded", "websocket_connection_limit_reached"):
        assert f"`{code}`" in LANES
        assert code in codes
    for message in _HANDLERS:
        assert f"`{message}`" in LANES, f"{message} is not described"
    assert f"more than {steers.MAX_STEERS} for one response" in LANES
