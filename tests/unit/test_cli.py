"""The command line: what reaches the application, exit codes, one line for a bad setting, help worth reading."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy import __version__
from proxy.cli import main
from proxy.settings import CATALOG, FLAGS, Settings
from proxy.settings.keys import parse_keys
from proxy.tools.first_run import Behind
from proxy.tools.simulate import Options

ROOT = Path(__file__).resolve().parents[2]
KEY = base64.b64encode(bytes(range(32))).decode()


def run(*arguments: str, **environ: str) -> Result:
    return CliRunner(env=environ).invoke(main, arguments, prog_name="loopline")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Stands in for the server; holds the settings it was started with. It exits with 7."""
    settings: list[Settings] = []

    def serve(given: Settings, behind: Behind) -> int:
        settings.append(given)
        return 7

    monkeypatch.setattr("proxy.tools.first_run.serve", serve)
    return settings


@pytest.mark.parametrize(
    ("flags", "behind"), [((), "configured"), (("--embedded",), "embedded"), (("--simulate",), "simulated")]
)
def test_serve_knows_what_to_serve_in_front_of(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], behind: str
) -> None:
    asked: list[str] = []

    def serve(_: Settings, asked_for: Behind) -> int:
        asked.append(asked_for.value)
        return 0

    monkeypatch.setattr("proxy.tools.first_run.serve", serve)
    assert run("serve", *flags).exit_code == 0
    assert asked == [behind]


@pytest.mark.parametrize("flags", [("--embedded", "--simulate"), ("--embedded", "--upstream", "http://h/v1")])
def test_serve_refuses_two_upstreams(served: list[Settings], flags: tuple[str, ...]) -> None:
    result = run("serve", *flags)
    assert result.exit_code == 2
    assert "--embedded" in result.stderr
    assert served == []


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, Options]]:
    """Stands in for the simulator's server; holds what it was run with. Port 1 is taken."""
    runs: list[tuple[str, int, Options]] = []

    def start(host: str, port: int, options: Options) -> None:
        if port == 1:
            raise OSError(98, "Address already in use")
        runs.append((host, port, options))

    monkeypatch.setattr("proxy.tools.simulate.run", start)
    return runs


def test_serve_passes_defaults_and_the_exit_code(served: list[Settings]) -> None:
    assert run("serve").exit_code == 7
    assert served == [Settings()]


def test_serve_passes_what_was_typed(served: list[Settings]) -> None:
    typed = {
        "--host": "0.0.0.0", "--port": "0", "--admin-port": "9", "--upstream": "https://gpu/v1/", "--dialect": "chat",
        "--api-key-env": "KEY", "--store": "memory", "--log-format": "json", "--log-level": "debug",
    }  # fmt: skip
    result = run("serve", "--insecure", *(part for pair in typed.items() for part in pair), KEY="key")
    assert result.exit_code == 7, result.stderr
    (settings,) = served
    assert (settings.server.host, settings.server.port, settings.server.admin_port) == ("0.0.0.0", 0, 9)
    assert settings.server.insecure
    endpoint = settings.endpoint
    assert (endpoint.url, endpoint.dialect, endpoint.api_key_env) == ("https://gpu/v1", "chat", "KEY")
    assert (settings.log.format, settings.log.level) == ("json", "debug")


def test_only_typed_flags_win_over_environment_and_file(served: list[Settings], tmp_path: Path) -> None:
    config = tmp_path / "loopline.toml"
    config.write_text('[server]\nport = 1\ninsecure = true\nhost = "0.0.0.0"\n[log]\nlevel = "error"\n')
    result = run("serve", "--config", str(config), "--port", "3", LOOPLINE_PORT="2", LOOPLINE_LOG_LEVEL="debug")
    assert result.exit_code == 7, result.stderr
    (settings,) = served
    assert (settings.server.port, settings.server.host, settings.log.level) == (3, "0.0.0.0", "debug")


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_bad_setting_is_one_line_on_stderr_and_exit_2(command: str, served: list[Settings]) -> None:
    result = run(command, "--port", "70000")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "loopline: server.port from flag --port: '70000' is not allowed: use a whole number from 0 to 65535\n"
    )
    assert served == []


def test_beyond_loopback_says_what_to_do() -> None:
    result = run("serve", "--host", "0.0.0.0")
    assert result.exit_code == 2
    assert "--insecure" in result.stderr


def test_check_config_prints_settings_and_where_they_are_from(tmp_path: Path) -> None:
    config = tmp_path / "loopline.toml"
    config.write_text('[[endpoints]]\nheaders = { x-key = "sk-secret" }\n')
    result = run("check-config", "--config", str(config), LOOPLINE_PORT="9")
    assert result.exit_code == 0
    assert "port = 9  # environment LOOPLINE_PORT\n" in result.stdout
    assert f'headers = {{ "x-key" = "(hidden)" }}  # file {config}\n' in result.stdout
    assert 'host = "127.0.0.1"\n' in result.stdout
    assert "sk-secret" not in result.output


def test_check_config_reads_keys_and_never_shows_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"one:{KEY}\ntwo:{KEY[:-6]}\n")
    named = {"LOOPLINE_REASONING_KEYS_FILE": str(keys), "XDG_STATE_HOME": str(tmp_path)}
    result = run("check-config", **named)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"loopline: reasoning.keys_file: the keys in '{keys}': the key of line 2 is not")
    keys.write_text(f"one:{KEY}\n")
    good = run("check-config", **named)
    assert good.exit_code == 0
    assert KEY[:20] not in result.output + good.output


