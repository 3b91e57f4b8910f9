"""Settings: precedence, refusals that name key, origin and remedy, secrets that stay hidden, the example file."""

from __future__ import annotations

import base64
import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import certifi
import pytest
from pydantic import ValidationError

from proxy.settings import (
    CATALOG,
    ENV_NAMES,
    BadSetting,
    Endpoint,
    Limits,
    Reasoning,
    Setting,
    Settings,
    api_key,
    effective,
    example,
    is_loopback,
    load,
    read,
    sealing_keys,
    tenant_secret,
    tracing_headers,
)

ROOT = Path(__file__).resolve().parents[2]
SECRET = "sk-very-secret"
KIB, MIB, GIB = 2**10, 2**20, 2**30


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "loopline.toml"


def refusal(
    flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None, config: Path | None = None
) -> str:
    with pytest.raises(BadSetting) as caught:
        load(config, flags or {}, environ or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def value_of(settings: Settings, setting: Setting) -> object:
    section = settings.endpoint if setting.section == "endpoints" else getattr(settings, setting.section)
    return getattr(section, setting.name)


def another(setting: Setting) -> object:
    """A good value that is not the default."""
    default = setting.field.default
    if setting.key in OTHERS:
        return OTHERS[setting.key]
    if setting.choices:
        return next((choice for choice in setting.choices if choice != default), default)
    return not default if isinstance(default, bool) else default + 1


OTHERS: dict[str, object] = {
    "server.host": "::1",
    "server.admin_host": "0.0.0.0",
    "server.allowed_origins": ("https://app.example",),
    "server.tls_cert": "/dev/null",
    "server.tls_key": "/dev/null",
    "server.status": "off",
    "server.status_key_env": "STATUS_KEY",
    "server.status_key_file": "./status.key",
    "server.trusted_proxies": ("10.0.0.0/8", "::1"),
    "passthrough.paths": ("embeddings", "audio/*"),
    "endpoints[0].name": "gpu-1",
    "endpoints[0].url": "https://gpu.example/v1",
    "endpoints[0].profile": "vllm",
    "endpoints[0].api_key_env": "UPSTREAM_KEY",
    "endpoints[0].api_key_file": "/dev/null",
    "endpoints[0].headers": {"X-Team": "a"},
    "endpoints[0].query": {"api-version": "2025-01-01"},
    "endpoints[0].ca_bundle": certifi.where(),
    "endpoints[0].proxy": "http://proxy.example:3128",
    "endpoints[0].forward_headers": ("x-trace",),
    "endpoints[0].context_hint": "Ask for a longer context.",
    "models.default": "qwen",
    "models.aliases": {"gpt-*": "qwen", "*": "tiny"},
    "limits.history_bytes": MIB,
    "access.keys_file": "./keys.jsonl",
    "reasoning.keys_env": "SEALING_KEYS",
    "reasoning.keys_file": "/dev/null",
    "state.folder": "/var/lib/loopline",
    "state.tenant_secret_env": "TENANT_SECRET",
    "state.tenant_secret_file": "/dev/null",
    "tracing.endpoint": "https://collector.example:4318",
    "tracing.headers_env": "COLLECTOR_HEADERS",
    "tracing.headers_file": "/dev/null",
    "tracing.sample_ratio": 0.5,
    "tracing.service_name": "front",
}
KEY = base64.b64encode(bytes(32)).decode()
NAMED = {
    "UPSTREAM_KEY": "key",
    "SEALING_KEYS": f"one:{KEY}",
    "TENANT_SECRET": KEY,
    "COLLECTOR_HEADERS": "a=b",
}  # what the variables above hold


# --- Defaults and precedence -----------------------------------------------------------------------------------------


def test_defaults_need_nothing() -> None:
    settings = load(None, {}, {})
    assert settings == Settings()
    assert (settings.server.host, settings.server.port, settings.server.admin_port) == ("127.0.0.1", 8780, 0)
    assert settings.endpoint.url == "http://127.0.0.1:8000/v1"
    assert settings.endpoint.dialect == "auto"
    assert settings.limits.frame_bytes == 64 * MIB
    assert settings.limits.frame_hard_bytes == 128 * MIB
    assert settings.limits.header_bytes == 64 * KIB
    assert settings.store.memory_bytes == GIB
    assert settings.store.ttl_s == 86_400


def test_flag_over_environment_over_file_over_default(file: Path) -> None:
    file.write_text('[server]\nhost = "127.0.0.2"\nport = 1\nping_interval_s = 5\n')
    environ = {"LOOPLINE_HOST": "127.0.0.3", "LOOPLINE_PORT": "2"}
    loaded = read(file, {"server.port": 3}, environ)
    server = loaded.settings.server
    assert (server.port, server.host, server.ping_interval_s, server.websocket) == (3, "127.0.0.3", 5.0, True)
    assert loaded.origins == {
        "server.port": "flag --port",
        "server.host": "environment LOOPLINE_HOST",
        "server.ping_interval_s": f"file {file}",
    }


def test_layers_merge_within_one_endpoint(file: Path) -> None:
    file.write_text('[[endpoints]]\nurl = "http://gpu:1/v1/"\ndialect = "chat"\n')
    endpoint = load(file, {}, {"LOOPLINE_DIALECT": "responses", "LOOPLINE_ENDPOINT_NAME": "gpu"}).endpoint
    assert (endpoint.url, endpoint.dialect, endpoint.name) == ("http://gpu:1/v1", "responses", "gpu")


def test_config_is_named_by_environment_and_flag_wins(file: Path, tmp_path: Path) -> None:
    file.write_text("server.port = 1")
    other = tmp_path / "other.toml"
    other.write_text("server.port = 2")
    assert load(None, {}, {"LOOPLINE_CONFIG": str(file)}).server.port == 1
    assert load(other, {}, {"LOOPLINE_CONFIG": str(file)}).server.port == 2


@pytest.mark.parametrize("name", ENV_NAMES)
def test_every_environment_name_sets_its_setting(name: str) -> None:
    setting = CATALOG[ENV_NAMES[name]]
    value = another(setting)
    text = json.dumps(value) if setting.is_container or not isinstance(value, str) else value
    environ = {name: text, **NAMED}
    if setting.key in ("server.tls_cert", "server.tls_key"):
        with pytest.raises(BadSetting, match=r"server\.tls_(key|cert) from the defaults: .* TLS needs it beside"):
            load(None, {}, {name: "/dev/null"})
        return
    if value == "/dev/null":
        with pytest.raises(BadSetting, match=rf"{setting.name}: the \w+ in '/dev/null'"):
            load(None, {}, environ)
    else:
        assert value_of(load(None, {}, environ), setting) == value


def test_environment_names_are_section_and_key() -> None:
    assert CATALOG["limits.frame_bytes"].env == ("LOOPLINE_LIMITS_FRAME_BYTES",)
    assert CATALOG["endpoints[0].url"].env == ("LOOPLINE_UPSTREAM", "LOOPLINE_ENDPOINT_URL")
    short = {"HOST", "PORT", "UPSTREAM", "DIALECT", "API_KEY_ENV", "STORE"}
    assert {f"LOOPLINE_{name}" for name in short} <= ENV_NAMES.keys()


def test_empty_environment_variable_counts_as_not_set(file: Path) -> None:
    file.write_text("server.port = 7")
    assert load(file, {}, {"LOOPLINE_PORT": "", "LOOPLINE_CONFIG": ""}).server.port == 7


def test_both_names_of_a_setting_may_agree_but_not_differ() -> None:
    assert load(None, {}, {"LOOPLINE_PORT": "1", "LOOPLINE_SERVER_PORT": "1"}).server.port == 1
    assert "LOOPLINE_PORT and LOOPLINE_SERVER_PORT" in refusal(
        environ={"LOOPLINE_PORT": "1", "LOOPLINE_SERVER_PORT": "2"}
    )


def test_kubernetes_service_links_are_not_settings() -> None:
    links = {
        "LOOPLINE_PORT": "tcp://10.0.0.1:8780",
        "LOOPLINE_SERVICE_HOST": "10.0.0.1",
        "LOOPLINE_SERVICE_PORT": "8780",
        "LOOPLINE_SERVICE_PORT_HTTP": "8780",
        "LOOPLINE_PORT_8780_TCP": "tcp://10.0.0.1:8780",
        "LOOPLINE_PORT_8780_TCP_ADDR": "10.0.0.1",
        "LOOPLINE_ADMIN_SERVICE_HOST": "10.0.0.2",
        "LOOPLINE_ADMIN_PORT": "tcp://10.0.0.2:9000",
    }
    assert load(None, {}, links) == Settings()


def test_a_table_replaces_the_one_of_a_weaker_source(file: Path) -> None:
    file.write_text('[[endpoints]]\nheaders = { a = "file", b = "file" }\n[models.aliases]\n"*" = "file"\n')
    environ = {"LOOPLINE_ENDPOINT_HEADERS": '{"c": "environment"}', "LOOPLINE_MODELS_ALIASES": '{"x": "environment"}'}
    settings = load(file, {"models.aliases": {"y": "flag"}}, environ)
    assert (settings.endpoint.headers, settings.models.aliases) == ({"c": "environment"}, {"y": "flag"})


def test_settings_made_directly_do_not_read_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_PORT", "9")
    monkeypatch.setenv("SERVER", '{"port": 9}')
    assert Settings().server.port == load(None, {}, {}).server.port == 8780


def test_aliases_keep_their_order(file: Path) -> None:
    file.write_text('[models.aliases]\n"z-*" = "1"\n"a-*" = "2"\n"*" = "3"\n')
    assert list(load(file, {}, {}).models.aliases) == ["z-*", "a-*", "*"]


def test_a_snapshot_cannot_be_changed() -> None:
    settings = load(None, {}, {})
    with pytest.raises(ValidationError, match="frozen"):
        settings.server.port = 1  # type: ignore[misc]


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            {"server.port": "99999"},
            "server.port from flag --port: '99999' is not allowed: use a whole number from 0 to",
        ),
        ({"server.port": "http"}, "'http' is not allowed: use a whole number from 0 to 65535"),
        ({"server.port": True}, "server.port from flag --port: True"),
        ({"server.host": ""}, "a host name or an IP address"),
        (
            {"server.insecure": "maybe"},
            "server.insecure from flag --insecure: 'maybe' is not allowed: use true or false",
        ),
        ({"endpoints[0].dialect": "smoke"}, "'smoke' is not allowed: use one of auto, chat, responses"),
        (
            {"endpoints[0].url": "gpu:8000"},
            "endpoints[0].url from flag --upstream: 'gpu:8000' is not allowed: use an http",
        ),
        ({"endpoints[0].url": "http://x:99999"}, "an http:// or https:// URL"),
        ({"endpoints[0].url": "http://[::1"}, "an http:// or https:// URL"),
        ({"endpoints[0].forward_headers": ["a b"]}, "a list of header names"),
        ({"endpoints[0].ca_bundle": "/none.pem"}, "'/none.pem' is not allowed: there is no such file"),
        ({"endpoints[0].ca_bundle": __file__}, "is not allowed: it holds no certificates in PEM form"),
        ({"upstream.idle_timeout_s": 0}, "a number of seconds above 0"),
        ({"upstream.idle_timeout_s": "nan"}, "a number of seconds above 0"),
        ({"server.early_events_s": -1}, "a number of seconds, 0 or more"),
        ({"limits.tools": 0}, "a whole number, at least 1"),
        ({"server.allowed_origins": ["app.example"]}, 'a list of origins such as ["https://app.example"]'),
        ({"models.aliases": {"a": 1}}, "a table of names and texts"),
        ({"store.kind": "floppy"}, "store.kind from flag --store: 'floppy' is not allowed: use memory"),
        ({"server.prt": 1}, "unknown setting server.prt; did you mean server.port?"),
    ],
)
def test_bad_value_names_key_origin_value_and_what_is_allowed(flags: dict[str, object], message: str) -> None:
    assert message in refusal(flags)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"LOOPLINE_SERVER_PORT": "-1"}, "server.port from environment LOOPLINE_SERVER_PORT: '-1' is not allowed"),
        ({"LOOPLINE_PRT": "1"}, "unknown setting LOOPLINE_PRT; did you mean LOOPLINE_PORT?"),
        ({"LOOPLINE_CONFG": "x"}, "did you mean LOOPLINE_CONFIG?"),
        ({"LOOPLINE_CONFIG": "/none.toml"}, "cannot read the settings file /none.toml: No such file"),
        ({"LOOPLINE_SERVER_ALLOWED_ORIGINS": "https://a"}, "from environment LOOPLINE_SERVER_ALLOWED_ORIGINS"),
        ({"LOOPLINE_SERVER_ALLOWED_ORIGINS": "https://a"}, "is not JSON; use a list of origins"),
        ({"LOOPLINE_MODELS_ALIASES": "[]"}, "models.aliases from environment LOOPLINE_MODELS_ALIASES: [] is not"),
    ],
)
def test_bad_environment(environ: dict[str, str], message: str) -> None:
    assert message in refusal(environ=environ)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[server]\nport = 70000", "server.port from file {file}: 70000 is not allowed"),
        ("[server]\nport = true", "server.port from file {file}: True is not allowed"),
        ("[server]\nprot = 1", "file {file}: unknown setting server.prot; did you mean port?"),
        ("[sever]\nport = 1", "file {file}: unknown table [sever]; did you mean server?"),
        ("server = 1", "server is a table: write [server]"),
        ("[endpoints]\nurl = 'http://x'", "endpoints is a list of tables: write [[endpoints]]"),
        ("endpoints = []", "endpoints has 0 entries; exactly one is supported"),
        ("[[endpoints]]\n[[endpoints]]", "endpoints has 2 entries; exactly one is supported"),
        ("[[endpoints]]\nuri = 'http://x'", "unknown setting endpoints[0].uri; did you mean url?"),
        ("[server", "the settings file {file} is not TOML"),
    ],
)
def test_bad_file(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    assert message.format(file=file) in refusal(config=file)


def test_bad_table_is_refused_even_if_a_stronger_source_sets_what_it_holds(file: Path) -> None:
    file.write_text("server = 1\nendpoints = []")
    assert "server is a table" in refusal(config=file, environ={"LOOPLINE_PORT": "1"})
    file.write_text("endpoints = []")
    assert "endpoints has 0 entries" in refusal(config=file, environ={"LOOPLINE_UPSTREAM": "http://gpu/v1"})


@pytest.mark.parametrize("path", [Path(), ROOT])
def test_directory_is_no_file(path: Path) -> None:
    assert refusal(config=path) == f"cannot read the settings file {path}: Is a directory"


def test_file_that_is_not_utf8(file: Path) -> None:
    file.write_bytes(b"# \xff")
    assert "is not TOML" in refusal(config=file)


def test_limits_that_contradict_name_both_sides() -> None:
    assert refusal({"limits.frame_bytes": 128 * MIB}) == (
        "limits.frame_hard_bytes from the defaults: 134217728 is not allowed: "
        "it must exceed limits.frame_bytes, which is 134217728 from flag limits.frame_bytes"
    )
    message = refusal(environ={"LOOPLINE_STORE_MEMORY_BYTES": "1000"})
    assert "limits.history_bytes from the defaults" in message
    assert "store.memory_bytes, which is '1000' from environment LOOPLINE_STORE_MEMORY_BYTES" in message


def test_admin_port_is_another_port() -> None:
    assert "must differ from server.port" in refusal({"server.admin_port": 8780})


def test_contradictions_are_found_without_load_too() -> None:
    with pytest.raises(ValidationError, match="must exceed"):
        Settings(limits=Limits(frame_bytes=10, frame_hard_bytes=10))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "gpu.example"])
