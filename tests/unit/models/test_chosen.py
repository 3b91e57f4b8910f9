from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.app import Loopline
from proxy.cli import BAD_SETTING, main
from proxy.models.chosen import chosen_profiles
from proxy.models.profile import profiles
from proxy.settings import BadSetting, load


def chosen(named: object) -> dict[str, object]:
    return dict(chosen_profiles(load(None, {"endpoints[0].profile": named}, {})))


@pytest.mark.parametrize("named", ["auto", *profiles()])
def test_a_built_in_profile_is_named_by_its_name(named: str) -> None:
    assert chosen(named) == profiles()


@pytest.mark.parametrize("name", ["my-server.toml", "vllm.toml"])
def test_a_file_is_named_by_its_path_and_called_as_it_is(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text('title = "Mine"')
    found = chosen_profiles(load(None, {"endpoints[0].profile": str(file)}, {}))[str(file)]
    assert (found.name, found.title) == (file.stem, "Mine")


def test_a_path_may_begin_at_home_or_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('title = "Mine"')
    for named in ("~/mine.toml", "./mine.toml", "mine.toml"):
        assert named in chosen(named)


@pytest.mark.parametrize(
    ("named", "text", "told"),
    [
        ("vlm", None, ("'vlm'", "no such profile", "did you mean vllm?", "lmstudio", "./my-server.toml")),
        ("", None, ("''", "no such profile", "use auto")),
        ("VLLM", None, ("'VLLM'", "did you mean vllm?")),
        ("./missing.toml", None, ("'./missing.toml'", "No such file", "./my-server.toml")),
        ("./mine.toml", 'title = "x"\n[chat]\nfoo = 1', ("profile 'mine' is not valid", "foo", "./mine.toml", "docs/")),
        ("./mine.toml", "= no toml", ("profile 'mine' is not valid", "./mine.toml")),
        ("./\0.toml", None, ("cannot read",)),
        ("~nobody-of-that-name/x.toml", None, ("cannot read",)),
    ],
)
def test_what_is_no_profile_is_refused_with_what_to_write_instead(
    named: str, text: str | None, told: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(BadSetting) as raised:
        chosen(named)
    message = str(raised.value)
    assert message.startswith("endpoints[0].profile: ")
    assert "\n" not in message
    for part in told:
        assert part in message


async def test_a_server_does_not_start_with_a_profile_that_is_none() -> None:
    with pytest.raises(BadSetting, match="no such profile"):
        async with Loopline(load(None, {"server.port": 0, "endpoints[0].profile": "vlm"}, {})):
            pass


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_the_command_line_says_it_in_one_line(command: str, tmp_path: Path) -> None:
    config = tmp_path / "loopline.toml"
    config.write_text('[server]\nport = 0\n[[endpoints]]\nprofile = "vlm"\n')
    ran = CliRunner().invoke(main, [command, "--config", str(config)])
    assert ran.exit_code == BAD_SETTING
    assert ran.stderr.startswith("loopline: endpoints[0].profile: 'vlm'")
    assert ran.stderr.count("\n") == 1
