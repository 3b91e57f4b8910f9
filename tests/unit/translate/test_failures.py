from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import Kind, LooplineError, Retry
from proxy.models.profile import profiles
from proxy.translate.failures import RULES, UNSAID, stream_error, upstream_error
from proxy.wire.error_events import error_event, failed_error
from tests.unit.strategies import dumped, json_values

CAPTURED = Path(__file__).parents[2] / "golden" / "captured"


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
        (408, {"error": {"message": "late", "type": "invalid_request_error"}}, Kind.UPSTREAM_TIMEOUT, "late"),
        (409, {"error": {"message": "conflict", "type": "invalid_request_error"}}, Kind.UPSTREAM_UNAVAILABLE, None),
        (425, b"", Kind.UPSTREAM_UNAVAILABLE, None),
        (499, b"closed", Kind.UPSTREAM_UNAVAILABLE, "closed"),
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


@pytest.mark.parametrize(
    "message",
    [
        # SGLang, older and newer
        "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
        "Input length (9000 tokens) of the multimodal request exceeds the maximum (8186 tokens).",
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        "Input length 9000 exceeds the maximum allowed input length of 8192 tokens.",
        # OpenAI, Groq
        "Input tokens exceed the configured limit of 272000 tokens.",
        "Please reduce the length of the messages or completion.",
    ],
)
def test_a_prompt_that_is_too_long_is_known_by_its_words(message: str) -> None:
    error = {"object": "error", "message": message, "type": "BadRequestError", "code": 400}
    assert failed(400, error).kind is Kind.CONTEXT_LENGTH
    assert stream_error(dumped(error)).kind is Kind.CONTEXT_LENGTH


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
        ({"message": "no", "code": "bio_policy"}, Kind.CONTENT_FILTER, "bio_policy"),
        ({"message": "no", "code": "content_filter"}, Kind.CONTENT_FILTER, "invalid_prompt"),
        ({"message": "no", "type": "invalid_request_error"}, Kind.UPSTREAM_REJECTED, "invalid_prompt"),
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


# --- what every kind of server says -----------------------------------------------------------------------------------


class Said(NamedTuple):
    """An answer of a server, and where it is known from: captured here, read in its sources, documented, reported.

    "in the shape of" means that the shape is known, and that the words are ours.
    """

    status: int
    body: object
    source: str
    param: str | None = None


def captured(name: str) -> tuple[int, bytes]:
    read = json.loads((CAPTURED / "errors" / f"{name}.json").read_bytes())
    return read["status"], read["body"].encode()


SHAPE = "in the shape of its other answers"


def openai(status: int, message: str, code: Any = None, kind: Any = "invalid_request_error", param: Any = None) -> Said:
    error = {"message": message, "type": kind, "param": param, "code": code}
    return Said(status, {"error": error}, "API reference, error codes", param)


def xai(status: int, code: str, message: str, source: str, param: str | None = None) -> Said:
    return Said(status, {"code": code, "error": message}, source, param)


def sglang(status: int, message: str, kind: str = "BadRequestError") -> Said:
    """The shape and the first two messages are from its sources."""
    body = {"object": "error", "message": message, "type": kind, "param": None, "code": status}
    return Said(status, body, "sources, serving_base.py")


def ollama(status: int, message: str, kind: str = "api_error") -> Said:
    error = {"message": message, "type": kind, "param": None, "code": None}
    return Said(status, {"error": error}, "sources, openai.go NewError")


def lmstudio(status: int, message: str, source: str = "bug tracker") -> Said:
    return Said(status, {"error": message}, source)


CONTEXT, QUOTA, LIMIT, BUSY = Kind.CONTEXT_LENGTH, Kind.QUOTA, Kind.UPSTREAM_RATE_LIMITED, Kind.UPSTREAM_UNAVAILABLE
FILTER, MODEL, KEY = Kind.CONTENT_FILTER, Kind.UPSTREAM_NOT_FOUND, Kind.UPSTREAM_UNAUTHORIZED
FIELD = Kind.UNSUPPORTED_PARAMETER
CONDITIONS = (CONTEXT, QUOTA, LIMIT, BUSY, FILTER, MODEL, KEY, FIELD)

