"""The state folder: made once, closed to others, read ever after; and what happens where it cannot be."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.settings import BadSetting, Reasoning, Settings, State
from proxy.settings.keys import format_keys, format_secret, parse_keys
from proxy.state_folder import check, folder, load_secrets, rotate

ROOT = Path(__file__).resolve().parents[2]
KEY, SECRET = b"k" * 32, b"s" * 32
AS_TEXT = base64.b64encode(KEY).decode()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state folder that does not exist yet, nor its parent."""
    return tmp_path / "state" / "loopline"


@pytest.fixture
def settings(home: Path) -> Settings:
    return in_folder(home)


@pytest.fixture
def closed(home: Path) -> Iterator[Path]:
    """A place that nobody can write to, root neither: a file stands where the folder should be."""
    home.parent.mkdir()
    home.write_text("")
    yield home
    assert home.read_text() == ""


def in_folder(path: Path, **reasoning: str) -> Settings:
    return Settings(state=State(folder=str(path)), reasoning=Reasoning(**reasoning))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- Where it is -----------------------------------------------------------------------------------------------------


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder(Settings(), {"XDG_STATE_HOME": "/x"}) == Path("/x/loopline")
    for invalid in ("", "relative"):
        assert folder(Settings(), {"XDG_STATE_HOME": invalid}) == tmp_path / ".local/state/loopline"
    assert folder(Settings(), {}) == tmp_path / ".local/state/loopline"
    assert folder(in_folder(Path("/elsewhere")), {"XDG_STATE_HOME": "/x"}) == Path("/elsewhere")
    assert folder(in_folder(Path("~/here")), {}) == tmp_path / "here"


# --- Made once, read ever after --------------------------------------------------------------------------------------


def test_secrets_are_made_at_the_first_start_and_the_same_at_the_next(settings: Settings) -> None:
    first, second = load_secrets(settings, {}), load_secrets(settings, {})
    assert len(first.keys) == 1
    assert [len(key) for key in first.keys.values()] == [32]
    assert len(first.tenant) == 32
    assert first.warnings == second.warnings == ()
    assert (second.keys, second.tenant) == (first.keys, first.tenant)


def test_two_folders_have_different_secrets(tmp_path: Path) -> None:
    one, two = (load_secrets(in_folder(tmp_path / name), {}) for name in ("one", "two"))
    assert one.keys.keys() != two.keys.keys()
    assert one.tenant != two.tenant


def test_nobody_else_can_read_them_whatever_the_umask(settings: Settings, home: Path) -> None:
    before = os.umask(0)
    try:
        load_secrets(settings, {})
    finally:
        os.umask(before)
    assert mode(home) == 0o700
    assert {file.name for file in home.iterdir()} >= {"sealing-keys", "tenant-secret"}
    assert {mode(file) for file in home.iterdir()} == {0o600}