def test_beyond_loopback_only_when_told(host: str) -> None:
    message = refusal({"server.host": host})
    assert "no client keys" in message
    assert "--insecure" in message
    assert load(None, {"server.host": host, "server.insecure": True}, {}).server.host == host


def test_admin_port_beyond_loopback_only_when_told() -> None:
    beyond = {"server.admin_host": "0.0.0.0", "server.admin_port": 9}
    message = refusal(beyond)
    assert message.startswith("server.admin_host from flag server.admin_host: '0.0.0.0' is not allowed: other machines")
    assert "--insecure" in message
    assert load(None, beyond | {"server.insecure": True}, {}).server.admin_port == 9
    assert load(None, beyond | {"server.admin_port": 0}, {}).server.admin_host == "0.0.0.0", "nothing listens on it"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert is_loopback(host)
    assert load(None, {"server.host": host}, {}).server.host == host.strip("[]")


# --- Keys and secrets ------------------------------------------------------------------------------------------------


def test_no_key_is_named() -> None:
    assert api_key(Endpoint(), {"OPENAI_API_KEY": SECRET}) is None


def test_key_from_environment_then_its_file_then_the_named_file(tmp_path: Path) -> None:
    mounted, named = tmp_path / "mounted", tmp_path / "named"
    mounted.write_text("from-mounted\n")
    named.write_text("  from-named\n")
    endpoint = Endpoint(api_key_env="KEY", api_key_file=str(named))
    both = {"KEY": " from-env ", "KEY_FILE": str(mounted)}
    assert api_key(endpoint, both) == "from-env"
    assert api_key(endpoint, {"KEY_FILE": str(mounted)}) == "from-mounted"
    assert api_key(endpoint, {}) == "from-named"
    assert api_key(Endpoint(api_key_file=str(named)), both) == "from-named"


