"""What a caller with a key of this server may have passed on."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from proxy.access.passing import (
    _ABOUT_BODIES,
    _OVERRIDES,
    check_path,
    check_query,
    checked_json,
    is_plain_json,
    overrides,
)
from proxy.errors import Kind, LooplineError
from proxy.settings import Passthrough

PATHS = Passthrough().paths


@dataclass(frozen=True)
class Key:
    models: Collection[str] | None = ("small", "large")
    is_own_key: bool = True

    def allows(self, model: str) -> bool:
        return self.models is None or model in self.models


ALIASES = {"large": "org/large-1"}


def resolve(name: str) -> str:
    return ALIASES.get(name, name)


@pytest.mark.parametrize(
    "path",
    ["chat/completions", "completions", "embeddings", "audio/speech", "audio/transcriptions", "images/generations",
     "moderations", "rerank", "score", "tokenize"],
)  # fmt: skip
def test_paths_of_the_list(path: str) -> None:
    check_path(path, PATHS)


@pytest.mark.parametrize(
    "path",
    ["files", "fine_tuning/jobs", "audio", "audio/", "chat", "chat/completions/", "chat/completions/x", "Embeddings",
     "embeddings%20", "audio/%73peech", "", "embeddings;x", "audio/a;b", "load_lora_adapter", "embeddings/../files"],
)  # fmt: skip
def test_other_paths(path: str) -> None:
    with pytest.raises(LooplineError) as caught:
        check_path(path, PATHS)
    assert caught.value.kind is Kind.FORBIDDEN
    assert "passthrough.paths" in caught.value.message


def test_a_body_whose_model_needs_no_other_name_is_sent_byte_for_byte() -> None:
    body = b' {"input" : "a\\u00e9" ,\n"model":\t"small", "n": 1.0e0, "big": 123456789012345678901234567890}'
    assert checked_json(body, Key(), resolve) == body


def test_an_alias_changes_the_models_bytes_alone() -> None:
    body = b'{"a":1e2 , "model" : "large","b":"x"}'
    assert checked_json(body, Key(), resolve) == b'{"a":1e2 , "model" : "org/large-1","b":"x"}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"secret","model":"small"}',
        b'{"mod\\u0065l":"secret","model":"small"}',
        b'{"\\u006dodel":"secret","model":"small"}',
        b'{"model":"small","x":{"model":"secret"}}',
        b'{"x":"\\"model\\":\\"secret\\"","model":"small"}',
    ],
)
def test_what_is_sent_names_one_model_the_one_that_was_checked(body: bytes) -> None:
    made = checked_json(body, Key(), resolve)
    pairs: list[list[tuple[str, Any]]] = []

    def keep(each: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs.append(each)
        return dict(each)

    json.loads(made, object_pairs_hook=keep)
    assert [value for name, value in pairs[-1] if name == "model"] == ["small"]
    assert json.loads(made) == json.loads(body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"model":"secret"}', Kind.MODEL_NOT_FOUND),
        (b'{"model":"small","model":"secret"}', Kind.MODEL_NOT_FOUND),
        (b'{"model":"small","mod\\u0065l":"secret"}', Kind.MODEL_NOT_FOUND),
        (b'{"Model":"small"}', Kind.MISSING_PARAMETER),
        (b'{"x":{"model":"small"}}', Kind.MISSING_PARAMETER),
        (b'{"model":null}', Kind.INVALID_REQUEST),
        (b'{"model":["small"]}', Kind.INVALID_REQUEST),
        (b'["small"]', Kind.INVALID_REQUEST),
        (b'{"model":"small"', Kind.INVALID_JSON),
        (b"", Kind.INVALID_JSON),
        (b'\xff{"model":"small"}', Kind.INVALID_UNICODE),
        (b'{"model":"small","x":' + b"[" * 100_000, Kind.TOO_DEEP),
    ],
)
def test_bodies_that_are_refused(body: bytes, kind: Kind) -> None:
    with pytest.raises(LooplineError) as caught:
        checked_json(body, Key(), resolve)
    assert caught.value.kind is kind


def test_a_key_for_every_model() -> None:
    assert checked_json(b'{"model":"any"}', Key(models=None), resolve) == b'{"model":"any"}'


@pytest.mark.parametrize(
    "name",
    ["x-original-url", "x-rewrite-url", "x-http-method-override", "x-method-override", "x-http-method",
     "x_http_method_override", "x-http_method-override", "x-forwarded-prefix", "content_type", "content_length",
     "content_encoding", "transfer_encoding"],
)  # fmt: skip
def test_headers_that_some_server_believes_more_than_what_was_checked(name: str) -> None:
    assert overrides(name)


@pytest.mark.parametrize(
    "name", ["content-type", "content-length", "accept", "openai-beta", "session_id", "x-stainless-lang", "user-agent"]
)
def test_headers_that_stay(name: str) -> None:
    assert not overrides(name)


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8" '],
)
def test_json_that_everybody_reads_alike(content_type: str) -> None:
    assert is_plain_json(content_type)


@pytest.mark.parametrize(
    "content_type",
    ["", "text/json", "application/json; charset=utf-7", "application/json; charset=utf-16", "application/jsonp",
     "application/json, text/plain", "application/json; charset=utf-8; charset=utf-7", "application/json; boundary=a"],
)  # fmt: skip
def test_json_that_somebody_reads_otherwise(content_type: str) -> None:
    assert not is_plain_json(content_type)


@pytest.mark.parametrize(
    "query", ["model=a", "a=1&Model=b", "a=1;model=b", "%6dodel=a", "model", "model[]=a", "+model=a", "_method=PUT"]
)
def test_an_address_that_names_a_model_or_a_method_is_refused(query: str) -> None:
    with pytest.raises(LooplineError) as caught:
        check_query(query)
    assert caught.value.kind is Kind.INVALID_REQUEST


@pytest.mark.parametrize("query", ["", "api-version=1", "a=model", "models=a", "a=1&&b", "amodel=1"])
def test_other_addresses_pass(query: str) -> None:
    check_query(query)


def test_the_headers_that_are_dropped_are_those_of_the_docs() -> None:
    text = (Path(__file__).parents[3] / "docs" / "passthrough.md").read_text()
    table = text.partition("| header | what a server may take from it |")[2].partition("\n\n")[0]
    named = {name.lower() for name in re.findall(r"`([\w-]+)`", table)}
    assert named == {*_OVERRIDES, *_ABOUT_BODIES}
