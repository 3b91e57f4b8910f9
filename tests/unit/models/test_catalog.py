from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.models.catalog import CHAT, RESPONSES, Catalog, Names, questions, read_catalog
from proxy.models.profile import GENERIC, profiles
from tests.unit.strategies import dumped, json_values

URL = "http://127.0.0.1:8000/v1"


def models(*entries: Any) -> bytes:
    return dumped({"object": "list", "data": list(entries)})


def read(listed: bytes | None = None, url: str = URL) -> Catalog:
    return read_catalog(url, "auto", None, {"/models": listed})


def serving(*names: str) -> Catalog:
    return Catalog(CHAT, profiles()["vllm"], frozenset(names), {})


def test_a_list_of_models_is_kept_as_it_came() -> None:
    entry = {"id": "m", "object": "model", "created": 1, "owned_by": "vllm", "max_model_len": "odd", "x": [1]}
    catalog = read(models(entry, {"id": "n"}))
    assert (catalog.names, catalog.profile.name) == (frozenset({"m", "n"}), "vllm")
    assert json.loads(catalog.entries["m"]) == entry


@pytest.mark.parametrize(
    "body", [None, b"", b"[]", b"{}", b'{"data":[]}', b'{"data":{}}', b"<html>", b"\xff", b'{"data":' + b"[" * 100_000]
)
def test_an_upstream_that_will_not_say_serves_any_name(body: bytes | None) -> None:
    catalog = read(body)
    assert (catalog.names, catalog.profile.name, catalog.dialect) == (None, GENERIC, CHAT)


def test_entries_that_are_none_do_not_hide_the_others() -> None:
    odd = models(7, None, {"id": 7}, {}, {"id": "m", "owned_by": None}, {"id": "n", "owned_by": 7})
    assert read(odd).names == frozenset({"m", "n"})


MINE = [{"id": "acme/Tiny", "object": "model", "created": 1, "owned_by": "acme"}]
# `/v1/models` and the one other answer that tells: seen here (vLLM, llama.cpp, transformers), from the sources
# (SGLang, Ollama), the API reference (OpenAI), docs.x.ai (xAI), eyalrot/ollama_openai#34 (LM Studio).
SHOWN: list[tuple[str, str, list[dict[str, Any]], dict[str, bytes]]] = [
    ("openai", "https://api.openai.com/v1",
     [{"id": "gpt-5", "object": "model", "created": 1754073306, "owned_by": "system"}], {}),
    ("openai", "https://eu.api.openai.com/v1", [], {}),
    ("openai", "https://mine.openai.azure.com/openai/v1", [], {}),
    ("xai", "https://api.x.ai/v1", [{"id": "grok-4", "created": 1752019200, "object": "model", "owned_by": "xai"}], {}),
    ("vllm", URL,
     [{"id": "tiny", "object": "model", "created": 1796002665, "owned_by": "vllm", "root": "/models/tiny",
       "parent": None, "max_model_len": 100000,
       "permission": [{"id": "modelperm-a4449432bcce1353", "object": "model_permission", "organization": "*"}]}], {}),
    ("sglang", URL,
     [{"id": "m", "object": "model", "created": 1, "owned_by": "sglang", "root": "m", "parent": None,
       "max_model_len": 8192}], {}),
    ("llamacpp", URL,
     [{"id": "smollm2", "aliases": ["smollm2"], "tags": [], "object": "model", "created": 1796002665,
       "owned_by": "llamacpp", "meta": {"n_vocab": 49152, "n_ctx": 2048}}], {}),
    ("llamacpp", URL, MINE, {"/props": b'{"default_generation_settings":{"params":{}},"total_slots":1}'}),
    ("transformers", URL,
     [{"owned_by": "acme", "id": "acme/Tiny-Chat", "object": "model", "created": 1796002892.1457405}],
     {"/openapi.json": b'{"openapi":"3.1.0","paths":{"/v1/models":{},"/load_model":{"post":{}},"/reset":{}}}'}),
    ("ollama", URL, [{"id": "llama3.2:latest", "object": "model", "created": 1, "owned_by": "library"}], {}),
    ("ollama", URL, MINE, {"/api/version": b'{"version":"0.12.3"}'}),
    ("ollama", "https://ollama.com/v1", MINE, {}),
    ("lmstudio", "http://127.0.0.1:1234/v1",
     [{"id": "qwen3.5-35b-a3b", "object": "model", "owned_by": "organization_owner"}], {}),
    ("simulated", URL, [{"id": "simulated", "object": "model", "created": 1, "owned_by": "loopline-simulate"}], {}),
    # Nothing tells: a gateway, whatever it copies from OpenAI; FastAPI's own pages; LM Studio, which answers anything.
    (GENERIC, URL, [{"id": "m", "object": "model", "created": 1, "owned_by": "openai"}], {}),
    (GENERIC, URL, [{"id": "a", "owned_by": "vllm"}, {"id": "b", "owned_by": "llamacpp"}], {}),
    (GENERIC, URL, MINE, {"/openapi.json": b'{"openapi":"3.1.0","paths":{"/load":{},"/version":{}}}'}),
    (GENERIC, URL, MINE, {path: b'{"error":"Unexpected endpoint or method. (GET %b)"}' % path.encode()
                          for path in questions()}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "url", "listed", "told"), SHOWN)