def test_named_but_missing_key_is_a_bad_setting(tmp_path: Path) -> None:
    assert "'KEY' is named, but neither" in refusal({"endpoints[0].api_key_env": "KEY"}, {"KEY": ""})
    assert "No such file" in refusal({"endpoints[0].api_key_env": "KEY"}, {"KEY_FILE": str(tmp_path / "none")})
    assert "No such file" in refusal({"endpoints[0].api_key_file": str(tmp_path / "none")})
    assert "cannot read" in refusal({"endpoints[0].api_key_file": "/nul\0"})
    assert "cannot read" in refusal({"endpoints[0].api_key_file": "~nobody-by-this-name/key"})


def test_key_may_live_in_a_variable_of_our_prefix() -> None:
    environ = {"LOOPLINE_API_KEY_ENV": "LOOPLINE_KEY", "LOOPLINE_KEY": SECRET}
    assert api_key(load(None, {}, environ).endpoint, environ) == SECRET
    assert "unknown setting LOOPLINE_KEY" in refusal(environ={"LOOPLINE_KEY": SECRET})


@pytest.mark.parametrize("key", [f"{SECRET}\nX-Evil: 1", f"{SECRET} two", f"{SECRET}é"])
def test_key_that_no_header_can_carry(key: str) -> None:
    message = refusal({"endpoints[0].api_key_env": "KEY"}, {"KEY": key})
    assert "characters that an API key cannot have" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("flags", "environ"),
    [
        ({"endpoints[0].api_key_env": SECRET}, {}),
        ({"endpoints[0].api_key_env": SECRET.replace("-", "_")}, {}),
        ({"endpoints[0].api_key_file": SECRET}, {}),
        ({"reasoning.keys_env": SECRET.replace("-", "_")}, {}),
        ({"reasoning.keys_file": SECRET}, {}),
        ({"reasoning.keys_env": "KEYS"}, {"KEYS": f"id:{SECRET}"}),
        ({"reasoning.keys_env": "KEYS"}, {"KEYS": SECRET}),
        ({"state.tenant_secret_env": SECRET.replace("-", "_")}, {}),
        ({"state.tenant_secret_file": SECRET}, {}),
        ({"state.tenant_secret_env": "TENANT_SECRET"}, {"TENANT_SECRET": SECRET}),
        ({"tracing.headers_env": SECRET.replace("-", "_")}, {}),
        ({"tracing.headers_file": SECRET}, {}),
        ({"tracing.headers_env": "COLLECTOR"}, {"COLLECTOR": SECRET}),
        ({"tracing.endpoint": f"http://user:{SECRET}@collector"}, {}),
        ({"endpoints[0].url": f"http://user:{SECRET}@gpu/v1"}, {}),
        ({"endpoints[0].url": f"http://gpu/v1?key={SECRET}"}, {}),
        ({"endpoints[0].proxy": f"socks5://user:{SECRET}@proxy"}, {}),
        ({"endpoints[0].headers": {"bad name": SECRET}}, {}),
        ({"endpoints[0].headers": {"x": f"{SECRET}\n"}}, {}),
        ({}, {"LOOPLINE_ENDPOINT_HEADERS": f'{{"x": "{SECRET}"'}),
        ({}, {"LOOPLINE_ENDPOINT_QUERY": f'["{SECRET}"]'}),
        ({}, {"LOOPLINE_APIKEY": SECRET}),
    ],
)
def test_no_refusal_shows_a_secret(flags: dict[str, object], environ: dict[str, str]) -> None:
    assert "very" not in refusal(flags, environ)


