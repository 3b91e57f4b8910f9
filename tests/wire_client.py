"""A raw WebSocket client that records each turn and holds it to the contract (`tests/conformance/schema.py`)."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.conformance.schema import TERMINAL, check_event, check_turn

TIMEOUT_S = 20.0
Event = dict[str, Any]


def user(text: str) -> Event:
    """A user's message."""
    return {"type": "message", "role": "user", "content": text}


def tool_output(call_id: str, output: str) -> Event:
    """What a function returned."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def function(name: str = "get_weather", **parameters: Any) -> Event:
    """A function tool."""
    schema = parameters or {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "name": name, "parameters": schema}


@dataclass(slots=True)
class Recorded:
    """The events of one turn."""

    events: list[Event] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        """Their types."""
        return [event["type"] for event in self.events]

    @property
    def kind(self) -> str:
        """The terminal event's type."""
        return str(self.events[-1]["type"])

    @property
    def response(self) -> Event:
        """The response in the terminal event."""
        response: Event = self.events[-1]["response"]
        return response

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    @property
    def output(self) -> list[Event]:
        """The finished items."""
        output: list[Event] = self.response["output"]
        return output

    @property
    def text(self) -> str:
        """All text of the answer."""
        parts = [part for item in self.output if item["type"] == "message" for part in item["content"]]
        return "".join(part.get("text", "") for part in parts)

    @property
    def calls(self) -> list[Event]:
        """The function calls."""
        return [item for item in self.output if item["type"] == "function_call"]

    @property
    def error(self) -> Event:
        """The `error` event that was the whole turn, or the error of a failed response."""
        last = self.events[-1]
        return last if last["type"] == "error" else last["response"]["error"]


class WireClient:
    """One socket. `turn` sends a create and returns what came of it, checked."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, message: Mapping[str, Any] | str | bytes) -> None:
        """Send a message: an object as JSON, text as a text frame, bytes as a binary frame."""
        await self.connection.send(json.dumps(message) if isinstance(message, Mapping) else message)

    async def create(self, input: str | Sequence[Event] | None = None, **members: Any) -> None:  # noqa: A002
        """Send a `response.create`; `model` is `simulated` unless given (None: left out)."""
        create = {"type": "response.create", "model": "simulated", "input": input, **members}
        await self.send({name: value for name, value in create.items() if value is not None})

    async def event(self) -> Event:
        """The next event, whatever it belongs to, unchecked."""
        async with asyncio.timeout(TIMEOUT_S):
            frame = await self.connection.recv()
        assert isinstance(frame, str), "a binary frame"
        event = json.loads(frame)
        assert isinstance(event, dict)
        return event

    async def answer(self) -> Event:
        """The next event, checked as one that stands alone."""
        event = await self.event()
        check_event(event)
        return event

    async def collect(self, model: str | None = "simulated", recorded: Recorded | None = None) -> Recorded:
        """The events up to a terminal one, checked as a turn; `recorded` holds those that were read before."""
        recorded = recorded or Recorded()
        while not recorded.events or recorded.kind not in TERMINAL:
            recorded.events.append(await self.event())
        check_turn(recorded.events)
        if model is not None and recorded.kind != "error":
            assert recorded.response["model"] == model, "response.model is not the name that the client used"
        return recorded

    async def until(self, kind: str) -> Recorded:
        """The events up to one of this type; go on with `collect(recorded=…)`."""
        recorded = Recorded()
        while not recorded.events or recorded.kind != kind:
            assert not recorded.events or recorded.kind not in TERMINAL, f"{recorded.kind} before {kind}"
            recorded.events.append(await self.event())
        return recorded

    async def until_ended(self) -> Event:
        """The terminal event of what runs; what comes before it is dropped."""
        while (event := await self.event())["type"] not in TERMINAL:
            pass
        return event

    async def turn(self, input: str | Sequence[Event] | None = None, **members: Any) -> Recorded:  # noqa: A002
        """One turn, whole."""
        await self.create(input, **members)
        return await self.collect(members.get("model", "simulated"))

    async def says(self, text: str, **members: Any) -> Recorded:
        """A turn that must complete; the model says `text`."""
        recorded = await self.turn([user(f'[[say "{text}"]]')], **members)
        assert recorded.kind == "response.completed", recorded.events[-1]
        assert recorded.text == text
        return recorded

    async def works(self) -> None:
        """The socket serves a fresh turn."""
        await self.says("still here", store=False)

    async def closed(self) -> int | None:
        """Wait for the server to close; the close code."""
        async with asyncio.timeout(TIMEOUT_S):
            try:
                while True:
                    await self.connection.recv()
            except ConnectionClosed:
                return self.connection.close_code

    def vanish(self, *, reset: bool) -> None:
        """Drop the TCP connection without a close frame: by FIN, or by RST."""
        transport = self.connection.transport
        if transport.is_closing():
            return
        if reset:
            raw: socket.socket = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()


@asynccontextmanager
async def open_socket(url: str, token: str | None = "test", **options: Any) -> AsyncIterator[WireClient]:
    """A socket to the server whose base URL is `url`; `token` is the bearer, `options` those of `websockets`."""
    headers = dict(options.pop("headers", {}))
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    options = {"compression": None, "max_size": None, "proxy": None, "close_timeout": 5, **options}
    address = url.replace("http", "ws", 1) + "/responses"
    async with connect(address, additional_headers=headers, **options) as connection:
        yield WireClient(connection)
