"""What a restart keeps: what was sealed before opens after it, and clients stay the same tenants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from proxy.access.tenants import tenant_of
from proxy.settings import BadSetting
from tests.house import open_house


@pytest.fixture
def tenants(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants that the door sees, in order."""
    seen: list[str] = []

    def noted(headers: Mapping[str, str], secret: bytes) -> str:
        seen.append(tenant_of(headers, secret))
        return seen[-1]

    monkeypatch.setattr("proxy.access.gate.tenant_of", noted)
    return seen


async def test_a_restart_keeps_keys_and_tenants(tmp_path: Path, tenants: list[str]) -> None:
    extra = {"state.folder": str(tmp_path / "state")}
    async with open_house("chat", extra) as before, before.post({"input": "hello"}) as answer:
        assert answer.status == 200
        sealed = before.server.services.sealer.seal(tenants[0], "thought")
    async with open_house("chat", extra) as after, after.post({"input": "hello"}) as answer:
        assert answer.status == 200
        assert tenants[0] == tenants[1]
        assert after.server.services.sealer.open(tenants[1], sealed) == "thought"


async def test_another_folder_is_another_server(tmp_path: Path, tenants: list[str]) -> None:
    async with open_house("chat", {"state.folder": str(tmp_path / "one")}) as one, one.post({"input": "hello"}):
        sealed = one.server.services.sealer.seal(tenants[0], "thought")
    async with open_house("chat", {"state.folder": str(tmp_path / "two")}) as two, two.post({"input": "hello"}):
        assert tenants[0] != tenants[1]
        assert two.server.services.sealer.open(tenants[0], sealed) is None


async def test_a_folder_that_cannot_be_is_a_warning_and_the_server_serves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with capture_logs() as logs:
        async with open_house("chat", {"state.folder": str(tmp_path / "file")}) as house:
            async with house.post({"input": "hello"}) as answer:
                assert answer.status == 200
    warnings = [line["event"] for line in logs if line["log_level"] == "warning"]
    assert len(warnings) == 2
    assert all(line.startswith("state.folder: cannot keep") and "survive a restart" in line for line in warnings)


async def test_damaged_keys_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "sealing-keys").write_text("damaged")
    with pytest.raises(BadSetting, match=r"^state\.folder: the keys in "):
        async with open_house("chat", {"state.folder": str(tmp_path)}):
            pass