def test_neither_repr_nor_effective_settings_show_a_secret(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET)
    endpoint = {"headers": {"x-key": SECRET}, "query": {"key": SECRET}, "proxy": f"http://me:{SECRET}@proxy:1"}
    flags = {f"endpoints[0].{name}": value for name, value in endpoint.items()} | {"endpoints[0].api_key_env": "KEY"}
    loaded = read(None, flags, {"KEY_FILE": str(tmp_path / "key")})
    assert loaded.settings.endpoint.headers == {"x-key": SECRET}
    for text in (repr(loaded.settings), str(loaded.settings), effective(loaded)):
        assert SECRET not in text
    assert 'headers = { "x-key" = "(hidden)" }  # flag endpoints[0].headers' in effective(loaded)


def test_sealing_keys_from_environment_then_its_file_then_the_named_file(tmp_path: Path) -> None:
    mounted, named = tmp_path / "mounted", tmp_path / "named"
    mounted.write_text(f"mounted:{KEY}\n")
    named.write_text(f"named:{KEY}\n")
    settings = Settings(reasoning=Reasoning(keys_env="KEYS", keys_file=str(named)))
    both = {"KEYS": f"first:{KEY},second:{KEY}", "KEYS_FILE": str(mounted)}
    assert list(sealing_keys(settings, both) or ()) == ["first", "second"]
    assert list(sealing_keys(settings, {"KEYS_FILE": str(mounted)}) or ()) == ["mounted"]
    assert list(sealing_keys(settings, {}) or ()) == ["named"]
    assert sealing_keys(Settings(), both) is None


