"""What the clients of a soak do: each habit is one visit, from its first connection to its last.

A habit that raises `Unexpected` has seen the server break a promise. Those that leave without a word, or send what is
no message, expect nothing but that the others do not notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.conformance.schema import TERMINAL
from tests.raw_socket import TEXT, frame, raw_socket
from tests.soak.talking import BEARER, INSTRUCTIONS, TOOLS, Place, Unexpected, ended, post, says, turn, words
from tests.wire_client import Event, open_socket, tool_output, user

Habit = Callable[[Place], Awaitable[None]]


async def chain(place: Place) -> None:
    """Turn after turn on one socket, now stored, now not; once in a while a large item; sometimes compressed."""
    compression = place.dice.choice([None, None, "deflate"])
    async with open_socket(place.url, compression=compression) as client:
        parent, store = None, place.dice.random() < 0.5
        for _ in range(place.dice.randint(3, 25)):
            most = 300_000 if place.dice.random() < 0.03 else 4000
            event = await turn(
                client, place, says(place.dice, most_bytes=most), previous_response_id=parent, store=store
            )
            parent = event["response"]["id"]


async def agent(place: Place) -> None:
    """A warm-up with tools and instructions, then calls and what they return, as a coding agent does."""
    settings: dict[str, Any] = {"tools": TOOLS, "instructions": place.dice.choice(INSTRUCTIONS), "store": False}
    async with open_socket(place.url) as client:
        event = await turn(client, place, [], generate=False, **settings)
        given = [user('[[loop 8 tool_1 {"city": "Paris"}]]')]
        for _ in range(9):
            parent = event["response"]["id"]
            event = await turn(client, place, given, previous_response_id=parent, **settings)
            calls = [item for item in event["response"]["output"] if item["type"] == "function_call"]
            if not calls:
                return
            given = [tool_output(call["call_id"], words(place.dice, 20_000)) for call in calls]
        raise Unexpected("a loop of eight calls did not end")


async def whole_history(place: Place) -> None:
    """An HTTP client that sends everything again in every turn."""
    history: list[Event] = []
    store, stream = place.dice.random() < 0.5, place.dice.random() < 0.5
    for _ in range(place.dice.randint(2, 12)):
        history += says(place.dice)
        response = await post(place, history, store=store, stream=stream)
        history += response["output"]


async def background(place: Place) -> None:
    """Begun by one request, asked for by others; some are cancelled, some deleted."""
    begun = await post(place, says(place.dice, 100), background=True, store=True)
    shown = f"{place.responses}/{begun['id']}"
    if place.dice.random() < 0.3:
        async with place.http.post(f"{shown}/cancel", headers=BEARER) as answer:
            await answer.read()
    status = "queued"
    while status in ("queued", "in_progress"):
        await asyncio.sleep(0.1)
        async with place.http.get(shown, headers=BEARER) as answer:
            status = (await answer.json())["status"]
    place.seen[f"background {status}"] += 1
    if place.dice.random() < 0.5:
        async with place.http.delete(shown, headers=BEARER) as answer:
            if answer.status != 200:
                raise Unexpected(f"{answer.status} to a DELETE")


async def passed_on(place: Place) -> None:
    """What Loopline hands on as it comes, whole, streamed, and left in the middle."""
    body = {"model": "simulated", "messages": [{"role": "user", "content": "[[say 50]]"}]}
    for stream in (False, True, True):
        leaves = stream and place.dice.random() < 0.3
        asked = place.http.post(f"{place.url}/chat/completions", json={**body, "stream": stream}, headers=BEARER)
        async with asked as answer:
            if answer.status != 200:
                raise Unexpected(f"{answer.status} to what is passed on")
            await (answer.content.readany() if leaves else answer.read())
            place.seen["passed on"] += 1


async def lanes(place: Place) -> None:
    """Six conversations on one socket at once, three turns each."""
    async with open_socket(place.url) as client:
        left = dict.fromkeys((f"lane-{number}" for number in range(6)), 3)
        for lane in left:
            await client.create(says(place.dice), stream_id=lane, store=False)
        while left:
            event = await ended(client, place)
            lane = event["stream_id"]
            left[lane] -= 1
            if left[lane]:
                parent = event["response"]["id"]
                await client.create(says(place.dice), stream_id=lane, store=False, previous_response_id=parent)
            else:
                del left[lane]


async def forks(place: Place) -> None:
    """One response, continued on three lanes."""
    async with open_socket(place.url) as client:
        root = (await turn(client, place, says(place.dice), store=True))["response"]["id"]
        for number in range(3):
            await client.create(says(place.dice), stream_id=f"fork-{number}", previous_response_id=root, store=True)
        for _ in range(3):
            await ended(client, place)


async def steered(place: Place) -> None:
    """A response gets new input while it runs; its successor must end."""
    async with open_socket(place.url) as client:
        await client.create([user("[[say 400]]")], store=False)
        while (event := await client.event())["type"] != "response.output_text.delta":
            if event["type"] == "response.created":
                target = event["response"]["id"]
        message = {"type": "response.steer", "previous_response_id": target, "input": "[[say 5]]"}
        await client.send(message)
        event = await ended(client, place, expected="")
        if event["type"] == "response.incomplete":
            await ended(client, place)
            place.seen["steered"] += 1


async def cancelled(place: Place) -> None:
    """A response that would never end is cancelled, and the socket goes on."""
    async with open_socket(place.url) as client:
        await client.create([user("[[stall 3]]")], store=False)
        while (event := await client.event())["type"] != "response.output_text.delta":
            if event["type"] == "response.created":
                target = event["response"]["id"]
        await client.send({"type": "response.cancel", "response_id": target})
        await ended(client, place, expected="")
        await turn(client, place, says(place.dice))


async def failing_upstream(place: Place) -> None:
    """Errors, cuts and rubbish from the upstream, each followed by a turn that completes."""
    faults = ("[[fail 500]]", "[[fail 429 retry-after=0]]", "[[drop 3]]", "[[drop 0]]", "[[eof 3]]", "[[garbage 3]]", "[[error 3]]")  # fmt: skip # noqa: E501
    async with open_socket(place.url) as client:
        for fault in place.dice.sample(faults, 3):
            await turn(client, place, [user(fault)], expected="")
            await turn(client, place, says(place.dice))


async def refused(place: Place) -> None:
    """What cannot be served, by both roads: unknown parents, wrong members, calls without an output."""
    async with open_socket(place.url) as client:
        wrong = ({"previous_response_id": "resp_none"}, {"temperature": "hot"}, {"tools": [{"type": "unheard"}]})
        for members in wrong:
            await turn(client, place, says(place.dice), expected="", **members)
        for text in ("{", '{"type": "unheard.of"}', "[]", '"x"'):
            await client.send(text)
            await ended(client, place, expected="error")
        await turn(client, place, says(place.dice))
    async with place.http.post(
        place.responses, data=b"{", headers={**BEARER, "Content-Type": "application/json"}
    ) as answer:
        if answer.status != 400:
            raise Unexpected(f"{answer.status} to half an object")


async def lost_in_stream(place: Place) -> None:
    """Leaves in the middle of an answer, by RST or FIN."""
    async with open_socket(place.url) as client:
        for lane in ("a", "b"):
            await client.create([user("[[say 2000]]")], stream_id=lane, store=place.dice.random() < 0.5)
        for _ in range(place.dice.randint(1, 60)):
            event = await client.event()
            if event["type"] in TERMINAL:
                raise Unexpected(f"{event['type']} in the middle of a long answer")
        client.vanish(reset=place.dice.random() < 0.5)
    place.seen["left in a stream"] += 1


async def lost_by_http(place: Place) -> None:
    """A stream by HTTP that its client leaves."""
    body = {"model": "simulated", "input": "[[say 2000]]", "stream": True}
    async with place.http.post(place.responses, json=body, headers=BEARER) as answer:
        for _ in range(place.dice.randint(1, 10)):
            await answer.content.readany()
    place.seen["left in a stream"] += 1


async def lost_in_message(place: Place) -> None:
    """Leaves in the middle of a message, of a frame, of a frame's head."""
    message = b'{"type":"response.create","model":"simulated","input":"' + b"x" * place.dice.randint(10, 500_000)
    half = place.dice.choice((frame(TEXT, message)[:-5], frame(TEXT, message, fin=False), b"\x81", b"\x81\xfe\x00"))
    async with raw_socket(place.url) as raw:
        await raw.send(half)
        if place.dice.random() < 0.5:
            raw.writer.write_eof()
            await raw.ended()
    place.seen["left in a message"] += 1