def test_check_config_reads_the_state_folder_and_makes_nothing(tmp_path: Path) -> None:
    assert run("check-config", XDG_STATE_HOME=str(tmp_path)).exit_code == 0
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "loopline").mkdir()
    (tmp_path / "loopline" / "tenant-secret").write_text("damaged")
    result = run("check-config", XDG_STATE_HOME=str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"loopline: state.folder: the secret in {tmp_path}/loopline/tenant-secret: it is")


def test_rotate_key_says_what_it_did_and_what_to_do_next(tmp_path: Path) -> None:
    file = tmp_path / "loopline" / "sealing-keys"
    first = run("rotate-key", XDG_STATE_HOME=str(tmp_path))
    (one,) = parse_keys(file.read_text())
    assert (first.exit_code, first.stdout) == (
        0,
        f"{file}: key {one} seals from the next start on.\n"
        "Next: restart loopline serve, every replica that reads this file.\n",
    )
    run("rotate-key", XDG_STATE_HOME=str(tmp_path))
    two, _ = parse_keys(file.read_text())
    last = run("rotate-key", "--keep", "2", XDG_STATE_HOME=str(tmp_path))
    keys = parse_keys(file.read_text())
    assert f"Still open what they sealed: {two}.\nGone, with what they sealed: {one}.\nNext: restart" in last.stdout
    assert list(keys)[1:] == [two]
    for key in keys.values():
        assert base64.b64encode(key).decode()[:20] not in first.output + last.output


def test_rotate_key_rotates_the_file_of_the_settings(tmp_path: Path) -> None:
    keys, config = tmp_path / "keys", tmp_path / "loopline.toml"
    keys.write_text(f"mine:{KEY}\n")
    config.write_text(f'[reasoning]\nkeys_file = "{keys}"\n')
    result = run("rotate-key", "--config", str(config))
    assert result.exit_code == 0, result.output
    assert list(parse_keys(keys.read_text()))[1:] == ["mine"]


def test_rotate_key_that_cannot_is_one_line_and_a_status(tmp_path: Path) -> None:
    in_environment = run("rotate-key", LOOPLINE_REASONING_KEYS_ENV="KEYS", KEYS=f"mine:{KEY}")
    assert in_environment.exit_code == 2
    assert "reasoning.keys_env: the keys are in the environment (KEYS)" in in_environment.stderr
    (tmp_path / "file").write_text("")
    unwritable = run("rotate-key", LOOPLINE_STATE_FOLDER=str(tmp_path / "file" / "state"))
    assert unwritable.exit_code == 1
    assert unwritable.stderr.startswith("loopline: cannot replace the sealing keys: ")
    assert unwritable.stderr.endswith(": Not a directory\n")
    for result in (in_environment, unwritable):
        assert result.stdout == ""
        assert result.stderr.count("\n") == 1
        assert KEY not in result.stderr


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (0, f"loopline {__version__}\n")


def test_version_of_the_real_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "proxy", "version"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"loopline {__version__}\n", "")


def test_real_program_refuses_a_bad_setting_without_a_traceback() -> None:
    command = [sys.executable, "-m", "proxy", "serve", "--dialect", "smoke"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("loopline: endpoints[0].dialect from flag --dialect: 'smoke'")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_help_gives_every_flag_its_description_and_environment_name(command: str) -> None:
    text = " ".join(run(command, "--help").stdout.split())
    for key, flag in FLAGS.items():
        setting = CATALOG[key]
        assert flag in text
        assert setting.env[0] in text
        assert setting.description.split(".")[0] in text
    assert "Examples:" in text


@pytest.mark.parametrize("name", [None, *main.commands])
def test_help_exists(name: str | None) -> None:
    result = run(*([name] if name else []), "-h")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: loopline {name or '[OPTIONS]'}")


def test_simulate_passes_what_was_typed(simulated: list[tuple[str, int, Options]]) -> None:
    result = run(
        "simulate", "--port", "8000", "--ttft-s", "0.3", "--tokens-per-s", "60", "--prefill-tokens-per-s", "5000",
        "--tokens-per-chunk", "2", "--chunks-per-write", "4", "--model", "m", "--api-key", "k", "--strict-fields",
        "--context-tokens", "100",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    expected = Options(
        ttft_s=0.3,
        tokens_per_s=60,
        prefill_tokens_per_s=5000,
        tokens_per_chunk=2,
        chunks_per_write=4,
        model="m",
        api_key="k",
        strict_fields=True,
        context_tokens=100,
    )
    assert simulated == [("127.0.0.1", 8000, expected)]


def test_simulate_refuses_options_that_make_no_sense(simulated: list[tuple[str, int, Options]]) -> None:
    result = run("simulate", "--port", "8000", "--ttft-s", "-1")
    assert result.exit_code == 2
    assert "must not be negative" in result.stderr
    assert run("simulate").exit_code == 2
    assert simulated == []


def test_simulate_on_a_taken_port(simulated: list[tuple[str, int, Options]]) -> None:
    result = run("simulate", "--port", "1")
    assert result.exit_code == 1
    assert result.stderr == "loopline: cannot listen on 127.0.0.1:1: Address already in use\n"
    assert simulated == []


def test_defaults_shown_for_simulate_are_the_simulator_s(simulated: list[tuple[str, int, Options]]) -> None:
    assert run("simulate", "--port", "8000").exit_code == 0
    assert simulated == [("127.0.0.1", 8000, Options())]
