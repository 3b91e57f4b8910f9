"""What aiohttp raises becomes a failure that says whose fault it was."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import aiohttp
import pytest
from aioresponses import aioresponses
from yarl import URL

from proxy.errors import Kind, LooplineError
from proxy.http_client import HttpRequest, read_all
from proxy.upstream.aiohttp_client import AiohttpClient

CHAT_URL = "http://upstream.test/v1/chat/completions"


class FakeResponse(aiohttp.ClientResponse):
    """aioresponses builds responses without the writer that aiohttp 3.14 asks for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, stream_writer=Mock(output_size=0), **options)


@pytest.fixture
async def client() -> AsyncIterator[AiohttpClient]:
    made = AiohttpClient(keepalive_s=3, connect_s=1)
    yield made
    await made.aclose()


def request(body: tuple[bytes, ...] = (b"{", b"}"), **options: Any) -> HttpRequest:
    return HttpRequest("POST", options.pop("url", CHAT_URL), body=body, **options)


async def test_an_answer_is_handed_over(client: AiohttpClient) -> None:
    with aioresponses() as upstream:
        upstream.post(CHAT_URL, status=429, body=b"slow", headers={"Retry-After": "2"}, response_class=FakeResponse)
        async with client.open(request()) as response:
            assert response.status == 429
            assert response.headers["retry-after"] == "2"
            assert response.attempts == 1
            assert await read_all(response, 100) == b"slow"


async def test_a_body_is_cut_at_the_limit(client: AiohttpClient) -> None:
    with aioresponses() as upstream:
        upstream.post(CHAT_URL, body=b"x" * 1000, response_class=FakeResponse)
        async with client.open(request()) as response:
            assert await read_all(response, 10) == b"x" * 10


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (aiohttp.ServerDisconnectedError(), Kind.UPSTREAM_CLOSED),
        (aiohttp.ClientOSError(104, "reset"), Kind.UPSTREAM_CLOSED),
        (aiohttp.ClientConnectorError(Mock(), OSError(111, "refused")), Kind.UPSTREAM_UNREACHABLE),
        (aiohttp.ServerTimeoutError("connect"), Kind.UPSTREAM_UNREACHABLE),
        (aiohttp.InvalidURL("http://"), Kind.UPSTREAM_UNREACHABLE),
        (aiohttp.ClientResponseError(Mock(), (), message="bad line"), Kind.UPSTREAM_GARBLED),
        (TimeoutError(), Kind.UPSTREAM_TIMEOUT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
async def test_every_way_to_fail_has_a_kind(client: AiohttpClient, raised: Exception, kind: Kind) -> None:
    with aioresponses() as upstream:
        upstream.post(CHAT_URL, exception=raised)
        with pytest.raises(LooplineError) as failure:
            async with client.open(request()):
                pass
    assert failure.value.kind is kind


async def test_headers_query_and_body_are_sent(client: AiohttpClient) -> None:
    url = CHAT_URL + "?api-version=1"
    with aioresponses() as upstream:
        upstream.post(url, body=b"ok", response_class=FakeResponse)
        headers = [("authorization", "Bearer key"), ("content-type", "application/json")]
        async with client.open(request((b"a", b"b"), headers=headers, query={"api-version": "1"})):
            pass
        sent = upstream.requests["POST", URL(url)][0].kwargs
    assert sent["data"] == b"ab"
    assert dict(sent["headers"]) == dict(headers)
    assert sent["allow_redirects"] is False
