"""One upstream address: how a request for it is dressed, and how many turns it carries."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sequence
from urllib.parse import urlencode

from proxy.http_client import TRACE_HEADERS, AttemptWatch, HttpRequest, Passed, SendTimes

# Client headers that mean something to an upstream; everything else stays here. More by endpoints.forward_headers.
FORWARDED = ("openai-organization", "openai-project", "openai-beta", "traceparent", "x-request-id")
# Set here, whatever forward_headers says: a client's credential never goes beside an endpoint's own key, and the
# client's connection and encoding are not this one's.
_OURS = frozenset(
    {"authorization", "content-type", "content-length", "content-encoding", "accept", "host", "connection", "upgrade"}
    | {"transfer-encoding"}
)
# What may hold a client's credential; none of it goes beside an endpoint's own key.
_CREDENTIALS = frozenset(
    {"authorization", "api-key", "x-api-key", "x-goog-api-key", "ocp-apim-subscription-key", "cookie"}
)
# What belongs to a credential: beside a key of ours it would choose whose account pays.
_ACCOUNT = frozenset({"openai-organization", "openai-project"})
_OF_BODY = (("content-type", "application/json"), ("accept", "text/event-stream, application/json"))
_SHORTEST_SECRET = 8  # a version or a word in a header is no secret, and would make a message unreadable


class Lease:
    """Counts at its endpoint while it is open."""

    __slots__ = ("_endpoint",)

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def __enter__(self) -> None:
        self._endpoint.in_flight += 1

    def __exit__(self, *_: object) -> None:
        self._endpoint.in_flight -= 1


class Endpoint:
    """An endpoint, immutable but for its count of leases.

    `profile` names the kind of server that it is, auto to recognise it.

    `client_credentials` says whether a client's own go to it where it has no key.
    `max_output_tokens` cuts answers where the client sets no limit (0: none). `context_hint` tells a client whose
    prompt is too long what to do about it.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        forward: Sequence[str] = (),
        ca_bundle: str = "",
        proxy: str = "",
        dialect: str = "auto",
        profile: str = "auto",
        faithful: bool = False,
        client_credentials: bool = True,
        max_output_tokens: int = 0,
        context_hint: str = "",
        first_byte_s: float = 600.0,
        idle_s: float = 120.0,
    ) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.dialect = dialect
        self.profile = profile
        self.faithful = faithful
        self.max_output_tokens = max_output_tokens
        self.context_hint = context_hint
        self.in_flight = 0
        self._key = key
        self._takes_clients = client_credentials and key is None
        self._headers = dict(headers or {})
        self._query = dict(query or {})
        fixed = {name.lower() for name in self._headers}
        stay = _OURS | fixed if self._takes_clients else _OURS | fixed | _ACCOUNT
        self._forward = tuple(
            dict.fromkeys(name.lower() for name in (*FORWARDED, *forward) if name.lower() not in stay)
        )
        if self._takes_clients and "authorization" not in fixed:
            self._forward += ("authorization",)
        own = [] if key is None else [("authorization", f"Bearer {key}")]
        # What every request without and with a body has, whoever asks: made once, joined to what is the client's.
        self._bare, self._bodied = (
            [*(pair for pair in pairs if pair[0] not in fixed), *self._headers.items()]
            for pairs in (own, [*own, *_OF_BODY])
        )
        self._ca_bundle = ca_bundle
        self._proxy = proxy
        self._first_byte_s = first_byte_s
        self._idle_s = idle_s

    @property
    def has_key(self) -> bool:
        """Does it have a key of its own, so that clients' credentials stay here?"""
        return self._key is not None

    def hide(self, text: str) -> str:
        """A text without the endpoint's key and the values of its own headers: some servers quote them in errors."""
        for secret in (self._key, *self._headers.values(), *self._query.values()):
            if secret and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, "(hidden)")
        return text

    def lease(self) -> Lease:
        """The right to send one turn; given back on every way out."""
        return Lease(self)

    def request(
        self,
        method: str,
        path: str,
        client_headers: Mapping[str, str],
        *,
        body: Sequence[bytes] = (),
        repeatable: bool = True,
        root: bool = False,
        times: SendTimes | None = None,
        watch: AttemptWatch | None = None,
    ) -> HttpRequest:
        """A request of this endpoint. `client_headers` have lower-case names; `root` leaves out the url's `/v1`.

        With a `watch`, which says it for each attempt, the client's trace is left out.
        """
        headers = self._dressed(client_headers, has_body=bool(body))
        if watch is not None:
            headers = [pair for pair in headers if pair[0] not in TRACE_HEADERS]
        base = self.url.removesuffix("/v1") if root else self.url
        return HttpRequest(
            method=method,
            url=base + path,
            headers=headers,
            query=self._query,
            body=body,
            ca_bundle=self._ca_bundle,
            proxy=self._proxy,
            repeatable=repeatable,
            first_byte_s=self._first_byte_s,
            idle_s=self._idle_s,
            times=times,
            watch=watch,
        )

    def passed(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[str, str]],
        body: AsyncIterable[bytes] | None,
        *,
        upgrade: bool = False,
        ready: bool = False,
        keep_credential: bool = True,
    ) -> Passed:
        """A client's request, passed on: `path` is what followed its /v1, query included, as it was sent.

        Without `keep_credential` the client's own stays here, even if this endpoint takes clients'.
        """
        gone = {name.lower() for name in self._headers}
        if not (self._takes_clients and keep_credential):
            gone |= _CREDENTIALS | _ACCOUNT
        dressed = [pair for pair in headers if pair[0].lower().replace("_", "-") not in gone]
        if self._key is not None and "authorization" not in {name.lower() for name in self._headers}:
            dressed.append(("Authorization", f"Bearer {self._key}"))
        if self._query:
            path += ("&" if "?" in path else "?") + urlencode(self._query)
        return Passed(
            method=method,
            url=self.url + path,
            headers=[*dressed, *self._headers.items()],
            body=body,
            upgrade=upgrade,
            ready=ready,
            ca_bundle=self._ca_bundle,
            proxy=self._proxy,
            first_byte_s=self._first_byte_s,
            idle_s=self._idle_s,
        )

    def _dressed(self, client: Mapping[str, str], *, has_body: bool) -> list[tuple[str, str]]:
        headers = [(name, client[name]) for name in self._forward if name in client]
        headers += self._bodied if has_body else self._bare
        return headers
