"""Clients that send their whole history with every request: what they said before is not translated again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from agents import Agent, OpenAIResponsesModel, OpenAIResponsesWSModel, RunConfig, Runner, function_tool
from agents.models.interface import Model
from openai import AsyncOpenAI

from proxy.translate.chat.items import ItemEncoder
from proxy.translate.responses.items import ItemShaper
from proxy.wire.items import Item
from tests.house import House, open_house
from tests.wire_client import user

QUIET = RunConfig(tracing_disabled=True)
CALLS = 12
SCRIPT = " [[then]] ".join([*('[[call get_weather {"city": "Oslo"}]]',) * CALLS, '[[say "It is sunny."]]'])


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """`sent`: items of requests with a whole history that were translated."""
    counts: Counter[str] = Counter()
    for encoder in (ItemEncoder, ItemShaper):

        def count(self: Any, items: Sequence[Item], start: int | None = None, made: Any = encoder.encode) -> bytes:
            counts["sent"] += 0 if start is None else len(items)  # only these know their place in the request
            encoded: bytes = made(self, items, start or 0)
            return encoded

        monkeypatch.setattr(encoder, "encode", count)
    return counts


@pytest.fixture(params=["websocket", "http"])
async def model(request: pytest.FixtureRequest, house: House) -> AsyncIterator[Model]:
    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=0) as client:
        if request.param == "http":
            yield OpenAIResponsesModel("simulated", client)
            return
        over_socket = OpenAIResponsesWSModel("simulated", client)
        yield over_socket
        await over_socket.close()


async def test_an_agents_loop_translates_every_item_once(model: Model, translated: Counter[str]) -> None:
    agent = Agent(name="a", model=model, tools=[get_weather])
    result = await Runner.run(agent, SCRIPT, max_turns=CALLS + 2, run_config=QUIET)
    assert result.final_output == "It is sunny."
    # The wish, which is a text alone in the first request and an item of several in the next, then each call with its
    # output: not the 1 + 3 + 5 + … items that were sent.
    assert translated["sent"] == 1 + 2 * CALLS


def history(rounds: int) -> list[dict[str, Any]]:
    """Calls and their outputs, as a client has them."""
    made: list[dict[str, Any]] = [user("begin")]
    for number in range(rounds):
        made += [
            {"type": "function_call", "call_id": f"c{number}", "name": "get_weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": f"sunny {number}"},
        ]
    return made


async def test_a_client_that_comes_back_and_sends_everything_finds_it_translated(
    house: House, translated: Counter[str]
) -> None:
    async with house.connect() as client:
        await client.turn(history(20), store=False)
    translated.clear()
    async with house.connect() as client:
        again = await client.turn([*history(20), user("go on")], store=False)
    assert again.kind == "response.completed"
    assert translated["sent"] == 1
    async with house.post({"model": "simulated", "input": history(20), "store": False}) as answer:
        assert answer.status == 200
    assert translated["sent"] == 1


async def test_a_compacted_window_is_translated_where_it_is_new(house: House, translated: Counter[str]) -> None:
    async with house.connect() as client:
        await client.turn(history(20), store=False)
        translated.clear()
        await client.turn([user("a summary"), *history(20)[21:]], store=False)
    assert translated["sent"] == 1


async def test_what_is_sent_upstream_is_what_was_sent_without_it(dialect: str) -> None:
    sent = []
    for memory_bytes in (0, 1 << 24):
        async with open_house(dialect, {"prefix.memory_bytes": memory_bytes}) as house:
            for rounds in (3, 5, 5):
                async with house.post({"model": "simulated", "input": history(rounds)}) as answer:
                    assert answer.status == 200
            sent.append([house.asked(number) for number in range(3)])
    assert sent[0] == sent[1]


async def test_nothing_unstored_is_remembered_where_that_is_asked_for(dialect: str, translated: Counter[str]) -> None:
    async with open_house(dialect, {"prefix.unstored_ttl_s": 0}) as house, house.connect() as client:
        for _ in range(2):
            translated.clear()
            await client.turn(history(5), store=False)
        assert translated["sent"] == 11
        for _ in range(2):
            translated.clear()
            await client.turn(history(5))
        assert translated["sent"] == 0
