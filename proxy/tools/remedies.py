"""What each kind of failure means and what helps, in the words of docs/errors.md; one entry for each `Kind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from proxy.errors import Kind


class Remedy(NamedTuple):
    """Markdown for two cells of a table; settings by their keys."""

    means: str
    remedy: str


REMEDIES: Mapping[Kind, Remedy] = {
    Kind.INVALID_JSON: Remedy("A message or body is not JSON.", "Send one JSON object in each message."),
    Kind.INVALID_UNICODE: Remedy(
        "A text is not valid UTF-8, or holds half a surrogate pair.", "Encode as UTF-8; replace lone surrogates."
    ),
    Kind.TOO_DEEP: Remedy("The JSON is nested too deeply to be read.", "Flatten it; send nested data as a string."),
    Kind.BINARY_FRAME: Remedy("A WebSocket message was binary.", "Send text messages."),
    Kind.MESSAGE_TOO_LARGE: Remedy(
        "A message or body is above `limits.frame_bytes` or the key's own bound. The socket is closed only above "
        "`limits.frame_hard_bytes`.",
        "Send less, or raise the bound.",
    ),
    Kind.HISTORY_TOO_LARGE: Remedy(
        "The conversation is above `limits.history_bytes` or the key's own bound.",
        "Begin a new conversation with what matters of this one, or raise the bound.",
    ),
    Kind.UNKNOWN_EVENT: Remedy(
        "The `type` of a message is none that clients send.", "See the [messages](lanes.md); mind the client's version."
    ),
    Kind.INVALID_REQUEST: Remedy(
        "A field has a value that it cannot have; `param` names it. The code may be a more exact one.",
        "Correct the field.",
    ),
    Kind.MISSING_PARAMETER: Remedy("A field that is needed is not there; `param` names it.", "Add it."),
    Kind.UNSUPPORTED_PARAMETER: Remedy(
        "A field is known, but cannot be served here or by this upstream; `param` names it.", "Leave it out."
    ),
    Kind.UNSUPPORTED_MEDIA: Remedy(
        "The `Content-Type` or `Content-Encoding` of a body is none that is read.",
        "`application/json`; zstd, gzip, deflate or nothing.",
    ),
    Kind.PARENT_NOT_FOUND: Remedy(
        "`previous_response_id` names nothing that is held: another socket's with `store: false`, another tenant's, "
        "deleted, forgotten (`store.ttl_s`, `store.memory_bytes`), or from before a restart.",
        "Send the full input without an id. Codex and pi do so by themselves.",
    ),
    Kind.UNPAIRED_CALL: Remedy(
        "An output answers no call of the conversation, or a call has no output.",
        "Send the outputs of all calls of the response before, each once.",
    ),
    Kind.MODEL_NOT_FOUND: Remedy(
        "The upstream does not serve the model, or the key may not use it; the message lists those that there are.",
        "Name one of them, or set `models.aliases` or `models.default`.",
    ),
    Kind.INVALID_STREAM_ID: Remedy("`stream_id` is not a name of a lane.", "See [lanes](lanes.md) for the form."),
    Kind.STREAM_LIMIT: Remedy(
        "A socket has used as many lanes as it may (`limits.lanes`, or the key's).", "Use one of them again."
    ),
    Kind.CONNECTION_LIMIT: Remedy(
        "The socket has lived its time (`server.lifetime_s`).",
        "Connect again; with `store: false` send the full input. Clients do so by themselves.",
    ),
    Kind.RESPONSE_NOT_RUNNING: Remedy(
        "What is to be cancelled or steered does not run on this socket.", "Nothing, if it has just ended."
    ),
    Kind.QUEUE_FULL: Remedy(
        "Too much waits on this socket (`limits.queued_turns`, `limits.queued_bytes`), or runs in the background "
        "(`limits.background_turns`).",
        "Wait for a response to end.",
    ),
    Kind.UNAUTHORIZED: Remedy(
        "The key is missing, unknown, revoked or over; all four look the same.",
        "A key of `loopline keys create` as bearer; `loopline keys list` shows which count.",
    ),
    Kind.RATE_LIMITED: Remedy(
        "The key, or all together, are at a limit: turns at once, requests or tokens a minute.",
        "Wait as long as `Retry-After` says, or raise the limit ([security](security.md#client-keys)).",
    ),
    Kind.OVERLOADED: Remedy(
        "No memory for more work (`limits.memory_bytes`, `access.memory_bytes`), or too many connections.",
        "Clients try again; if it lasts, raise the bound or serve with more replicas.",
    ),
    Kind.SLOW_SENDER: Remedy(
        "A message or body was not whole within `server.receive_s`.", "Look at the client's link; raise the time."
    ),
    Kind.FORBIDDEN: Remedy(
        "The `Host` is not a loopback name and there are no client keys; or the browser's `Origin` is not listed; or a "
        "path is not passed on for keys.",
        "Client keys or `server.insecure`; `server.allowed_origins`; `passthrough.paths`.",
    ),
    Kind.WEBSOCKET_OFF: Remedy(
        "`server.websocket` is false, or the request is no upgrade to WebSocket version 13. Codex and pi take HTTP.",
        "Switch it on, or use POST. A proxy in front may have dropped the upgrade: "
        "[operations](operations.md#behind-a-reverse-proxy).",
    ),
    Kind.NOT_FOUND: Remedy("There is nothing at this path, or no such response.", "See the [routes](http.md)."),
    Kind.CLIENT_STALLED: Remedy(
        "The client has read nothing for `server.client_stall_s` while an answer was sent.",
        "Read; or raise the time.",
    ),
    Kind.CANCELLED: Remedy("The client cancelled the response.", "Nothing."),
    Kind.SHUTTING_DOWN: Remedy(
        "Loopline was told to stop: no new work, and what runs is ended after `server.drain_grace_s`.",
        "Connect again; a load balancer that asks `/readyz` sends elsewhere.",
    ),
    Kind.UPSTREAM_UNREACHABLE: Remedy(
        "No connection to the upstream: name, address, TLS, or `upstream.connect_timeout_s`.",
        "Is it running, and is `endpoints.url` right? The log's `cause` says what failed.",
    ),
    Kind.UPSTREAM_TIMEOUT: Remedy(
        "The upstream was silent for `upstream.first_byte_timeout_s`, or for `upstream.idle_timeout_s` within its "
        "answer.",
        "Look at its queue; raise the time for long prompts.",
    ),
    Kind.UPSTREAM_CLOSED: Remedy(
        "The upstream ended the connection, or its answer, before it was whole.", "Look at the upstream's own log."
    ),
    Kind.UPSTREAM_GARBLED: Remedy(
        "The upstream's answer is not HTTP, not events, not JSON, or larger than `upstream.max_event_bytes`.",
        "Is it the right server, port and `endpoints.dialect`? The log's `cause` says what was wrong.",
    ),
    Kind.UPSTREAM_FAILED: Remedy("The upstream said that it failed.", "Look at the upstream's own log."),
    Kind.UPSTREAM_REJECTED: Remedy(
        "The upstream refused the request; its words are the message, its code and `param` are kept.",
        "Correct the request; a field it does not know may want another [profile](upstreams.md).",
    ),
    Kind.UPSTREAM_UNAUTHORIZED: Remedy(
        "The upstream refused the credential: the endpoint's key, or the client's own.",
        "`endpoints.api_key_env`; or the client's key, where it is passed on (`endpoints.client_credentials`).",
    ),
    Kind.UPSTREAM_NOT_FOUND: Remedy(
        "The upstream has no such model, or no such path.", "Is the model served? Does `endpoints.url` end in `/v1`?"
    ),
    Kind.UPSTREAM_RATE_LIMITED: Remedy("The upstream is at its rate limit.", "Clients wait and try again."),
    Kind.UPSTREAM_UNAVAILABLE: Remedy("The upstream is overloaded, starting or stopping.", "Clients try again."),
    Kind.CONTEXT_LENGTH: Remedy(
        "The prompt is longer than the model's context.", "Compact the conversation, or take a model with more."
    ),
    Kind.CONTENT_FILTER: Remedy("A policy of the upstream refused the content.", "Say it in other words."),
    Kind.QUOTA: Remedy("The account at the upstream is used up.", "Raise the quota there; waiting does not help."),
    Kind.INTERNAL: Remedy(
        "A defect of Loopline. The log's line `crashed` has the exception's class and place.",
        "Try again, and report it with that line.",
    ),
}