def test_a_server_is_recognised_by_its_host_its_models_or_its_answers(
    name: str, url: str, listed: list[dict[str, Any]], told: dict[str, bytes]
) -> None:
    answers: dict[str, bytes | None] = {**dict.fromkeys(questions()), **told, "/models": models(*listed)}
    assert read_catalog(url, "auto", None, answers).profile.name == name


def test_every_profile_is_recognised_by_something_here() -> None:
    assert {name for name, *_ in SHOWN} == set(profiles())


def test_an_owner_counts_however_it_is_spelled() -> None:
    assert read(models({"id": "m", "owned_by": "VLLM"})).profile.name == "vllm"


def test_the_host_wins_over_what_the_models_say() -> None:
    assert read(models({"id": "m", "owned_by": "vllm"}), url="https://api.openai.com/v1").profile.name == "openai"


@pytest.mark.parametrize(
    ("url", "asked", "dialect"),
    [
        ("https://api.openai.com/v1", "auto", RESPONSES),
        ("https://api.x.ai/v1", "auto", RESPONSES),
        ("https://api.openai.com.evil.example/v1", "auto", CHAT),
        ("https://evil-api.openai.com/v1", "auto", CHAT),
        (URL, "auto", CHAT),
        (URL, "responses", RESPONSES),
        ("https://api.openai.com/v1", "chat", CHAT),
    ],
)
def test_the_dialect_is_what_was_asked_or_what_the_host_is_known_for(url: str, asked: str, dialect: str) -> None:
    assert read_catalog(url, asked, None, {}).dialect == dialect


@given(
    st.dictionaries(
        st.sampled_from(["/models", *questions()]),
        st.one_of(json_values("data", "id", "owned_by", "version").map(dumped), st.binary(max_size=30)),
    )
)
@settings(deadline=None, max_examples=60)
def test_any_answers_give_a_catalog(answers: dict[str, bytes]) -> None:
    catalog = read_catalog(URL, "auto", None, answers)
    assert catalog.names is None or catalog.names == set(catalog.entries)


# --- names ---


def test_an_exact_alias_wins_then_patterns_in_order_then_the_served_name_then_the_default() -> None:
    names = Names({"gpt-*": "first", "gpt-5": "exact", "gpt-5*": "never", "served": "alias"}, "fallback")
    catalog = serving("served", "other")
    resolved = {name: names.resolve(name, catalog) for name in ("gpt-5", "gpt-51", "served", "other", "unheard")}
    assert resolved == {"gpt-5": "exact", "gpt-51": "first", "served": "alias", "other": "other", "unheard": "fallback"}
    assert names.resolve(None, catalog) == "fallback"
    assert names.exact == ("gpt-5", "served")


def test_a_name_is_no_pattern() -> None:
    names = Names({"a": "b"}, "")
    with pytest.raises(LooplineError):
        names.resolve("*", serving("m"))
    assert Names({"A*": "x"}, "").resolve("abc", serving("abc")) == "abc"


def test_any_name_passes_where_the_upstream_would_not_say() -> None:
    assert Names({}, "").resolve("anything", read()) == "anything"


def test_an_unknown_name_is_refused_with_what_there_is() -> None:
    with pytest.raises(LooplineError) as raised:
        Names({}, "").resolve("gpt-5", serving(*(f"m{n}" for n in range(8))))
    assert (raised.value.kind, raised.value.param) == (Kind.MODEL_NOT_FOUND, "model")
    assert "'gpt-5'" in raised.value.message
    assert "m0, m1, m2, m3, m4 and 3 more. Name one of them, or" in raised.value.message
    assert "models.aliases" in raised.value.message


def test_where_none_that_is_listed_may_be_used_nobody_is_told_to_name_one_of_them() -> None:
    with pytest.raises(LooplineError) as raised:
        Names({}, "").resolve("gpt-5", serving("m"), lambda name: name == "gpt-6")
    assert "lists none for you. Name one that you may use, or" in raised.value.message
    assert "of them" not in raised.value.message


def test_no_name_and_no_default_is_the_clients_error() -> None:
    with pytest.raises(LooplineError, match=r"models\.default") as raised:
        Names({}, "").resolve(None, serving("m"))
    assert (raised.value.kind, raised.value.param) == (Kind.MISSING_PARAMETER, "model")