def test_sealing_keys_that_cannot_be_used_are_a_bad_setting_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"one:{KEY}\ntwo:short\n")
    assert refusal({"reasoning.keys_file": str(tmp_path / "keys")}) == (
        f"reasoning.keys_file: the keys in '{tmp_path}/keys': the key of line 2 is not the base64 of 32 bytes "
        "(`openssl rand -base64 32` makes one)"
    )
    assert "'KEYS' is named, but neither" in refusal({"reasoning.keys_env": "KEYS"})
    assert "reasoning.keys_file: cannot read" in refusal({"reasoning.keys_file": str(tmp_path / "none")})
    assert refusal({"state.tenant_secret_env": "KEYS"}, {"KEYS": "short"}).startswith(
        "state.tenant_secret_env: the secret in KEYS: it is not the base64 of 32 bytes"
    )


def test_sealing_keys_may_live_in_variables_of_our_prefix() -> None:
    environ = {
        "LOOPLINE_REASONING_KEYS_ENV": "LOOPLINE_KEYS",
        "LOOPLINE_KEYS": f"one:{KEY}",
        "LOOPLINE_STATE_TENANT_SECRET_ENV": "LOOPLINE_TENANTS",
        "LOOPLINE_TENANTS": KEY,
    }
    settings = load(None, {}, environ)
    assert sealing_keys(settings, environ) == {"one": bytes(32)}
    assert tenant_secret(settings, environ) == bytes(32)