_MALFORMED = (
    frame(3, b"reserved opcode"),
    frame(TEXT, b"unmasked", mask=None),
    frame(TEXT, b"{}", rsv=4),
    frame(9, b"x" * 126),
    frame(0, b"continues nothing"),
    frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"),
)


async def malformed(place: Place) -> None:
    """Frames that no client sends; the server must close."""
    async with raw_socket(place.url) as raw:
        await raw.send(place.dice.choice(_MALFORMED))
        await raw.ended()
    place.seen["malformed"] += 1


async def slow_reader(place: Place) -> None:
    """Asks for more than the kernel's buffers hold, reads a little now and then, and in the end goes or reads all."""
    create = b'{"type":"response.create","model":"simulated","store":false,"input":"[[say %d]]"}'
    async with raw_socket(place.url) as raw:
        # Reading stops in the kernel: what is not read fills its buffers, then the server's outbox.
        transport = raw.writer.transport
        assert isinstance(transport, asyncio.Transport)
        await raw.send(frame(TEXT, create % 3000))
        for _ in range(place.dice.randint(2, 6)):
            transport.pause_reading()
            await asyncio.sleep(place.dice.uniform(0.2, 1.0))
            transport.resume_reading()
            await raw.frame()
    place.seen["slow readers"] += 1


HABITS: dict[Habit, int] = {
    chain: 6,
    agent: 3,
    whole_history: 3,
    background: 2,
    passed_on: 2,
    lanes: 2,
    forks: 2,
    steered: 2,
    cancelled: 2,
    failing_upstream: 2,
    refused: 1,
    lost_in_stream: 2,
    lost_by_http: 1,
    lost_in_message: 2,
    malformed: 2,
    slow_reader: 1,
}
