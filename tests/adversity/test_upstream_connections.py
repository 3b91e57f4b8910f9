"""Kept connections to upstreams, and what happens when the far side closes them between two turns."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.house import House, house_before, open_house
from tests.raw_upstream import DONE, HEAD, LAST, WHOLE, Answer, Connection, RawUpstream, coded, event, raw_upstream
from tests.wire_client import user


@asynccontextmanager
async def before(answer: Answer) -> AsyncIterator[tuple[House, RawUpstream]]:
    async with raw_upstream(answer) as upstream, house_before(upstream.url, "chat") as house:
        yield house, upstream


async def test_turns_share_one_connection(dialect: str) -> None:
    async with open_house(dialect) as house, house.connect() as client:
        for number in range(5):
            await client.says(str(number))
        assert house.upstream.connections == 1


async def test_a_kept_connection_that_turns_out_dead_is_replaced_and_the_turn_succeeds() -> None:
    async def answer(connection: Connection) -> None:
        if connection.posts > 1:
            connection.writer.transport.abort()  # the keep-alive race: closed as the request came
        else:
            connection.writer.write(WHOLE)

    async with before(answer) as (house, upstream), house.connect() as client:
        for _ in range(3):
            assert (await client.turn("hello")).text == "Hello."
        assert [turn.attempts for turn in house.watcher.turns] == [1, 2, 2]
        assert upstream.posts == 5


async def test_a_fresh_connection_that_dies_is_not_tried_again() -> None:
    async def answer(connection: Connection) -> None:
        connection.writer.transport.abort()

    async with before(answer) as (house, upstream), house.connect() as client:
        # The list of models was asked on the first connection, so the first turn finds it in use and is tried twice.
        first = await client.turn("hello")
        second = await client.turn("hello")
        assert first.error["status"] == second.error["status"] == 502
        assert upstream.posts == 3
        assert [turn.attempts for turn in house.watcher.turns] == [2, 1], "those that failed count, too"


@pytest.mark.parametrize("by_proxy", [False, True])
async def test_an_attempt_that_reached_nobody_is_one(by_proxy: bool, unused_tcp_port: int) -> None:
    gone = f"http://127.0.0.1:{unused_tcp_port}"
    more = {"endpoints[0].proxy": gone} if by_proxy else {}
    async with house_before(f"{gone}/v1", "chat", more) as house, house.connect() as client:
        assert (await client.turn("hello")).error["status"] == 502
        assert [turn.attempts for turn in house.watcher.turns] == [1]


async def test_a_turn_that_had_begun_is_never_sent_again() -> None:
    async def answer(connection: Connection) -> None:
        if connection.posts > 1:
            connection.writer.write(HEAD + event("Hel"))
            await connection.writer.drain()
            connection.writer.transport.abort()
        else:
            connection.writer.write(WHOLE)

    async with before(answer) as (house, upstream), house.connect() as client:
        assert (await client.turn("hello")).text == "Hello."
        assert (await client.turn("hello")).kind == "response.failed"
        assert upstream.posts == 2


async def test_a_connection_whose_answer_was_given_up_is_not_used_again() -> None:
    async with open_house("chat") as house:
        async with house.connect() as client:
            await client.create([user("[[stall 2]]")])
            await client.until("response.output_text.delta")
        await house.aborted()
        async with house.connect() as client:
            await client.works()
        assert house.upstream.connections == 2


async def test_a_connection_is_kept_although_the_end_of_its_answer_comes_late() -> None:
    told = asyncio.Event()

    async def answer(connection: Connection) -> None:
        connection.writer.write(HEAD + event("Hello.") + event(None, "stop") + DONE)
        await told.wait()
        connection.writer.write(LAST)

    async with before(answer) as (house, upstream), house.connect() as client:
        assert (await client.turn("hello")).text == "Hello."
        told.set()
        await house.watcher.wait_for(lambda: house.left()[:2] == (0, 0) and len(house.watcher.turns) == 1)
        assert (await client.turn("hello")).text == "Hello."
        assert len(upstream.connections) == 1


async def test_what_follows_done_is_not_waited_for() -> None:
    async def answer(connection: Connection) -> None:
        # The end of the chunked body never comes.
        connection.writer.write(HEAD + event("Hello.") + event(None, "stop") + DONE)

    async with before(answer) as (house, upstream):
        async with house.connect() as client:
            for _ in range(2):
                assert (await client.turn("hello")).text == "Hello."
            assert upstream.posts == 2
        await house.empty(timeout_s=3)


async def test_an_upstream_that_closes_after_each_answer_costs_no_turn() -> None:
    async def answer(connection: Connection) -> None:
        connection.writer.write(WHOLE)
        connection.writer.close()

    async with before(answer) as (house, upstream), house.connect() as client:
        for _ in range(20):
            assert (await client.turn("hello")).text == "Hello."
        assert upstream.posts == 20


async def test_an_answer_byte_by_byte_is_the_same_answer() -> None:
    async def answer(connection: Connection) -> None:
        for position in range(len(WHOLE)):
            connection.writer.write(WHOLE[position : position + 1])
            await connection.writer.drain()

    async with before(answer) as (house, _), house.connect() as client:
        assert (await client.turn("hello")).text == "Hello."


async def test_an_answer_that_is_not_http() -> None:
    async def answer(connection: Connection) -> None:
        connection.writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    async with before(answer) as (house, _), house.connect() as client:
        recorded = await client.turn("hello")
        assert recorded.kinds == ["error"]
        assert recorded.error["status"] == 502


async def test_a_redirect_is_not_followed() -> None:
    async def answer(connection: Connection) -> None:
        connection.writer.write(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/v1\r\nContent-Length: 0\r\n\r\n")

    async with before(answer) as (house, _), house.connect() as client:
        recorded = await client.turn("hello")
        assert recorded.error["status"] == 502


async def test_what_came_in_the_read_that_failed_is_still_told() -> None:
    nameless = {"tool_calls": [{"index": 0, "id": "call_1", "function": {"arguments": "{}"}}]}
    chunk = {"id": "chatcmpl-1", "choices": [{"index": 0, "delta": nameless, "finish_reason": "tool_calls"}]}
    call = coded(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    async def answer(connection: Connection) -> None:
        connection.writer.write(HEAD + event("Hello.") + call + DONE + LAST)

    async with before(answer) as (house, _), house.connect() as client:
        recorded = await client.turn("hello")
        assert recorded.kind == "response.failed"
        assert "response.output_text.delta" in recorded.kinds


@pytest.mark.parametrize("end", ["reset", "open"])
async def test_an_answer_whose_end_fails_or_never_comes_is_whole_all_the_same(end: str) -> None:
    held = asyncio.Event()

    async def answer(connection: Connection) -> None:
        connection.writer.write(HEAD + event("all said", "stop"))
        await connection.writer.drain()
        if end == "reset":
            raw = connection.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.writer.transport.abort()
        else:
            await held.wait()

    async with before(answer) as (house, _):
        async with house.connect() as client:
            recorded = await client.turn([user("go")])
            held.set()
            assert (recorded.kind, recorded.text) == ("response.completed", "all said")
        await house.empty(timeout_s=3)
