"""Whoever watches is told of each attempt, whichever client makes it, and gives each its own headers."""

from __future__ import annotations

import pytest

from proxy.http_client import HttpRequest, read_all
from proxy.upstream.aiohttp_client import AiohttpClient
from proxy.upstream.endpoint import Endpoint
from proxy.upstream.http import Http1Client
from tests.recording_upstream import Exchange, answering, recording_upstream

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Watch:
    """Notes what it is told; names each attempt."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begun(self) -> list[tuple[str, str]]:
        self.told.append("begun")
        return [("traceparent", f"attempt-{self.told.count('begun')}")]

    def answered(self, status: int) -> None:
        self.told.append(f"answered {status}")

    def failed(self, kind: str) -> None:
        self.told.append(f"failed {kind}")


@pytest.mark.parametrize("kind", [AiohttpClient, Http1Client])
async def test_each_attempt_is_told_and_has_its_headers(kind: type[AiohttpClient | Http1Client]) -> None:
    async def answer(exchange: Exchange) -> None:
        if len(upstream.exchanges) == 2:
            exchange.writer.transport.abort()  # the kept connection was dead
        else:
            await answering(ANSWER)(exchange)

    watch, client = Watch(), kind(keepalive_s=3, connect_s=5)
    async with recording_upstream(answer) as upstream:
        for _ in range(2):
            asked = HttpRequest("POST", f"{upstream.url}/x", [("x-mine", "1")], body=(b"{}",), watch=watch)
            async with client.open(asked) as response:
                assert await read_all(response, 100) == b"{}"
        await client.aclose()
        assert [request.values(b"traceparent") for request in upstream.requests] == [
            [b"attempt-1"],
            [b"attempt-2"],
            [b"attempt-3"],
        ]
        assert all(request.values(b"x-mine") == [b"1"] for request in upstream.requests)
    assert watch.told == ["begun", "answered 200", "begun", "failed upstream_closed", "begun", "answered 200"]


@pytest.mark.parametrize("watched", [True, False])
def test_a_clients_trace_goes_on_where_nobody_watches(watched: bool) -> None:
    client = {"traceparent": "of the client", "tracestate": "of the client", "x-request-id": "mine"}
    endpoint = Endpoint("default", "http://gpu/v1", forward=("tracestate",))
    sent = endpoint.request("POST", "/x", client, watch=Watch() if watched else None).headers
    assert {name for name, _ in sent} & set(client) == ({"x-request-id"} if watched else set(client))