# A condition that is not here does not occur: engines know no quota, limits or filters (a gateway before them may);
# vLLM, SGLang, llama.cpp, Ollama and LM Studio ignore fields that they do not know; transformers checks no length.
GRID: dict[str, dict[Kind, Said]] = {
    "openai": {
        CONTEXT: openai(400, "Your input exceeds the context window of this model.", "context_length_exceeded"),
        QUOTA: openai(429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota"),
        LIMIT: openai(429, "Rate limit reached for gpt-5 on tokens per min.", "rate_limit_exceeded", "tokens"),
        BUSY: openai(503, "The engine is currently overloaded, please try again later.", None, "server_error"),
        FILTER: openai(400, "The response was filtered due to the prompt triggering Azure OpenAI's content management "
                            "policy.", "content_filter", None, "prompt"),
        MODEL: openai(404, "The model `nope` does not exist or you do not have access to it.", "model_not_found"),
        KEY: openai(401, "Incorrect API key provided: sk-no.", "invalid_api_key"),
        FIELD: openai(400, "Unsupported parameter: 'max_tokens' is not supported with this model.",
                      "unsupported_parameter", param="max_tokens"),
    },
    "xai": {
        CONTEXT: xai(400, "Client specified an invalid argument",
                     "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
                     "cline/cline#3120"),
        QUOTA: xai(429, "Some resource has been exhausted",
                   "Your team has either used all available credits or reached its monthly spending limit.",
                   "continuedev/continue#10373"),
        LIMIT: xai(429, "Some resource has been exhausted", "Too many requests for team.", SHAPE),
        BUSY: xai(503, "The service is currently unavailable", "The service is at capacity.", SHAPE),
        FILTER: xai(403, "The caller does not have permission to execute the specified operation",
                    "Content violates usage guidelines. Model: grok-4, Failed check: SAFETY_CHECK_TYPE_BIO",
                    "UKGovernmentBEIS/inspect_ai#2267"),
        MODEL: xai(404, "Some requested entity was not found", "The model nope does not exist.", SHAPE),
        KEY: xai(400, "Client specified an invalid argument",
                 "Incorrect API key provided: gs***Q6. You can obtain an API key from https://console.x.ai.",
                 "continuedev/continue#11704"),
        FIELD: xai(400, "Client specified an invalid argument",
                   "Argument not supported on this model: presencePenalty", SHAPE, "presencePenalty"),
    },
    "vllm": {
        CONTEXT: Said(*captured("vllm-chat-context-too-long"), "captured", "input_tokens"),
        BUSY: Said(500, {"error": {"message": "cannot schedule new futures after shutdown",
                                   "type": "InternalServerError", "param": None, "code": 500}}, "observed on SIGTERM"),
        MODEL: Said(*captured("vllm-chat-unknown-model"), "captured", "model"),
        KEY: Said(401, {"error": "Unauthorized"}, "sources, middleware/authenticate.py"),
    },
    "sglang": {
        CONTEXT: sglang(400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
        BUSY: sglang(503, "The request queue is full.", "SERVICE_UNAVAILABLE"),
        MODEL: sglang(404, "The model 'nope' does not exist.", "NotFoundError"),
        KEY: Said(401, {"error": "Unauthorized"}, SHAPE),
    },
    "llamacpp": {
        CONTEXT: Said(*captured("llamacpp-chat-context-too-long"), "captured"),
        BUSY: Said(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, "sources"),
        KEY: Said(401, {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}},
                  "sources"),
    },
    "transformers": {
        BUSY: Said(503, {"error": "The continuous batching worker has died: out of memory"}, SHAPE),
        MODEL: Said(*captured("transformers-chat-unknown-model"), "captured"),
        FIELD: Said(*captured("transformers-chat-unknown-field"), "captured", "cache_salt"),
    },
    "ollama": {
        CONTEXT: ollama(400, "prompt too long; exceeded max context length by 12 tokens", "invalid_request_error"),
        BUSY: ollama(503, "server busy, please try again.  maximum pending requests exceeded"),
        MODEL: ollama(404, 'model "nope" not found, try pulling it first', "not_found_error"),
        KEY: ollama(401, "unauthorized"),
    },
    "lmstudio": {
        CONTEXT: lmstudio(400, "Trying to keep the first 15857 tokens when context the overflows. However, the model "
                               "is loaded with context length of only 4096 tokens, which is not enough."),
        MODEL: lmstudio(400, "No models loaded. Please load a model in the developer page.", SHAPE),
    },
    "generic": {
        CONTEXT: openai(400, "This model's maximum context length is 8192 tokens."),
        QUOTA: Said(402, b"Payment Required", "RFC 9110"),
        LIMIT: Said(429, b"slow down", "RFC 6585"),
        BUSY: Said(529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, "Anthropic, errors"),
        FILTER: openai(400, "Your request was rejected as a result of our safety system."),
        MODEL: openai(404, "no such model"),
        KEY: Said(403, b"Forbidden", "RFC 9110"),
        FIELD: Said(422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"],
                                      "msg": "Extra inputs are not permitted"}]}, "FastAPI", "seed"),
    },
}  # fmt: skip
CELLS = [(name, kind, said) for name, row in GRID.items() for kind, said in row.items()]


