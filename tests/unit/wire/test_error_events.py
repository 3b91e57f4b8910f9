from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseError, ResponseErrorEvent
from openai.types.responses.responses_server_event import ResponseWsError

from proxy.errors import Kind, LooplineError
from proxy.wire.error_events import error_body, error_event, failed_error, retry_headers
from tests.conformance.schema import EXTRA_FAILED_CODES, check_event
from tests.unit.strategies import TEXT

ERRORS = st.builds(
    LooplineError,
    st.sampled_from(Kind),
    TEXT.filter(bool),
    param=st.one_of(st.none(), TEXT),
    code=st.one_of(st.none(), TEXT),
    retry_after_s=st.one_of(st.none(), st.floats(0, 86400)),
    cause=TEXT,
)


@given(ERRORS)
@settings(deadline=None, max_examples=60)
def test_one_event_holds_every_shape_that_clients_read(error: LooplineError) -> None:
    event: dict[str, Any] = json.loads(error_event(error))
    nested = event["error"]
    assert event["type"] == "error"
    assert type(event["status"]) is int
    assert event["status"] == error.status
    assert (nested["type"], nested["code"], nested["message"], nested["param"]) == (
        error.type, error.code, error.message, error.param,
    )  # fmt: skip
    assert {name: event[name] for name in ("code", "message", "param")} == {
        name: nested[name] for name in ("code", "message", "param")
    }
    headers = {"retry-after": str(-int(-error.retry_after_s // 1))} if error.retry_after_s is not None else None
    assert event.get("headers") == nested.get("headers") == headers
    check_event(event)
    check_event(event, transport="sse")


@pytest.mark.parametrize("kind", list(Kind))
def test_openai_types_read_the_same_from_it(kind: Kind) -> None:
    error = LooplineError(kind, "why", param="input", retry_after_s=2)
    data = error_event(error)
    over_socket = ResponseWsError.model_validate_json(data, strict=True)
    assert (over_socket.status, over_socket.error.code, over_socket.error.message) == (error.status, error.code, "why")
    assert over_socket.error.headers == {"retry-after": "2"}
    over_sse = ResponseErrorEvent.model_validate_json(data, strict=True)
    assert (over_sse.code, over_sse.message, over_sse.param) == (error.code, "why", "input")


@pytest.mark.parametrize("kind", list(Kind))
def test_a_failed_response_has_a_code_that_the_types_list(kind: Kind) -> None:
    failed = json.loads(failed_error(LooplineError(kind, "why")))
    if failed["code"] not in EXTRA_FAILED_CODES:
        ResponseError.model_validate(failed, strict=True)
    assert failed["message"] == "why"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LooplineError(Kind.CONTEXT_LENGTH, "x"), "context_length_exceeded"),
        (LooplineError(Kind.QUOTA, "x"), "insufficient_quota"),
        (LooplineError(Kind.UPSTREAM_RATE_LIMITED, "x"), "rate_limit_exceeded"),
        (LooplineError(Kind.UPSTREAM_CLOSED, "x"), "server_error"),
        (LooplineError(Kind.UPSTREAM_REJECTED, "x"), "invalid_prompt"),
        (LooplineError(Kind.UPSTREAM_REJECTED, "x", code="bio_policy"), "bio_policy"),
        (LooplineError(Kind.UPSTREAM_REJECTED, "x", code="unheard_of"), "invalid_prompt"),
        (LooplineError(Kind.INTERNAL, "x"), "server_error"),
    ],
)  # fmt: skip
def test_whether_codex_tries_again_follows_the_failure(error: LooplineError, code: str) -> None:
    assert json.loads(failed_error(error))["code"] == code


def test_the_body_of_an_http_error_is_openais_and_tells_no_cause() -> None:
    body = error_body(LooplineError(Kind.INVALID_REQUEST, "why", param="input", cause="secret"))
    assert json.loads(body) == {
        "error": {"type": "invalid_request_error", "code": None, "message": "why", "param": "input"}
    }


@pytest.mark.parametrize(("seconds", "header"), [(0.0, "0"), (0.001, "1"), (1.0, "1"), (1.01, "2"), (86400.0, "86400")])
def test_retry_after_is_whole_seconds_and_never_too_early(seconds: float, header: str) -> None:
    assert retry_headers(LooplineError(Kind.QUEUE_FULL, "x", retry_after_s=seconds)) == {"retry-after": header}
    assert retry_headers(LooplineError(Kind.QUEUE_FULL, "x")) == {}
