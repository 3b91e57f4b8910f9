"""`loopline keys`: what it prints, what it writes, how it refuses."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.access.key_file import KeyFile, read_keys
from proxy.cli import main


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


def keys(file: Path, *arguments: str) -> Result:
    command, *rest = arguments
    return CliRunner().invoke(main, ["keys", command, "--file", str(file), *rest])


def test_the_token_is_all_that_goes_to_stdout_and_opens_the_door(file: Path) -> None:
    made = keys(file, "create", "--name", "alice")
    assert made.exit_code == 0
    token = made.stdout.strip()
    assert token.startswith("llk_")
    assert token not in made.stderr
    found = KeyFile(file).find(token)
    assert found is not None
    assert found.name == "alice"
    assert token not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_it_is_told_is_in_the_file_and_in_the_list(file: Path) -> None:
    keys(
        file, "create", "--name", "ci", "--tenant", "team", "--models", "gpt-*, qwen", "--expires", "90d",
        "--requests-per-minute", "60", "--tokens-per-minute", "1000", "--connections", "2", "--turns", "3",
        "--background-turns", "4",
    )  # fmt: skip
    keys(file, "create", "--name", "free")
    first, second = read_keys(file)
    assert (first.tenant, first.models) == ("team", ("gpt-*", "qwen"))
    assert first.expires_at is not None
    assert (first.expires_at - first.created_at).days == 90
    limits = first.limits
    assert limits.background_turns == 4
    assert (limits.requests_per_minute, limits.tokens_per_minute, limits.connections, limits.turns) == (60, 1000, 2, 3)
    listed = keys(file, "list").stdout
    assert f"{first.id}  ci  tenant=team  models=gpt-*,qwen  expires=20" in listed
    assert "requests_per_minute=60" in listed
    assert f"{second.id}  free  tenant=(own)  models=*  expires=never\n" in listed
    assert first.hash not in listed


@pytest.mark.parametrize("by", ["name", "id"])
def test_revoking_takes_the_key_out(file: Path, by: str) -> None:
    for name in ("a", "b"):
        keys(file, "create", "--name", name)
    key = read_keys(file)[0]
    done = keys(file, "revoke", getattr(key, by))
    assert done.exit_code == 0
    assert [each.name for each in read_keys(file)] == ["b"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("create", "--name", "a"), "already"),
        (("create", "--name", "a b"), "its name"),
        (("create", "--name", "c", "--expires", "soon"), "90d"),
        (("create", "--name", "c", "--tenant", "x y"), "its tenant"),
        (("create", "--name", "c", "--models", "a,,b"), "models"),
        (("revoke", "nobody"), "loopline keys list"),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(file: Path, arguments: tuple[str, ...], says: str) -> None:
    keys(file, "create", "--name", "a")
    before = file.read_bytes()
    refused = keys(file, *arguments)
    assert refused.exit_code == 1
    assert says in refused.stderr
    assert refused.stdout == ""
    assert file.read_bytes() == before


def test_a_damaged_file_is_not_overwritten(file: Path) -> None:
    file.write_text("{")
    assert keys(file, "create", "--name", "a").exit_code == 1
    assert file.read_text() == "{"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = keys(tmp_path / "file" / "keys.jsonl", "create", "--name", "a")
    assert refused.exit_code == 1
    assert "Traceback" not in refused.stderr
    assert str(tmp_path) in refused.stderr


def test_the_file_is_that_of_the_settings(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_ACCESS_KEYS_FILE", str(file))
    assert CliRunner().invoke(main, ["keys", "create", "--name", "a"]).exit_code == 0
    assert [key.name for key in read_keys(file)] == ["a"]
    assert CliRunner().invoke(main, ["keys", "list"]).stdout.count("\n") == 1


def test_without_a_file_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPLINE_ACCESS_KEYS_FILE", raising=False)
    refused = CliRunner().invoke(main, ["keys", "list"])
    assert refused.exit_code == 2
    assert "--file" in refused.stderr


def test_check_config_reads_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_ACCESS_KEYS_FILE", str(file))
    assert CliRunner().invoke(main, ["check-config"]).exit_code == 2
    keys(file, "create", "--name", "a")
    assert CliRunner().invoke(main, ["check-config"]).exit_code == 0
