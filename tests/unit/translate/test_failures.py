from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError
from proxy.translate.failures import stream_error, upstream_error
from proxy.wire.error_events import error_event, failed_error
from tests.unit.strategies import dumped, json_values


def failed(status: int, body: object, **headers: str) -> LooplineError:
    data = body if isinstance(body, bytes) else dumped(body)
    return upstream_error(status, {name.replace("_", "-"): value for name, value in headers.items()}, data)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        # OpenAI, vLLM
        (400, {"error": {"message": "bad", "type": "BadRequestError", "code": 400}}, Kind.UPSTREAM_REJECTED, "bad"),
        (404, {"error": {"message": "none", "type": "NotFoundError", "code": 404}}, Kind.UPSTREAM_NOT_FOUND, "none"),
        (400, {"error": {"message": "maximum context length is 8 tokens", "code": 400}}, Kind.CONTEXT_LENGTH, None),
        (429, {"error": {"message": "quota", "code": "insufficient_quota"}}, Kind.QUOTA, "quota"),
        (500, {"error": {"message": "slow", "type": "rate_limit_error"}}, Kind.UPSTREAM_RATE_LIMITED, "slow"),
        # llama.cpp
        (400, {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}}, Kind.CONTEXT_LENGTH, None),
        (503, {"error": {"code": 503, "message": "Loading model"}}, Kind.UPSTREAM_UNAVAILABLE, "Loading model"),
        # transformers, frameworks
        (422, {"detail": "Unexpected fields"}, Kind.UPSTREAM_REJECTED, "Unexpected fields"),
        (405, {"detail": "Method Not Allowed"}, Kind.UPSTREAM_REJECTED, "Method Not Allowed"),
        (422, {"detail": [{"loc": ["body"], "msg": "x"}]}, Kind.UPSTREAM_REJECTED, '[{"loc": ["body"], "msg": "x"}]'),
        (500, b"Internal Server Error", Kind.UPSTREAM_FAILED, "Internal Server Error"),
        # older vLLM, others
        (400, {"object": "error", "message": "flat"}, Kind.UPSTREAM_REJECTED, "flat"),
        (400, {"error": "just text"}, Kind.UPSTREAM_REJECTED, "just text"),
        (401, {"error": {"message": "key"}}, Kind.UPSTREAM_UNAUTHORIZED, "key"),
        (403, b"", Kind.UPSTREAM_UNAUTHORIZED, None),
        (413, b"too large", Kind.CONTEXT_LENGTH, "too large"),
        (504, b"<html>", Kind.UPSTREAM_TIMEOUT, "<html>"),
        (529, b"busy", Kind.UPSTREAM_UNAVAILABLE, "busy"),
        (302, b"", Kind.UPSTREAM_FAILED, None),
        (418, b"teapot", Kind.UPSTREAM_REJECTED, "teapot"),
    ],
)  # fmt: skip
def test_what_engines_say_is_understood(status: int, body: object, kind: Kind, message: str | None) -> None:
    error = failed(status, body)
    assert error.kind is kind
    assert error.message == message or message is None
    assert error.message
    assert error.cause == f"upstream status {status}"


def test_the_field_at_fault_is_passed_on() -> None:
    assert failed(400, {"error": {"message": "bad", "param": "temperature"}}).param == "temperature"
    assert failed(400, {"error": {"message": "bad", "param": None}}).param is None


@pytest.mark.parametrize(
    ("code", "kept"),
    [("invalid_image_url", "invalid_image_url"), (400, None), ("BadRequestError", None), (None, None), ("", None)],
)
def test_a_code_is_kept_where_clients_may_know_it(code: Any, kept: str | None) -> None:
    assert failed(400, {"error": {"message": "bad", "code": code}}).code == kept


def test_a_transient_failure_never_gets_a_code_that_stops_clients() -> None:
    for status in (429, 500, 502, 503, 504):
        error = failed(status, {"error": {"message": "x", "code": "server_is_overloaded"}})
        assert error.code in ("server_error", "rate_limit_exceeded")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "9"}, 1.5),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "inf"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "1e9"}, None),
        ({}, None),
    ],
)
def test_how_long_to_wait_is_passed_on(headers: dict[str, str], seconds: float | None) -> None:
    error = failed(429, {"error": {"message": "slow"}}, **headers)
    assert error.retry_after_s == seconds
    assert json.loads(error_event(error))


def test_what_to_do_about_a_prompt_that_is_too_long_is_told_with_it() -> None:
    body = dumped({"error": {"message": "too long", "code": "context_length_exceeded"}})
    assert upstream_error(400, {}, body, "Do this.").message == "too long. Do this."
    assert upstream_error(400, {}, dumped({"error": {"message": "bad"}}), "Do this.").message == "bad"


def test_a_long_message_is_cut() -> None:
    assert len(failed(400, {"error": {"message": "x" * 100_000, "param": "y" * 100_000}}).message) <= 2000
    assert len(failed(400, b"x" * 100_000).message) <= 2000
    assert len(failed(400, {"error": {"message": "m", "param": "y" * 100_000}}).param or "") <= 200


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        ({"message": "died", "code": 500}, Kind.UPSTREAM_FAILED, "server_error"),
        ({"message": "no", "code": 400}, Kind.UPSTREAM_REJECTED, "invalid_prompt"),
        ({"message": "no", "code": "400"}, Kind.UPSTREAM_REJECTED, "invalid_prompt"),
        ({"message": "no", "code": 7}, Kind.UPSTREAM_FAILED, "server_error"),
        ({"message": "no", "code": "invalid_prompt"}, Kind.UPSTREAM_REJECTED, "invalid_prompt"),
        ({"message": "no", "code": "bio_policy"}, Kind.UPSTREAM_REJECTED, "bio_policy"),
        ({"message": "no", "code": "server_error"}, Kind.UPSTREAM_FAILED, "server_error"),
        ({"message": "no", "code": "rate_limit_exceeded"}, Kind.UPSTREAM_RATE_LIMITED, "rate_limit_exceeded"),
        ({"message": "no", "code": "context_length_exceeded"}, Kind.CONTEXT_LENGTH, "context_length_exceeded"),
        (None, Kind.UPSTREAM_FAILED, "server_error"),
    ],
)
def test_an_error_inside_a_stream(error: object, kind: Kind, code: str) -> None:
    raised = stream_error(dumped(error))
    assert raised.kind is kind
    assert json.loads(failed_error(raised))["code"] == code


WORDS = ("error", "message", "type", "param", "code", "detail", "insufficient_quota", "server_error")


@given(st.integers(300, 599), st.one_of(json_values(*WORDS).map(dumped), st.binary(max_size=60)))
@settings(deadline=None, max_examples=100)
def test_any_answer_that_is_no_success_is_a_failure_that_can_be_told(status: int, body: bytes) -> None:
    for error in (upstream_error(status, {}, body), stream_error(body)):
        assert error.message
        assert json.loads(error_event(error))
        assert json.loads(failed_error(error))


@pytest.mark.parametrize(
    "body",
    [b'{"error":' + b"[" * 100_000, b'{"error":{"code":' + b"9" * 10_000 + b"}}", b'{"error":{"message":"\\ud800"}}'],
)
def test_malformed_errors_are_told_all_the_same(body: bytes) -> None:
    assert failed(500, body).kind is Kind.UPSTREAM_FAILED
    assert json.loads(error_event(failed(500, body)))
