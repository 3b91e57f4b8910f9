"""The settings themselves: each one once, with its type, default and description. Frozen: one immutable snapshot."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from proxy.settings.agreement import check
from proxy.settings.types import (
    Count,
    EnvName,
    HeaderNames,
    Headers,
    Host,
    Networks,
    Origins,
    PathPatterns,
    Port,
    ProxyUrl,
    Ratio,
    Says,
    Seconds,
    Text,
    Texts,
    Url,
    UrlOrNot,
    Wait,
    Whole,
)

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


# --- The settings ----------------------------------------------------------------------------------------------------


class Server(Section):
    """Where clients connect."""

    host: Host = Field(
        "127.0.0.1", description="Address to listen on. Beyond loopback it needs `access.keys_file` or `insecure`."
    )
    port: Port = Field(8780, description="Port for clients. 0 takes any free port.")
    admin_host: Host = Field("127.0.0.1", description="Address of `admin_port`. Beyond loopback it needs `insecure`.")
    admin_port: Port = Field(0, description="Port for /readyz, /metrics and /status. 0 leaves them on the client port.")
    status: Literal["auto", "off", "key"] = Field(
        "auto",
        description="Page /status (docs/status.md). auto: wherever /metrics is served; key: asks for the key of "
        "status_key_env or status_key_file, on any port.",
    )
    status_key_env: EnvName = Field(
        "",
        repr=False,
        description="Environment variable that holds the key of /status; with _FILE appended, the key's file.",
    )
    status_key_file: Text = Field("", repr=False, description="File that holds that key, 16 characters or more.")
    insecure: bool = Field(
        False, description="Listen beyond loopback without client keys: whoever reaches the port uses the upstream."
    )
    allowed_origins: Origins = Field(
        (), description="Browser origins that may connect. Requests without one always may."
    )
    websocket: bool = Field(True, description="Whether WebSocket is offered. When false, upgrades are answered 426.")
    early_events_s: Wait = Field(
        2.0, description="A silent upstream delays response.created and response.in_progress by at most this."
    )
    ping_interval_s: Seconds = Field(20.0, description="Time between WebSocket pings.")
    lifetime_s: Wait = Field(
        3600.0, description="A WebSocket is closed after this, up to a tenth sooner; clients connect again. 0: never."
    )
    lifetime_grace_s: Wait = Field(30.0, description="What a running turn may take beyond the socket's lifetime.")
    keepalive_s: Wait = Field(
        25.0, description="A turn that sent nothing for this long gets a keepalive event, by HTTP a comment. 0: never."
    )
    drain_grace_s: Wait = Field(
        30.0, description="After SIGTERM running turns may take this long; then they are ended."
    )
    head_s: Seconds = Field(
        75.0, description="An HTTP connection that sends no whole request head for this long is closed."
    )
    client_stall_s: Seconds = Field(30.0, description="A client that reads nothing for this long is disconnected.")
    tls_cert: Text = Field(
        "", description="File with the server's certificate and its chain (PEM). With tls_key it makes the port TLS."
    )
    tls_key: Text = Field("", repr=False, description="File with the certificate's private key (PEM, no passphrase).")
    tls_minimum: Literal["1.2", "1.3"] = Field("1.2", description="Oldest version of TLS that is spoken.")
    trusted_proxies: Networks = Field(
        (), description="Addresses and networks of proxies in front, whose X-Forwarded-* and Forwarded are believed."
    )
    receive_s: Seconds = Field(
        300.0, description="What a client may take to send one message or HTTP body, from its first byte to its last."
    )


class Endpoint(Section):
    """One upstream address."""

    name: Annotated[str, Field(pattern=r"^[\w.-]{1,64}$"), Says("1 to 64 letters, digits, . _ or -")] = Field(
        "default", description="Name in logs and metrics."
    )
    url: Url = Field("http://127.0.0.1:8000/v1", description="Base URL of the inference server, with its /v1.")
    dialect: Literal["auto", "chat", "responses"] = Field(
        "auto", description="API the server speaks: Chat Completions or Responses. auto asks the server."
    )
    profile: Text = Field(
        "auto",
        description="Kind of server: auto recognises it; else generic, llamacpp, lmstudio, ollama, openai, sglang, "
        "simulated, transformers, vllm, xai, or the path of a .toml file (docs/upstreams.md).",
    )
    api_key_env: EnvName = Field(
        "",
        repr=False,
        description="Environment variable that holds the server's API key; with _FILE appended, the key's file.",
    )
    api_key_file: Text = Field("", repr=False, description="File that holds the server's API key.")
    client_credentials: Literal["auto", "yes", "no"] = Field(
        "auto",
        description="Whether a client's own Authorization, organization and project go to this server where it has no "
        "key of its own. auto: if it is the only endpoint. Keys of access.keys_file never do.",
    )
    headers: Headers = Field({}, repr=False, description="Headers added to every request to the server.")
    query: Texts = Field({}, repr=False, description="Query parameters added to every request, e.g. api-version.")
    ca_bundle: Text = Field("", description="File of CA certificates (PEM) to trust instead of the system's.")
    proxy: ProxyUrl = Field("", repr=False, description="HTTP proxy on the way to the server.")
    forward_headers: HeaderNames = Field((), description="Client headers to forward besides the built-in ones.")
    faithful: bool = Field(
        False,
        description="Its Responses stream has right ids, indices and sequence numbers, whatever its profile says: "
        "what it says within an item passes as it is.",
    )
    max_output_tokens: Whole = Field(
        0, description="Cuts answers at this many tokens where the client sets no limit. 0 sets none."
    )
    context_hint: Text = Field(
        "",
        description="What a client whose prompt is too long for this server is told besides the server's own words; "
        "the error's code is then invalid_prompt.",
    )


class Upstream(Section):
    """Patience and bounds towards every endpoint."""

    connect_timeout_s: Seconds = Field(10.0, description="Time to connect, TLS included.")
    first_byte_timeout_s: Seconds = Field(600.0, description="Time from the request to the first byte of the answer.")
    idle_timeout_s: Seconds = Field(120.0, description="Longest silence between two chunks of an answer.")
    keepalive_s: Wait = Field(3.0, description="An idle connection is kept this long for the next turn.")
    max_event_bytes: Count = Field(32 * MIB, description="Largest single event taken from an upstream.")
    max_output_bytes: Count = Field(64 * MIB, description="Largest output of one turn.")


class Models(Section):
    """Which model a request gets."""

    default: Text = Field("", description="Model of a request that names none, or one that the upstream does not list.")
    aliases: Texts = Field({}, description="Model names (* and ? match) to upstream models; the first match counts.")
    cache_ttl_s: Wait = Field(
        300.0,
        description="What the upstream says about its models is kept this long; tools, instructions and settings that "
        "clients repeat, this long after their last use.",
    )


class Limits(Section):
    """What a client may send and keep."""

    frame_bytes: Count = Field(64 * MIB, description="Largest message or HTTP body; above it the answer is an error.")
    frame_hard_bytes: Count = Field(
        128 * MIB, description="A message above this closes the socket with 1009. Must exceed frame_bytes."
    )
    lanes: Count = Field(32, description="Distinct stream_id values in the life of one socket.")
    running_turns: Count = Field(16, description="Turns that run at once on one socket; further ones wait.")
    queued_turns: Count = Field(64, description="Turns that may wait on one socket.")
    queued_bytes: Count = Field(64 * MIB, description="Bytes of turns that may wait on one socket.")
    outbox_bytes: Count = Field(
        256 * KIB, description="Unsent bytes of one socket above which its turns stop reading from the upstream."
    )
    inflate_ratio: Whole = Field(
        0,
        description="How many times its size a compressed HTTP body may inflate, above 1 MiB. 0: up to frame_bytes.",
    )
    background_turns: Count = Field(64, description="Background responses that run at once; further ones get 429.")
    history_bytes: Count = Field(256 * MIB, description="Largest conversation. Must not exceed store.memory_bytes.")
    input_items: Count = Field(20_000, description="Input items in one request.")
    tools: Count = Field(512, description="Tools in one request.")
    header_bytes: Count = Field(64 * KIB, description="Largest header field of a request.")
    headers: Count = Field(128, description="Header fields of a request.")
    connections: Whole = Field(0, description="WebSockets of all clients together. 0: no limit.")
    turns: Whole = Field(0, description="Turns of all clients that run at once. 0: no limit.")
    requests_per_minute: Whole = Field(0, description="Turns of all clients a minute. 0: no limit.")
    tokens_per_minute: Whole = Field(0, description="Tokens of all clients a minute, in and out. 0: no limit.")
    memory_bytes: Whole = Field(
        2 * GIB,
        description="What requests, queues, unsent events and the conversations that sockets hold may take together, "
        "beside the store. Above it new work gets 503. 0: no limit.",
    )


class Access(Section):
    """Who may use Loopline, and how much of it each."""

    keys_file: Text = Field(
        "",
        repr=False,
        description="File of client keys (loopline keys create). With it, every client needs one of them.",
    )
    connections: Whole = Field(0, description="WebSockets of one key, or without keys of one credential. 0: no limit.")
    turns: Whole = Field(0, description="Turns of one key that run at once. 0: no limit.")
    background_turns: Whole = Field(
        0, description="Background responses of one key that run at once. 0: limits.background_turns alone."
    )
    requests_per_minute: Whole = Field(0, description="Turns of one key a minute. 0: no limit.")
    tokens_per_minute: Whole = Field(0, description="Tokens of one key a minute, in and out. 0: no limit.")
    memory_bytes: Whole = Field(
        1 * GIB, description="The part of limits.memory_bytes that one key may take. 0: all of it."
    )


class Passthrough(Section):
    """Everything under /v1 that is not served here: passed to the server as it came."""

    enabled: bool = Field(True, description="Whether it is passed on. When false, it is answered 404.")
    paths: PathPatterns = Field(
        (
            *("chat/completions", "completions", "embeddings", "audio/*", "images/*", "moderations"),
            *("rerank", "score", "tokenize"),
        ),
        description="Paths below /v1/ that clients get who do not bring the server's credential themselves; * matches "
        "any rest. Those who do get all of /v1.",
    )
    upgrades: Literal["refuse", "tunnel"] = Field(
        "refuse", description="What becomes of a WebSocket upgrade elsewhere than on /v1/responses: 426, or a tunnel."
    )


class Store(Section):
    """Where conversations are kept."""

    kind: Literal["memory"] = Field("memory", description="Kind of store.")
    memory_bytes: Count = Field(1 * GIB, description="Memory for conversations; the longest unused leave first.")
    ttl_s: Seconds = Field(86_400.0, description="A stored response is forgotten after this time.")


class Prefix(Section):
    """What is remembered of requests that bring their whole history, so that it is not read and translated again."""

    memory_bytes: Whole = Field(
        256 * MIB, description="Memory for it, beside the store; the longest unused leaves first. 0 remembers nothing."
    )
    unstored_ttl_s: Wait = Field(
        300.0,
        description="What came with store: false is remembered this long after its last use, in memory only; what is "
        "stored, for store.ttl_s. 0: for no longer than its socket holds it.",
    )


class Reasoning(Section):
    """How raw reasoning is sealed for clients that ask for encrypted_content."""

    keys_env: EnvName = Field(
        "",
        repr=False,
        description="Environment variable that holds the sealing keys, id:key in each line, a key being the base64 of "
        "32 bytes: the first seals, all open; with _FILE appended, the keys' file.",
    )
    keys_file: Text = Field(
        "",
        repr=False,
        description="File that holds the sealing keys. Without it and keys_env they are made and kept in state.folder.",
    )


class State(Section):
    """What must outlive the process."""

    folder: Text = Field(
        "",
        description="Folder for secrets made at the first start. Empty: $XDG_STATE_HOME/loopline, else "
        "~/.local/state/loopline.",
    )
    tenant_secret_env: EnvName = Field(
        "",
        repr=False,
        description="Environment variable that holds the secret of the tenants' names, the base64 of 32 bytes; with "
        "_FILE appended, the secret's file. Replicas that share sealing keys share it too.",
    )
    tenant_secret_file: Text = Field(
        "",
        repr=False,
        description="File that holds that secret. Without it and tenant_secret_env it is made and kept in "
        "state.folder.",
    )


class Metrics(Section):
    """What is counted and shown: /metrics and /status (docs/metrics.md)."""

    enabled: bool = Field(
        True, description="Whether anything is counted. When false, /metrics and /status are answered 404."
    )


class Log(Section):
    """What is written to stderr."""

    format: Literal["auto", "json", "console"] = Field(
        "auto", description="Form of a log line. auto: console on a terminal, json otherwise."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe level written. Above info there are no lines of turns and sessions."
    )


class Tracing(Section):
    """Traces for OpenTelemetry, by OTLP over HTTP. Needs the extra: pip install 'loopline[otel]' (docs/tracing.md)."""

    enabled: bool = Field(
        False, description="Whether traces are sent. Needs the extra otel: pip install 'loopline[otel]'."
    )
    endpoint: UrlOrNot = Field(
        "",
        description="Where a collector takes OTLP over HTTP; /v1/traces is added. Empty: as the variables "
        "OTEL_EXPORTER_OTLP_* say, else http://localhost:4318.",
    )
    headers_env: EnvName = Field(
        "",
        repr=False,
        description="Environment variable that holds headers for the collector, name=value in each line, values "
        "percent-encoded; with _FILE appended, their file.",
    )
    headers_file: Text = Field("", repr=False, description="File that holds those headers.")
    sample_ratio: Ratio = Field(
        1.0,
        description="Part of the traces begun here that is sent; one that a client began is sent if the client's is. "
        "Not set: as OTEL_TRACES_SAMPLER says, else all.",
    )
    service_name: Text = Field(
        "", description="Name in traces. Empty: OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES, else loopline."
    )


# The sources give the one endpoint as a table: the tables of several sources merge, their lists would not.
_OneTable = BeforeValidator(lambda value: [value] if isinstance(value, dict) else value)


class Settings(BaseSettings):
    """One immutable snapshot of every setting."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    server: Server = Server()
    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=1), _OneTable] = (Endpoint(),)
    upstream: Upstream = Upstream()
    models: Models = Models()
    limits: Limits = Limits()
    passthrough: Passthrough = Passthrough()
    access: Access = Access()
    store: Store = Store()
    prefix: Prefix = Prefix()
    reasoning: Reasoning = Reasoning()
    state: State = State()
    metrics: Metrics = Metrics()
    log: Log = Log()
    tracing: Tracing = Tracing()

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """`Settings(...)` is what it is given; `reading.read` alone adds file and environment, and says where from."""
        return (init_settings,)

    @property
    def endpoint(self) -> Endpoint:
        """The one endpoint."""
        return self.endpoints[0]

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        check(self)
        return self
