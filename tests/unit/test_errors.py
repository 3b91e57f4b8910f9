import pytest

from proxy.errors import TABLE, Kind, LooplineError, Retry, Source

# What clients retry, or wait for, by what they see: protocol.md 5.6, 6 and 8.
TRANSIENT = {408, 429, 500, 502, 503, 504}


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_a_row_that_reaches_the_error(kind: Kind) -> None:
    row = TABLE[kind]
    error = LooplineError(kind, "why", cause="for the log")
    assert (error.source, error.retry, error.type, error.code, error.status, error.close) == tuple(row)
    assert str(error) == error.message == "why"
    assert kind.value in repr(error)


def test_no_row_is_left_over() -> None:
    assert set(TABLE) == set(Kind)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_failure_that_may_pass_looks_so_to_clients(kind: Kind) -> None:
    row = TABLE[kind]
    if kind is Kind.QUOTA:  # OpenAI's own pair: a 429 that does not pass, told by its code
        assert (row.status, row.code, row.retry) == (429, "insufficient_quota", Retry.NEVER)
    elif kind is Kind.CONNECTION_LIMIT:  # OpenAI's own pair again: a 400 that passes on a new connection
        assert (row.status, row.code, row.retry) == (400, "websocket_connection_limit_reached", Retry.LATER)
    else:
        assert (row.retry is Retry.LATER) == (row.status in TRANSIENT)


@pytest.mark.parametrize("kind", list(Kind))
def test_the_status_says_whose_fault_it_is(kind: Kind) -> None:
    row = TABLE[kind]
    if row.source is Source.CLIENT:
        assert 400 <= row.status < 500
    elif row.status != 429 and kind is not Kind.CONNECTION_LIMIT:  # whose status is OpenAI's
        assert row.status >= 500
    assert row.type == "server_error" or row.status < 500


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [
        (Kind.PARENT_NOT_FOUND, "previous_response_not_found", 400),
        (Kind.INVALID_STREAM_ID, "invalid_stream_id", 400),
        (Kind.STREAM_LIMIT, "websocket_stream_limit_reached", 400),
        (Kind.CONNECTION_LIMIT, "websocket_connection_limit_reached", 400),
        (Kind.RESPONSE_NOT_RUNNING, "response_not_found", 404),
        (Kind.CONTEXT_LENGTH, "context_length_exceeded", 400),
        (Kind.UPSTREAM_RATE_LIMITED, "rate_limit_exceeded", 429),
        (Kind.WEBSOCKET_OFF, "websocket_disabled", 426),
    ],
)
def test_what_clients_key_on_is_spelled_exactly(kind: Kind, code: str, status: int) -> None:
    assert (TABLE[kind].code, TABLE[kind].status) == (code, status)


def test_no_code_stops_codex_over_something_that_passes() -> None:
    assert not any(row.code in ("server_is_overloaded", "slow_down") for row in TABLE.values())


def test_close_codes_are_those_of_their_standard() -> None:
    assert {kind: row.close for kind, row in TABLE.items() if row.close is not None} == {
        Kind.MESSAGE_TOO_LARGE: 1009,
        Kind.CONNECTION_LIMIT: 1001,
        Kind.CLIENT_STALLED: 1008,
        Kind.SHUTTING_DOWN: 1012,
        Kind.UNAUTHORIZED: 1008,
        Kind.SLOW_SENDER: 1008,
    }


def test_an_upstreams_own_code_is_kept() -> None:
    assert LooplineError(Kind.UPSTREAM_REJECTED, "no", code="invalid_image").code == "invalid_image"
    assert LooplineError(Kind.UPSTREAM_RATE_LIMITED, "no", code=None).code == "rate_limit_exceeded"