def test_processes_that_start_at_once_end_with_the_same_secrets(home: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from proxy.settings import Settings, State; from proxy.state_folder import load_secrets\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "secrets = load_secrets(Settings(state=State(folder=sys.argv[1])), {})\n"
        "print(secrets.keys, secrets.tenant, secrets.warnings)\n"
    )
    pipe = subprocess.PIPE
    racers = [
        subprocess.Popen([sys.executable, "-c", program, str(home)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        for _ in range(4)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        ends = {racer.communicate(timeout=30)[0] for racer in racers}
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    kept = load_secrets(in_folder(home), {})
    assert ends == {f"{kept.keys} {kept.tenant!r} ()\n"}


def test_a_folder_that_was_filled_beforehand_is_only_read(settings: Settings, home: Path) -> None:
    home.mkdir(parents=True)
    for name, text in (
        ("sealing-keys", format_keys({"a": KEY, "b": SECRET})),
        ("tenant-secret", format_secret(SECRET)),
    ):
        (home / name).write_text(text)
        (home / name).chmod(0o440)
    secrets = load_secrets(settings, {})
    assert (list(secrets.keys), secrets.tenant, secrets.warnings) == (["a", "b"], SECRET, ())
    assert sorted(file.name for file in home.iterdir()) == ["sealing-keys", "tenant-secret"]


def test_a_file_that_everybody_can_read_is_said(settings: Settings, home: Path) -> None:
    first = load_secrets(settings, {})
    (home / "sealing-keys").chmod(0o644)
    again = load_secrets(settings, {})
    assert again.keys == first.keys
    assert again.warnings == (
        f"state.folder: {home}/sealing-keys is open to every user of this machine: chmod 600 closes it",
    )


# --- Secrets that the settings name ----------------------------------------------------------------------------------


def test_named_secrets_leave_the_folder_alone(home: Path) -> None:
    settings = Settings(
        state=State(folder=str(home), tenant_secret_env="TENANTS"), reasoning=Reasoning(keys_env="KEYS")
    )
    secrets = load_secrets(settings, {"KEYS": f"mine:{AS_TEXT}", "TENANTS": base64.b64encode(SECRET).decode()})
    assert (secrets.keys, secrets.tenant, secrets.warnings) == ({"mine": KEY}, SECRET, ())
    assert not home.exists()


def test_named_keys_do_without_the_folder_s_keys_alone(home: Path) -> None:
    load_secrets(in_folder(home, keys_env="KEYS"), {"KEYS": f"mine:{AS_TEXT}"})
    assert (home / "tenant-secret").exists()
    assert not (home / "sealing-keys").exists()


# --- Where it cannot be ----------------------------------------------------------------------------------------------


def test_without_a_folder_secrets_last_as_long_as_the_process_and_that_is_said(closed: Path) -> None:
    one, two = load_secrets(in_folder(closed), {}), load_secrets(in_folder(closed), {})
    assert one.keys != two.keys
    assert one.tenant != two.tenant
    keys, tenants = one.warnings
    assert keys.startswith(f"state.folder: cannot keep {closed}/sealing-keys: Not a directory. So sealed reasoning")
    assert "does not survive a restart" in keys
    assert keys.endswith("or set reasoning.keys_env.")
    assert "tenants do not survive a restart" in tenants
    assert tenants.endswith("or set state.tenant_secret_env.")


def test_a_folder_without_permission(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> int:  # as root is never
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", denied)
    assert [warning.count("Permission denied") for warning in load_secrets(settings, {}).warnings] == [1, 1]


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    secrets = load_secrets(Settings(), {})
    assert len(secrets.keys) == 1
    assert all("Could not determine home directory." in warning for warning in secrets.warnings)


def test_a_path_that_no_system_takes() -> None:
    assert len(load_secrets(in_folder(Path("/nul\0")), {}).warnings) == 2


# --- Damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("sealing-keys", b"", "the keys in {path}: there is none"),
        ("sealing-keys", b"k1:not-a-key", "the keys in {path}: the key of line 1 is not the base64 of 32 bytes"),
        ("sealing-keys", b"\xff\xfe", "the keys in {path}: line 1 is not id:key"),
        ("tenant-secret", b"", "the secret in {path}: it is not the base64 of 32 bytes"),
    ],
)
def test_a_damaged_file_stops_the_start_and_is_left_as_it_is(
    settings: Settings, home: Path, name: str, content: bytes, message: str
) -> None:
    home.mkdir(parents=True)
    (home / name).write_bytes(content)
    for reader in (load_secrets, check):
        with pytest.raises(BadSetting) as caught:
            reader(settings, {})
        assert str(caught.value).startswith("state.folder: " + message.format(path=home / name))
        assert "Restore the file; or remove it" in str(caught.value)
        assert "not-a-key" not in str(caught.value)
    assert (home / name).read_bytes() == content


def test_to_check_makes_nothing(settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(settings, {})
    assert not home.exists()
    home.mkdir(parents=True)
    (home / "sealing-keys").write_text("damaged")
    check(in_folder(home, keys_env="KEYS"), {"KEYS": f"mine:{AS_TEXT}"})


# --- Rotation --------------------------------------------------------------------------------------------------------


def test_a_rotation_puts_a_key_in_front_and_keeps_the_last_ones(settings: Settings, home: Path) -> None:
    (first,) = load_secrets(settings, {}).keys.items()
    done = rotate(settings, {}, keep=2)
    assert (done.path, done.opening, done.dropped) == (home / "sealing-keys", (first[0],), ())
    assert list(load_secrets(settings, {}).keys.items())[1:] == [first]
    again = rotate(settings, {}, keep=2)
    assert (again.opening, again.dropped) == ((done.sealing,), (first[0],))
    assert list(load_secrets(settings, {}).keys) == [again.sealing, done.sealing]
    assert mode(home / "sealing-keys") == 0o600
    assert not list(home.glob("*.part")) + list(home.glob(".*.part"))


def test_a_rotation_before_the_first_start_makes_the_first_key(settings: Settings, home: Path) -> None:
    done = rotate(settings, {}, keep=4)
    assert (done.opening, done.dropped) == ((), ())
    assert list(load_secrets(settings, {}).keys) == [done.sealing]
    assert mode(home) == 0o700


def test_a_rotation_of_a_named_file_keeps_its_mode_and_the_link_to_it(home: Path, tmp_path: Path) -> None:
    keys, link = tmp_path / "keys", tmp_path / "link"
    keys.write_text(format_keys({"mine": KEY}))
    keys.chmod(0o640)
    link.symlink_to(keys)
    for settings, environ in (
        (in_folder(home, keys_file=str(link)), {}),
        (in_folder(home, keys_env="KEYS"), {"KEYS_FILE": str(link)}),
    ):
        assert rotate(settings, environ, keep=9).path == keys
    assert list(parse_keys(keys.read_text()).items())[-1] == ("mine", KEY)
    assert len(parse_keys(keys.read_text())) == 3
    assert mode(keys) == 0o640
    assert link.is_symlink()
    assert not home.exists()


def test_keys_in_the_environment_cannot_be_rotated_here(home: Path) -> None:
    with pytest.raises(BadSetting, match=r"^reasoning.keys_env: the keys are in the environment \(KEYS\)") as caught:
        rotate(in_folder(home, keys_env="KEYS"), {"KEYS": f"mine:{AS_TEXT}"}, keep=2)
    assert "put a new id:key in front there" in str(caught.value)
    assert AS_TEXT not in str(caught.value)


def test_a_rotation_that_fails_changes_nothing(settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_secrets(settings, {})
    before = (home / "sealing-keys").read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        rotate(settings, {}, keep=2)
    assert (home / "sealing-keys").read_bytes() == before
    assert not list(home.glob(".*.part"))


def test_what_a_killed_process_left_is_no_hindrance(settings: Settings, home: Path) -> None:
    home.mkdir(parents=True)
    (home / ".sealing-keys.part").write_text("half a k")
    assert list(load_secrets(settings, {}).keys) == list(load_secrets(settings, {}).keys)
    assert not (home / ".sealing-keys.part").exists()


def test_no_repr_shows_a_secret(settings: Settings) -> None:
    secrets = load_secrets(settings, {})
    for secret in (secrets.tenant, *secrets.keys.values()):
        assert repr(secret) not in repr(secrets)