# --- Texts -----------------------------------------------------------------------------------------------------------


def test_effective_settings_are_toml_that_loads_to_the_same(file: Path) -> None:
    hidden = {"endpoints[0].headers", "endpoints[0].query"}
    flags = {key: value for key, setting in CATALOG.items() if (value := another(setting)) != "/dev/null"}
    flags = {key: value for key, value in flags.items() if key not in hidden}
    loaded = read(None, flags | {"models.default": 'a "b" \\ é \x7f 😀'}, NAMED)
    file.write_text(effective(loaded))
    assert load(file, {}, NAMED) == loaded.settings


def test_example_file_is_up_to_date() -> None:
    assert (ROOT / "config/loopline.example.toml").read_text() == example(), "run `make config`"


def test_example_changes_nothing_as_it_is_nor_with_every_line_uncommented(file: Path) -> None:
    file.write_text(example())
    assert load(file, {}, {}) == Settings()
    file.write_text(re.sub(r"^# (?=[a-z_]+ = )", "", example(), flags=re.MULTILINE))
    assert load(file, {}, {}) == Settings()
    tables = tomllib.loads(file.read_text())
    named = {f"{name}.{key}" for name, table in tables.items() if name != "endpoints" for key in table}
    assert named | {f"endpoints[0].{key}" for key in tables["endpoints"][0]} == set(CATALOG)


def test_every_setting_is_described_and_says_what_it_allows() -> None:
    for setting in CATALOG.values():
        assert setting.description.endswith("."), setting.key
        assert setting.allowed, setting.key


# --- Headers of the collector ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("Authorization=Basic%20abc%3D,x-team=a", {"authorization": "Basic abc=", "x-team": "a"}),
        ("a=1\n\nB = 2 \r\n", {"a": "1", "b": "2"}),
        ("key=a=b%2Cc", {"key": "a=b,c"}),
    ],
)
def test_headers_of_the_collector(text: str, headers: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(text)
    flags = {"tracing.headers_file": str(tmp_path / "headers")}
    assert tracing_headers(load(None, flags, {}), {}) == headers
    environ = {"COLLECTOR": text}
    assert tracing_headers(load(None, {"tracing.headers_env": "COLLECTOR"}, environ), environ) == headers


@pytest.mark.parametrize("text", ["", " , ", "a", "=b", "a=", "a b=c", "a=%0d%0ab", "a=%FF"])
def test_headers_that_are_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "headers").write_text(text)
    said = refusal({"tracing.headers_file": str(tmp_path / "headers")})
    assert said.startswith("tracing.headers_file: the headers in ")
