"""The openai-agents package: a function tool, whole history or ids, over a socket and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    RunConfig,
    Runner,
    function_tool,
    responses_websocket_session,
    set_tracing_disabled,
)
from agents.models.interface import Model
from openai import AsyncOpenAI

from tests.house import House

QUIET = RunConfig(tracing_disabled=True)
set_tracing_disabled(True)  # for the runs that take no RunConfig: traces would go to a real server
SCRIPT = '[[call get_weather {"city": "Oslo"}]] [[then]] [[say "It is sunny."]]'


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


@pytest.fixture
async def openai(house: House) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=house.url, api_key="test", max_retries=0) as client:
        yield client


@pytest.fixture(params=["websocket", "http"])
async def model(request: pytest.FixtureRequest, openai: AsyncOpenAI) -> AsyncIterator[Model]:
    if request.param == "http":
        yield OpenAIResponsesModel("simulated", openai)
        return
    over_socket = OpenAIResponsesWSModel("simulated", openai)
    yield over_socket
    await over_socket.close()


def agent(model: Model) -> Agent[Any]:
    return Agent(name="Weather", instructions="Use the tool.", model=model, tools=[get_weather])


async def test_a_tool_run_with_the_whole_history(model: Model, house: House) -> None:
    result = await Runner.run(agent(model), SCRIPT, run_config=QUIET)
    assert result.final_output == "It is sunny."
    assert house.said() == ["Use the tool.", SCRIPT, '{"city": "Oslo"}', "sunny in Oslo"]


async def test_a_tool_run_by_previous_response_id(model: Model, house: House) -> None:
    first = await Runner.run(agent(model), SCRIPT, run_config=QUIET, auto_previous_response_id=True)
    assert first.final_output == "It is sunny."
    second = await Runner.run(
        agent(model), '[[say "You are welcome."]]', run_config=QUIET, previous_response_id=first.last_response_id
    )
    assert second.final_output == "You are welcome."
    assert [turn.items_in for turn in house.watcher.turns] == [1, 1, 1], "the client sent more than what was new"
    assert house.said() == [
        "Use the tool.",
        SCRIPT,
        '{"city": "Oslo"}',
        "sunny in Oslo",
        "It is sunny.",
        '[[say "You are welcome."]]',
    ]


async def test_a_streamed_tool_run(model: Model) -> None:
    result = Runner.run_streamed(agent(model), SCRIPT, run_config=QUIET)
    kinds = [event.type async for event in result.stream_events()]
    assert "raw_response_event" in kinds
    assert result.final_output == "It is sunny."


async def test_parallel_tool_calls(model: Model, house: House) -> None:
    script = '[[call get_weather {"city": "Oslo"}]] [[call get_weather {"city": "Rome"}]] [[then]] [[say "Both."]]'
    result = await Runner.run(agent(model), script, run_config=QUIET, auto_previous_response_id=True)
    assert result.final_output == "Both."
    assert set(house.said()[-2:]) == {"sunny in Oslo", "sunny in Rome"}


async def test_settings_of_the_model_arrive(model: Model, house: House) -> None:
    settings = ModelSettings(temperature=0.25, parallel_tool_calls=False)
    tuned = Agent(name="A", model=model, model_settings=settings, tools=[get_weather])
    await Runner.run(tuned, '[[say "ok"]]', run_config=QUIET)
    body = house.upstream.requests[-1].body
    assert body["temperature"] == 0.25
    assert body["parallel_tool_calls"] is False


async def test_a_websocket_session_keeps_one_socket_for_many_runs(house: House) -> None:
    async with responses_websocket_session(base_url=house.url, api_key="test") as session:
        worker = Agent(name="A", model="simulated", tools=[get_weather])
        for number in range(3):
            result = await session.run(worker, f'[[say "{number}"]]')
            assert result.final_output == str(number)
        assert len(house.server.sockets.sessions) == 1
