"""How the clients of a soak talk: what of a turn they look at, and what they hold against the server."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.conformance.schema import TERMINAL
from tests.wire_client import Event, WireClient, function, user

BEARER = {"Authorization": "Bearer test"}
COMPLETED = "response.completed"
TOOLS = [{**function(f"tool_{number}"), "description": "What it does. " * 60} for number in range(8)]

# A few, as agents have them; each is kept parsed for as long as there is room.
INSTRUCTIONS = [f"You are agent {number}. " * 800 for number in range(6)]


@dataclass(slots=True)
class Place:
    """What a client has: a server's base URL, HTTP, dice of its own; where it counts what it saw."""

    url: str
    http: aiohttp.ClientSession
    dice: random.Random
    seen: Counter[str]

    @property
    def responses(self) -> str:
        """The route of turns by HTTP."""
        return f"{self.url}/responses"


class Unexpected(Exception):
    """The server said what it must not say."""


def words(dice: random.Random, most_bytes: int = 4000) -> str:
    """Text of some length, mostly short."""
    return "lorem ipsum " * (int(most_bytes * dice.random() ** 3) // 12 + 1)


def says(dice: random.Random, tokens: int = 40, most_bytes: int = 4000) -> list[Event]:
    """A message whose answer has up to `tokens` tokens."""
    return [user(f"{words(dice, most_bytes)} [[say {dice.randint(1, tokens)}]]")]


async def ended(client: WireClient, place: Place, expected: str = COMPLETED) -> Event:
    """The terminal event of the turn that runs; one of another type is Unexpected."""
    while (event := await client.event())["type"] not in TERMINAL:
        place.seen["events"] += 1
    place.seen[event["type"]] += 1
    if expected and event["type"] != expected:
        raise Unexpected(f"{event['type']} instead of {expected}: {json.dumps(event)[:300]}")
    return event


async def turn(
    client: WireClient, place: Place, given: Sequence[Event], expected: str = COMPLETED, **members: Any
) -> Event:
    """A turn on a socket; its terminal event."""
    await client.create(given, **members)
    return await ended(client, place, expected)


async def post(place: Place, given: Sequence[Event], **members: Any) -> Event:
    """A turn by HTTP that must be answered with 200; the response."""
    body = {"model": "simulated", "input": given, **members}
    async with place.http.post(place.responses, json=body, headers=BEARER) as answer:
        text = await answer.text()
        if answer.status != 200:
            raise Unexpected(f"{answer.status}: {text[:300]}")
    place.seen["answers by HTTP"] += 1
    if members.get("stream"):
        last = text.removesuffix("data: [DONE]\n\n").rpartition("\ndata: ")[2]
        found: Event = json.loads(last)
        if found["type"] != COMPLETED:
            raise Unexpected(f"a stream ended with {last[:300]}")
        return dict(found["response"])
    return dict(json.loads(text))