@pytest.mark.parametrize(("name", "kind", "said"), CELLS, ids=[f"{name}-{kind}" for name, kind, _ in CELLS])
def test_what_each_server_says_is_understood(name: str, kind: Kind, said: Said) -> None:
    error = failed(said.status, said.body)
    assert (error.kind, error.param) == (kind, said.param)


def test_no_profile_is_without_its_row() -> None:
    assert set(GRID) | {"simulated"} == set(profiles())


@pytest.mark.parametrize(
    ("name", "kind", "code", "param"),
    [
        # llama.cpp
        ("llamacpp-chat-bad-field", Kind.UPSTREAM_REJECTED, None, "temperature"),
        ("llamacpp-chat-no-messages", Kind.UPSTREAM_REJECTED, None, "messages"),
        ("llamacpp-chat-image-not-supported", Kind.UPSTREAM_REJECTED, None, None),
        ("llamacpp-chat-call-arguments-not-json", Kind.UPSTREAM_REJECTED, None, None),
        ("llamacpp-chat-custom-tool", Kind.UPSTREAM_REJECTED, None, None),
        ("llamacpp-chat-output-not-parsed", Kind.UPSTREAM_FAILED, "server_error", None),
        ("llamacpp-responses-unknown-item", Kind.UPSTREAM_REJECTED, None, None),
        ("llamacpp-responses-context-too-long", Kind.CONTEXT_LENGTH, "context_length_exceeded", None),
        ("llamacpp-route-not-found", Kind.UPSTREAM_NOT_FOUND, "model_not_found", None),
        # vLLM
        ("vllm-chat-bad-field", Kind.UPSTREAM_REJECTED, None, "temperature"),
        ("vllm-chat-max-tokens-over-context", Kind.UPSTREAM_REJECTED, None, "max_tokens"),
        ("vllm-chat-tool-choice-unknown-name", Kind.UPSTREAM_REJECTED, None, "tool_choice"),
        ("vllm-responses-bad-role", Kind.UPSTREAM_REJECTED, None, "input"),
        ("vllm-responses-context-too-long", Kind.CONTEXT_LENGTH, "context_length_exceeded", "input_tokens"),
        ("vllm-method-not-allowed", Kind.UPSTREAM_REJECTED, None, None),
        # transformers
        ("transformers-chat-no-messages", Kind.UPSTREAM_FAILED, "server_error", None),
        ("transformers-responses-unknown-field", Kind.UNSUPPORTED_PARAMETER, "unsupported_parameter", "foo"),
        ("transformers-chat-not-json", Kind.UPSTREAM_REJECTED, None, None),
    ],
)
def test_what_servers_really_said_is_understood(name: str, kind: Kind, code: str | None, param: str | None) -> None:
    error = failed(*captured(name))
    assert (error.kind, error.code, error.param) == (kind, code, param)


@pytest.mark.parametrize("name", sorted(file.stem for file in (CAPTURED / "errors").glob("*.json")))
def test_nothing_that_a_server_refused_looks_as_if_it_could_pass(name: str) -> None:
    status, body = captured(name)
    if 400 <= status < 500:
        assert failed(status, body).retry is Retry.NEVER


@pytest.mark.parametrize("name", ["llamacpp-chat-error-in-stream", "llamacpp-responses-error-in-stream"])
def test_what_a_server_really_said_inside_a_stream_is_understood(name: str) -> None:
    last = (CAPTURED / "streams" / f"{name}.sse").read_bytes().rstrip().rpartition(b"data: ")[2]
    error = stream_error(dumped(json.loads(last)["error"]))
    assert (error.kind, error.cause) == (Kind.UPSTREAM_FAILED, "upstream status 500")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        # vLLM, its worker killed
        ({"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.",
          "type": "InternalServerError", "param": None, "code": 500}, Kind.UPSTREAM_UNAVAILABLE),
        ({"object": "error", "message": "The request queue is full.", "code": 503}, Kind.UPSTREAM_UNAVAILABLE),
        # LM Studio says so with 200
        ({"message": "The number of tokens to keep from the initial prompt is greater than the context length."},
         Kind.CONTEXT_LENGTH),
        ("Trying to keep the first 10136 tokens when context the overflows.", Kind.CONTEXT_LENGTH),
        ({"message": "Rate limit reached for gpt-5. Please try again in 2s."}, Kind.UPSTREAM_RATE_LIMITED),
        ({"type": "overloaded_error", "message": "Overloaded"}, Kind.UPSTREAM_UNAVAILABLE),
        ({"message": "Content violates usage guidelines."}, Kind.CONTENT_FILTER),
        ({"message": "boom"}, Kind.UPSTREAM_FAILED),
    ],
)  # fmt: skip
def test_a_stream_says_it_with_words_where_it_has_no_status(error: object, kind: Kind) -> None:
    assert stream_error(dumped(error)).kind is kind


