"""Every metric there is: name, type, labels, unit and meaning. docs/metrics.md is written from this table.

Names are `loopline_<layer>_<what>_<unit>`. Labels come from closed sets, never from what a client sends.
"""

from __future__ import annotations

from proxy.telemetry.numbers import Family

MAX_MODELS = 100
NONE, OTHER = "none", "other"

# From a tenth of a millisecond, which a delta turn costs here, to the minutes that a long answer takes.
SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
)  # fmt: skip

_ENDPOINT = "the endpoints' names in the settings, `none` where no endpoint was chosen"
_MODEL = (
    "names of models that the upstream lists or that the settings name, as the upstream calls them; "
    f"`other` for any other, and from the {MAX_MODELS + 1}st on"
)
_TRANSPORT = "`websocket`, `http`"
_DIALECT = "`chat`, `responses`, `none` where no endpoint was chosen"
_KIND = "the kinds of failure in `proxy/errors.py`"
_MODELS = {"endpoint": _ENDPOINT, "model": _MODEL}
_CACHE = {
    "cache": "`store` (stored responses), `catalog` (what upstreams serve), `terms` (what clients repeat, parsed), "
    "`tools` (tools, read); of whole histories `items` and `items_stored` (items, read), `fragments` and "
    "`fragments_stored` (runs of them, translated); to find which turn they go on from `chains` and `chains_stored` "
    "(what was said), `left` (of sockets that are gone), `places`, `answers` and `digests`, `ends` (when it ended)"
}
_ANSWERED = "Of turns that were answered (completed or incomplete), warm-ups aside."

BUILD_INFO = Family("loopline_build_info", "gauge", "The version that runs, as a label.", {"version": "the version"})
CRASHES = Family("loopline_process_crashes_total", "counter", "Errors of Loopline itself.")
LOOP_LAG = Family(
    "loopline_process_loop_lag_seconds",
    "histogram",
    "How late a timer fired that is set once a second: what everything on the event loop waits.",
    unit="seconds",
    bounds=SECONDS,
)
TASKS = Family("loopline_process_tasks", "gauge", "Tasks of the event loop that have not ended.")
MEMORY_USED = Family(
    "loopline_memory_used_bytes",
    "gauge",
    "What running turns, queues, outboxes and lanes hold, as limits.memory_bytes counts it.",
    unit="bytes",
)
MEMORY_LIMIT = Family("loopline_memory_limit_bytes", "gauge", "limits.memory_bytes; 0 sets no limit.", unit="bytes")

SESSIONS_OPEN = Family("loopline_session_open", "gauge", "WebSockets open now.")
SESSIONS_ENDED = Family(
    "loopline_session_ended_total",
    "counter",
    "WebSockets that ended, by close code.",
    {"code": "1000 to 1015; `other` for any other and for none"},
)
LANES_OPEN = Family("loopline_lane_open", "gauge", "Lanes in use on the WebSockets that are open now.")

