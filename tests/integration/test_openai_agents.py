"""The openai-agents package: its kinds of tools, whole history or ids, over a socket and over HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchOperation,
    ApplyPatchTool,
    CustomTool,
    ModelSettings,
    OpenAIResponsesModel,
    OpenAIResponsesWSModel,
    RunConfig,
    Runner,
    ShellActionRequest,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
    ShellTool,
    Tool,
    ToolOutputImage,
    apply_diff,
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


# --- Tools of the SDK's own kinds, which a chat model can only call as functions -------------------------------------


class Editor:
    """Edits files in memory; keeps what it was asked to do."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []

    def create_file(self, operation: ApplyPatchOperation) -> str:
        self.files[operation.path] = apply_diff("", operation.diff or "", mode="create")
        return self._did(operation)

    def update_file(self, operation: ApplyPatchOperation) -> str:
        self.files[operation.path] = apply_diff(self.files[operation.path], operation.diff or "")
        return self._did(operation)

    def delete_file(self, operation: ApplyPatchOperation) -> str:
        del self.files[operation.path]
        return self._did(operation)

    def _did(self, operation: ApplyPatchOperation) -> str:
        self.asked.append((operation.type, operation.path))
        return f"did {operation.type}"


def call(name: str, **arguments: Any) -> str:
    """The directive that calls a function."""
    return f"[[call {name} {json.dumps(arguments)}]]"


def answers(house: House) -> dict[str, str]:
    """The functions that were called in the last upstream request, and what each gave."""
    names = {each["id"]: each["function"]["name"] for said in house.asked() for each in said.get("tool_calls") or ()}
    return {names[each["tool_call_id"]]: each["content"] for each in house.asked() if each["role"] == "tool"}


def offered(house: House) -> list[str]:
    """The functions that the model may call."""
    return [tool["function"]["name"] for tool in house.upstream.requests[-1].body["tools"]]


chat_only = pytest.mark.parametrize("dialect", ["chat"], indirect=True)
both_ways = pytest.mark.parametrize("by_id", [False, True], ids=["whole", "by-id"])


@chat_only
@both_ways
async def test_the_patch_tool_edits_files(by_id: bool, model: Model, house: House) -> None:
    editor = Editor()
    steps = [
        call("apply_patch", type="create_file", path="a.txt", diff='+one\n+two "ü"\n'),
        call("apply_patch", type="update_file", path="a.txt", diff='@@\n-one\n+three\n two "ü"\n'),
        '[[say "Edited."]]',
    ]
    worker = Agent(name="A", model=model, tools=[ApplyPatchTool(editor=editor)])
    result = await Runner.run(worker, " [[then]] ".join(steps), run_config=QUIET, auto_previous_response_id=by_id)
    assert result.final_output == "Edited."
    assert editor.files == {"a.txt": 'three\ntwo "ü"'}
    assert editor.asked == [("create_file", "a.txt"), ("update_file", "a.txt")]
    assert offered(house) == ["apply_patch"]
    assert "did update_file" in answers(house)["apply_patch"]


@chat_only
@both_ways
async def test_the_shell_tool_runs_commands(by_id: bool, model: Model, house: House) -> None:
    ran: list[ShellActionRequest] = []

    async def run(request: ShellCommandRequest) -> ShellResult:
        ran.append(request.data.action)
        exit_code = ShellCallOutcome(type="exit", exit_code=3)
        return ShellResult([ShellCommandOutput(stdout='out "1"\n', stderr="err 2\n", outcome=exit_code)])

    script = call("shell", commands=["ls -l", "pwd"], timeout_ms=5000) + ' [[then]] [[say "Ran."]]'
    worker = Agent(name="A", model=model, tools=[ShellTool(executor=run)])
    result = await Runner.run(worker, script, run_config=QUIET, auto_previous_response_id=by_id)
    assert result.final_output == "Ran."
    assert [(action.commands, action.timeout_ms) for action in ran] == [(["ls -l", "pwd"], 5000)]
    told = answers(house)["shell"]
    assert all(part in told for part in ('out "1"', "err 2", "3"))


@chat_only
@both_ways
async def test_a_custom_tool_gets_its_input_raw(by_id: bool, model: Model, house: House) -> None:
    text = 'SELECT "ü" -- \\ \n\tFROM t'
    got: list[str] = []

    async def query(context: Any, raw: str) -> str:
        got.append(raw)
        return "three rows"

    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}
    tool = CustomTool(name="sql", description="Queries.", on_invoke_tool=query, format=grammar)
    script = call("sql", input=text) + ' [[then]] [[say "Queried."]]'
    worker = Agent(name="A", model=model, tools=[tool])
    result = await Runner.run(worker, script, run_config=QUIET, auto_previous_response_id=by_id)
    assert result.final_output == "Queried."
    assert got == [text]
    assert answers(house) == {"sql": "three rows"}


@chat_only
@both_ways
async def test_all_kinds_in_one_answer(by_id: bool, model: Model, house: House) -> None:
    editor = Editor()

    async def run(request: ShellCommandRequest) -> ShellResult:
        return ShellResult([ShellCommandOutput(stdout="ran")])

    async def note(context: Any, raw: str) -> str:
        return f"noted {raw}"

    tools: list[Tool] = [
        get_weather,
        ApplyPatchTool(editor=editor),
        ShellTool(executor=run),
        CustomTool(name="note", description="Notes.", on_invoke_tool=note),
    ]
    calls = [
        call("get_weather", city="Oslo"),
        call("apply_patch", type="create_file", path="a", diff="+x"),
        call("shell", commands=["ls"]),
        call("note", input="this"),
    ]
    worker = Agent(name="A", model=model, tools=tools)
    script = "".join(calls) + ' [[then]] [[say "All four."]]'
    result = await Runner.run(worker, script, run_config=QUIET, auto_previous_response_id=by_id)
    assert result.final_output == "All four."
    told = answers(house)
    assert sorted(told) == ["apply_patch", "get_weather", "note", "shell"]
    assert told["get_weather"] == "sunny in Oslo"
    assert told["note"] == "noted this"
    assert editor.asked == [("create_file", "a")]


@chat_only
async def test_an_image_that_a_tool_gives_is_an_image(model: Model, house: House) -> None:
    @function_tool
    def look() -> ToolOutputImage:
        """Looks."""
        return ToolOutputImage(image_url="data:image/png;base64,aGk=")

    worker = Agent(name="A", model=model, tools=[look])
    result = await Runner.run(worker, '[[call look]] [[then]] [[say "Seen."]]', run_config=QUIET)
    assert result.final_output == "Seen."
    parts = [part for each in house.asked() if isinstance(each["content"], list) for part in each["content"]]
    assert [part["image_url"]["url"] for part in parts if part["type"] == "image_url"] == ["data:image/png;base64,aGk="]
    assert not [text for text in house.said() if "base64" in text]