@pytest.mark.parametrize("rule", RULES, ids=[f"{number}-{rule.kind}" for number, rule in enumerate(RULES)])
def test_every_rule_is_the_first_for_something(rule: Any) -> None:
    """No rule is dead: an error made of its own words, codes or statuses finds it."""
    statuses = sorted(rule.statuses) or [400]
    words = [
        found for pattern in ([rule.says.pattern] if rule.says else []) for found in SAMPLES if rule.says.search(found)
    ]
    assert words or rule.says is None, f"no sample for {rule.says.pattern}"
    tries = [(status, name, "x") for status in statuses for name in rule.names]
    tries += [(status, "", text) for status in (*statuses, UNSAID) for text in words]
    tries += [(status, "", "x") for status in statuses if rule.says is None and not rule.names]
    first = [next(r for r in RULES if r.fits(status, frozenset({name}), text)) for status, name, text in tries]
    assert rule in first


SAMPLES = (
    "Content violates usage guidelines", "You exceeded your current quota", "The request queue is full",
    "Rate limit reached", "maximum context length", "Incorrect API key provided", "Server is pinned to 'm'",
    "Not Found", "Unexpected fields in the request: {'x'}", "image input is not supported",
)  # fmt: skip


def test_a_url_that_is_wrong_is_told_with_the_remedy() -> None:
    for body in ({"detail": "Not Found"}, {"error": {"message": "File Not Found", "code": 404}}):
        assert "endpoints.url" in failed(404, body).message
    assert "endpoints.url" not in failed(404, {"error": {"message": "The model `m` does not exist."}}).message


def test_a_refused_prompt_gets_the_code_that_the_responses_api_has_for_it() -> None:
    azure = failed(400, {"error": {"message": "filtered", "code": "content_filter"}})
    assert (azure.code, json.loads(failed_error(azure))["code"]) == ("invalid_prompt", "invalid_prompt")
    for code in ("bio_policy", "misalignment_policy_violation", "image_content_policy_violation"):
        own = failed(400, {"error": {"message": "no", "code": code}})
        assert (own.kind, own.code, json.loads(failed_error(own))["code"]) == (Kind.CONTENT_FILTER, code, code)


def test_what_a_client_wrote_and_a_server_quotes_decides_nothing() -> None:
    quoted = "1 validation error: " + "x" * 400 + " 'input': 'the context window was too small'"
    assert failed(400, {"error": {"message": quoted}}).kind is Kind.UPSTREAM_REJECTED


@pytest.mark.parametrize(
    ("headers", "message", "seconds"),
    [
        ({}, "Please try again in 2s.", 2.0),
        ({}, "Please try again in 1m30.5s. Visit", 90.5),
        ({}, "try again in 20ms", 0.02),
        ({}, "Please retry after 20 seconds.", 20.0),
        ({}, "Please retry your request after 250 milliseconds.", 0.25),
        ({}, "Please try again later.", None),
        ({"x-ratelimit-reset-requests": "6m0s"}, "slow", 360.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "3s"}, "slow", 3.0),
        ({"x-ratelimit-remaining-requests": "10", "x-ratelimit-reset-requests": "9s",
          "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "3s"}, "slow", 3.0),
        ({"retry-after": "7", "x-ratelimit-reset-tokens": "3s"}, "try again in 2s", 7.0),
        ({"x-ratelimit-reset-tokens": "soon"}, "slow", None),
    ],
)  # fmt: skip
def test_when_to_try_again_is_read_wherever_it_is_said(
    headers: dict[str, str], message: str, seconds: float | None
) -> None:
    told = upstream_error(429, headers, dumped({"error": {"message": message}})).retry_after_s
    assert told == (None if seconds is None else pytest.approx(seconds))


def test_what_cannot_pass_names_no_time_of_its_own() -> None:
    assert failed(400, {"error": {"message": "bad, try again in 2s"}}).retry_after_s is None
    assert stream_error(dumped({"message": "slow", "code": 429})).retry_after_s is None
    assert stream_error(dumped({"message": "try again in 2s", "code": 429})).retry_after_s == 2.0


def test_what_to_do_about_a_prompt_too_long_is_told_inside_a_stream_too() -> None:
    error = stream_error(dumped({"message": "too long", "code": "context_length_exceeded"}), "Do this.")
    assert (error.message, error.code) == ("too long. Do this.", "invalid_prompt")


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