TURNS_RUNNING = Family("loopline_turn_running", "gauge", "Turns that run now.")
TURNS_ENDED = Family(
    "loopline_turn_ended_total",
    "counter",
    "Turns that ended, warm-ups included.",
    {
        "transport": _TRANSPORT,
        "dialect": _DIALECT,
        **_MODELS,
        "outcome": "`completed`, `incomplete`, `failed`, `refused` (no response began), `cancelled`",
    },
)
TURN_ERRORS = Family(
    "loopline_turn_errors_total", "counter", "Turns that failed or were refused, by kind of failure.", {"kind": _KIND}
)
CANCELS = Family(
    "loopline_turn_cancels_total",
    "counter",
    "Turns that ended early, because the client asked for it or because it left.",
    {"by": "`request`, `leaving`"},
)
WARM_UPS = Family("loopline_turn_warm_ups_total", "counter", "Turns with `generate: false`.")
FORKS = Family(
    "loopline_turn_forks_total",
    "counter",
    "Turns on a WebSocket that continue another response than their lane's latest.",
)
STEERS = Family("loopline_turn_steers_total", "counter", "Steers that were accepted.")
FIRST_TOKEN = Family(
    "loopline_turn_first_token_seconds",
    "histogram",
    "From the create's arrival to the first output. " + _ANSWERED,
    _MODELS,
    "seconds",
    SECONDS,
)
TOKEN_INTERVAL = Family(
    "loopline_turn_token_interval_seconds",
    "histogram",
    "The mean time between two tokens of a turn: from its first output to the answer's end, over the tokens after the "
    "first (events, where the upstream counted none). One observation a turn. " + _ANSWERED,
    _MODELS,
    "seconds",
    SECONDS,
)
DURATION = Family(
    "loopline_turn_duration_seconds",
    "histogram",
    "From the create's arrival to the terminal event. " + _ANSWERED,
    _MODELS,
    "seconds",
    SECONDS,
)
PARTS = Family(
    "loopline_turn_part_seconds",
    "histogram",
    "The parts of a turn, those that took any time; their sums add up to that of the durations. " + _ANSWERED,
    {
        "part": "`parse` (reading the create), `queue` (waiting for its lane and for room), `chain` (finding what it "
        "continues), `prepare` (its items, models, tools), `translate` (the upstream's request), `connect` (waiting "
        "for a connection), `upstream` (from the request's first byte to the answer's last), `stall` (the client made "
        "no room), `store` (keeping the answer), `send` (the terminal event)"
    },
    "seconds",
    SECONDS,
)
LOOP_STAGES = Family(
    "loopline_loop_stage_seconds",
    "histogram",
    "Rounds of agent loops: from the end of a turn to the end of the next on its lane, by its parent, or by its whole "
    "history. " + _ANSWERED,
    {
        "stage": "`client` (tools: the response before had called some; and what the client took to make room), `idle` "
        "(the response before had called none), `proxy` (all parts that are ours), `upstream`. Of a turn that "
        "follows none that is known the last two alone"
    },
    "seconds",
    SECONDS,
)
TURN_BYTES = Family(
    "loopline_turn_bytes_total",
    "counter",
    "Creates that came in and events that went out, without framing.",
    {"transport": _TRANSPORT, "direction": "`in`, `out`"},
    "bytes",
)
SAVED = Family(
    "loopline_turn_history_saved_bytes_total",
    "counter",
    "History that was sent upstream and that the client did not have to send.",
    unit="bytes",
)
TOKENS = Family(
    "loopline_turn_tokens_total",
    "counter",
    "Tokens as upstreams counted them; `cached` are part of `input`.",
    {**_MODELS, "direction": "`input`, `cached`, `output`"},
    "tokens",
)
LEFT_OUT = Family(
    "loopline_translate_left_out_total",
    "counter",
    "What upstreams could not be told, and calls that were not allowed.",
    {"what": "`tool`, `field`, `item`, `part`, `reasoning`, `call`"},
)

UPSTREAM_ERRORS = Family(
    "loopline_upstream_errors_total",
    "counter",
    "Failures of upstreams.",
    {"endpoint": _ENDPOINT, "kind": _KIND + ", those of upstreams"},
)
UPSTREAM_ATTEMPTS = Family(
    "loopline_upstream_attempts_total",
    "counter",
    "Requests of turns, those that failed too; a second one of a turn replaces a dead connection.",
    {"endpoint": _ENDPOINT},
)
UPSTREAM_SENT = Family(
    "loopline_upstream_sent_bytes_total", "counter", "Bodies of turns sent upstream.", {"endpoint": _ENDPOINT}, "bytes"
)
UPSTREAM_UP = Family(
    "loopline_upstream_up",
    "gauge",
    "How the last attempt went: 0 where the endpoint could not be reached, broke off or said that it cannot serve; no "
    "sample before the first.",
    {"endpoint": _ENDPOINT},
)
UPSTREAM_IN_FLIGHT = Family(
    "loopline_upstream_in_flight", "gauge", "Turns that an endpoint carries now.", {"endpoint": _ENDPOINT}
)

CACHE_HITS = Family("loopline_cache_hits_total", "counter", "Look-ups that found something.", _CACHE)
CACHE_MISSES = Family("loopline_cache_misses_total", "counter", "Look-ups that found nothing.", _CACHE)
CACHE_EVICTIONS = Family(
    "loopline_cache_evictions_total",
    "counter",
    "What a cache let go: to make room, or because of its age.",
    {**_CACHE, "reason": "`full`, `old`"},
)
CACHE_BYTES = Family("loopline_cache_bytes", "gauge", "What a cache holds.", _CACHE, "bytes")
CACHE_ENTRIES = Family("loopline_cache_entries", "gauge", "How many entries a cache holds.", _CACHE)

LIMITS = Family(
    "loopline_limit_hits_total",
    "counter",
    "Requests and messages that were refused because of a limit.",
    {"limit": "the names of the settings that limit, as `limits.memory_bytes`"},
)
PASSED = Family(
    "loopline_passthrough_total",
    "counter",
    "Requests passed on as they came, by outcome and class of status.",
    {
        "outcome": "`passed`, `refused`, `failed`, `cancelled`",
        "status": "`1xx` to `5xx`, `none` where nothing was answered",
    },
)
UNREADABLE = Family(
    "loopline_http_unreadable_total",
    "counter",
    "Requests that could not be read as HTTP.",
    {"reason": "`malformed`, `too_large`"},
)

FAMILIES = tuple(each for each in globals().values() if isinstance(each, Family))
