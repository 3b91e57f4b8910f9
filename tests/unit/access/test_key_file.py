from __future__ import annotations

import os
import secrets
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.access.key_file import KeyFile, change_keys, read_keys
from proxy.access.keys import BadKey, Key, make_key

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def add(path: Path, name: str) -> str:
    key, token = make_key(name, NOW, secrets.token_bytes)
    change_keys(path, lambda keys: [*keys, key])
    return token


def test_a_new_file_is_its_owners_alone_and_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keys.jsonl"
    add(path, "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    add(path, "b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [key.name for key in read_keys(path)] == ["a", "b"]
    assert not KeyFile(path).open_to_all


def test_a_change_is_seen_once_it_is_looked_for(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    first = add(path, "a")
    keys = KeyFile(path)
    assert not keys.refresh()
    second = add(path, "b")
    assert keys.find(second) is None
    assert keys.refresh()
    assert keys.find(second) is not None
    change_keys(path, lambda known: [key for key in known if key.name != "a"])
    assert keys.refresh()
    assert keys.find(first) is None
    assert not keys.refresh()


@pytest.mark.parametrize("damage", [b"{", b"\xff\xfe", b'{"id":1}\n'])
def test_a_damaged_file_changes_nothing_and_is_reported_once(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "keys.jsonl"
    token = add(path, "a")
    keys = KeyFile(path)
    path.write_bytes(damage)
    with pytest.raises(BadKey):
        keys.refresh()
    assert not keys.refresh()
    assert keys.find(token) is not None
    with pytest.raises(BadKey):
        KeyFile(path)


def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    token = add(path, "a")
    keys = KeyFile(path)
    path.unlink()
    with pytest.raises(OSError, match=r"keys\.jsonl"):
        keys.refresh()
    assert keys.find(token) is not None


def test_what_no_server_could_read_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "keys.jsonl"
    add(path, "a")
    before = path.read_bytes()

    def twice(keys: list[Key]) -> list[Key]:
        return [*keys, *keys]

    with pytest.raises(BadKey, match="same id"):
        change_keys(path, twice)
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == [".keys.jsonl.lock", "keys.jsonl"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    add(real, "a")
    link.symlink_to(real)
    add(link, "b")
    assert link.is_symlink()
    assert len(read_keys(real)) == 2
