"""What the Python clients see when the second turn of a session fails, and that they can go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import openai
import pytest
from agents import Agent, ModelBehaviorError, OpenAIResponsesWSModel, RunConfig, Runner, set_tracing_disabled
from agents.models.openai_responses import ResponsesWebSocketError
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from websockets.exceptions import ConnectionClosed

from tests.house import House, open_house

set_tracing_disabled(True)
QUIET = RunConfig(tracing_disabled=True)
IMPATIENT = {"upstream.idle_timeout_s": 0.4, "upstream.first_byte_timeout_s": 0.8}
EARLY = {**IMPATIENT, "server.early_events_s": 0.0}
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


class Fault(NamedTuple):
    """What the upstream does, and how the turn ends for a client: `error` is the whole turn, the others follow it."""

    script: str
    ends: str
    code: str | None
    status: int | None = None
    settings: dict[str, float] = IMPATIENT
    parent: str | None = None


FAULTS = {
    "unknown parent": Fault("hi", "error", "previous_response_not_found", 400, parent="resp_unknown"),
    "400": Fault("[[fail 400]]", "error", None, 400),
    "context": Fault("[[fail 400 code=context_length_exceeded]]", "error", "context_length_exceeded", 400),
    "401": Fault("[[fail 401]]", "error", "invalid_api_key", 401),
    "404": Fault("[[fail 404]]", "error", "model_not_found", 404),
    "429": Fault("[[fail 429]]", "error", "rate_limit_exceeded", 429),
    "quota": Fault("[[fail 429 code=insufficient_quota]]", "error", "insufficient_quota", 429),
    "500": Fault("[[fail 500]]", "error", "server_error", 502),
    "502": Fault("[[fail 502 text]]", "error", "server_error", 502),
    "503": Fault("[[fail 503]]", "error", "server_error", 503),
    "closed at once": Fault("[[drop 0]]", "error", "server_error", 502),
    "silent at once": Fault("[[stall 0]]", "error", "server_error", 504),
    "closed": Fault("[[drop 4]]", "response.failed", "server_error"),
    "ended": Fault("[[eof 4]]", "response.failed", "server_error"),
    "error": Fault("[[error 4]]", "response.failed", "server_error"),
    "garbage": Fault("[[garbage 4]]", "response.failed", "server_error"),
    "silent": Fault("[[stall 4]]", "response.failed", "server_error"),
    "late 500": Fault("[[fail 500]]", "response.failed", "server_error", settings=EARLY),
    "late 429": Fault("[[fail 429]]", "response.failed", "rate_limit_exceeded", settings=EARLY),
    "late 400": Fault("[[fail 400]]", "response.failed", "invalid_prompt", settings=EARLY),
    "late silence": Fault("[[stall 0]]", "response.failed", "server_error", settings=EARLY),
    "length": Fault("[[length 4]]", "response.incomplete", "max_output_tokens"),
}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest) -> Fault:
    """Each row of the table."""
    return FAULTS[request.param]


def says(event: Any, fault: Fault) -> None:
    """The terminal event is of the SDK's type for it and carries the code where that type has it."""
    assert event.type == fault.ends
    if fault.ends == "error":
        assert (event.error.code, event.status) == (fault.code, fault.status)
        assert event.error.message
    elif fault.ends == "response.failed":
        assert event.response.error.code == fault.code
        assert event.response.error.message
        assert event.response.status == "failed"
    else:
        assert event.response.incomplete_details.reason == fault.code
        assert event.response.status == "incomplete"


# --- openai, sockets -------------------------------------------------------------------------------------------------


def client_of(house: House, **options: Any) -> AsyncOpenAI:
    """A client. It loads no certificates, which would take longer than the test."""
    plain = DefaultAsyncHttpxClient(verify=False)
    return AsyncOpenAI(base_url=house.url, api_key="test", http_client=plain, **options)


def synchronous_client_of(url: str, **options: Any) -> OpenAI:
    """The same, synchronous."""
    return OpenAI(base_url=url, api_key="test", http_client=DefaultHttpxClient(verify=False), **options)


async def ends(connection: Any, text: str, parent: str | None = None) -> Any:
    """A turn on an asynchronous socket: its terminal event."""
    extra = {"previous_response_id": parent} if parent else {}
    await connection.response.create(model="simulated", input=text, **extra)
    return await _terminal(connection)


async def _terminal(connection: Any) -> Any:
    async for event in connection:
        if event.type in TERMINAL:
            return event
    raise AssertionError("the socket ended before the turn")


async def test_openai_gets_the_event_and_its_socket_serves_on(fault: Fault, dialect: str) -> None:
    async with open_house(dialect, fault.settings) as house, client_of(house) as client:
        async with client.responses.connect() as connection:
            first = await ends(connection, '[[say "first"]]')
            says(await ends(connection, fault.script, fault.parent or first.response.id), fault)
            third = await ends(connection, '[[say "third"]]', first.response.id)
            assert third.response.output_text == "third"
        assert house.said() == ['[[say "first"]]', "first", '[[say "third"]]'], "the failed turn left something behind"
        assert len({turn.session for turn in house.watcher.turns}) == 1


async def test_openai_synchronous_gets_the_event_and_its_socket_serves_on(fault: Fault) -> None:
    def turns(url: str) -> list[Any]:
        with synchronous_client_of(url) as client, client.responses.connect() as connection:
            seen: list[Any] = []
            for text in ('[[say "first"]]', fault.script, '[[say "third"]]'):
                parent = fault.parent if text == fault.script and fault.parent else seen and seen[0].response.id
                extra: Any = {"previous_response_id": parent} if parent else {}
                connection.response.create(model="simulated", input=text, **extra)
                seen.append(next(event for event in connection if event.type in TERMINAL))
            return seen

    async with open_house("chat", fault.settings) as house:
        first, failed, third = await asyncio.to_thread(turns, house.url)
        assert first.type == "response.completed"
        says(failed, fault)
        assert third.response.output_text == "third"
        await house.empty()
        assert len(house.watcher.sessions) == 1


async def test_openai_is_told_when_to_come_again() -> None:
    async with open_house("chat") as house, client_of(house) as client:
        async with client.responses.connect() as connection:
            event = await ends(connection, "[[fail 429 retry-after=7]]")
            assert event.error.headers == {"retry-after": "7"}


async def test_openai_gets_an_error_before_a_server_that_stops_closes(dialect: str) -> None:
    """A bare close would be taken for the end of the answer, or waited on for ever."""
    async with open_house(dialect) as house, client_of(house) as client:
        async with client.responses.connect() as connection:
            await connection.response.create(model="simulated", input="[[stall 3]]")
            await house.upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].tokens_sent == 3)
            await asyncio.gather(house.server.sockets.aclose(), _closed_after_an_error(connection))
        await house.aborted()
        await house.empty()
        assert house.watcher.sessions[0].close_code == 1012


async def _closed_after_an_error(connection: Any) -> None:
    kinds: list[str] = []
    with pytest.raises(ConnectionClosed) as closed:
        await _receive_into(kinds, connection)
    assert kinds[-1] == "response.failed"
    assert [kind for kind in kinds if kind in TERMINAL] == kinds[-1:]
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1012


async def _receive_into(kinds: list[str], connection: Any) -> None:
    while True:
        kinds.append((await connection.recv()).type)


async def test_openai_that_reconnects_by_itself_goes_on_after_a_restart() -> None:
    """1012 is a code after which the SDK connects again; what it is given meanwhile it sends then."""
    codes: asyncio.Queue[int] = asyncio.Queue()
    async with open_house("chat") as house, client_of(house) as client:
        connecting = client.responses.connect(
            on_reconnecting=lambda event: codes.put_nowait(event.close_code), initial_delay=0.01
        )
        async with connecting as connection, asyncio.TaskGroup() as group:
            first = await ends(connection, '[[say "first"]]')
            second = group.create_task(_terminal(connection))
            await house.server.sockets.aclose()
            assert await codes.get() == 1012
            await connection.response.create(
                model="simulated", input='[[say "second"]]', previous_response_id=first.response.id
            )
            assert (await second).response.output_text == "second"
        assert house.said() == ['[[say "first"]]', "first", '[[say "second"]]']


# --- openai-agents, sockets ------------------------------------------------------------------------------------------


@asynccontextmanager
async def agent_of(house: House) -> AsyncIterator[Agent[Any]]:
    """An agent whose model keeps a socket."""
    async with client_of(house) as client:
        model = OpenAIResponsesWSModel("simulated", client)
        try:
            yield Agent(name="A", model=model)
        finally:
            await model.close()


async def run(agent: Agent[Any], text: str, parent: str | None = None) -> Any:
    """One run."""
    return await Runner.run(agent, text, run_config=QUIET, previous_response_id=parent)


async def test_openai_agents_gets_an_exception_and_the_next_run_works(fault: Fault) -> None:
    async with open_house("chat", fault.settings) as house, agent_of(house) as agent:
        first = await run(agent, '[[say "first"]]')
        with pytest.raises(RuntimeError if fault.ends == "error" else ModelBehaviorError) as raised:
            await run(agent, fault.script, fault.parent or first.last_response_id)
        if fault.ends == "error":
            assert isinstance(raised.value, ResponsesWebSocketError)
            assert raised.value.code == fault.code
            assert raised.value.error_message
        else:
            assert fault.ends in str(raised.value)
            assert str(fault.code) in str(raised.value)
        third = await run(agent, '[[say "third"]]', first.last_response_id)
        assert third.final_output == "third"
        assert house.said() == ['[[say "first"]]', "first", '[[say "third"]]']
        first_socket, _, third_socket = [turn.session for turn in house.watcher.turns]
        assert (first_socket == third_socket) == (fault.ends != "error"), "the client keeps its socket but for errors"


@pytest.mark.parametrize("name", ["unknown parent", "429", "closed", "late 500", "length"])
async def test_openai_agents_streamed_gets_an_exception(name: str) -> None:
    fault = FAULTS[name]
    async with open_house("chat", fault.settings) as house, agent_of(house) as agent:
        first = await run(agent, '[[say "first"]]')
        result = Runner.run_streamed(
            agent, fault.script, run_config=QUIET, previous_response_id=fault.parent or first.last_response_id
        )
        with pytest.raises((ResponsesWebSocketError, ModelBehaviorError)) as raised:
            async for _ in result.stream_events():
                pass
        assert isinstance(raised.value, ResponsesWebSocketError) == (fault.ends == "error")
        assert (await run(agent, '[[say "third"]]', first.last_response_id)).final_output == "third"


async def test_openai_agents_gets_an_exception_from_a_server_that_stops() -> None:
    async with open_house("chat") as house, agent_of(house) as agent:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(_failure(agent, "[[stall 3]]"))
            await house.upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].tokens_sent == 3)
            await house.server.sockets.aclose()
        assert "server_error" in str(running.result())
        assert (await run(agent, '[[say "again"]]')).final_output == "again"


async def _failure(agent: Agent[Any], text: str) -> BaseException:
    with pytest.raises((ResponsesWebSocketError, ModelBehaviorError)) as raised:
        await run(agent, text)
    return raised.value


# --- openai, HTTP ----------------------------------------------------------------------------------------------------


class Status(NamedTuple):
    """An upstream's status, what the SDK raises for it, and how often the SDK asks by default.

    `repeated`: what Loopline sends again, because the kept connection of the catalog broke under it.
    """

    script: str
    error: type[openai.APIStatusError]
    code: str | None
    asked: int
    repeated: int = 0


STATUSES = {
    "400": Status("[[fail 400]]", openai.BadRequestError, None, 1),
    "401": Status("[[fail 401]]", openai.AuthenticationError, "invalid_api_key", 1),
    "404": Status("[[fail 404]]", openai.NotFoundError, "model_not_found", 1),
    "422": Status("[[fail 422]]", openai.BadRequestError, None, 1),
    "context": Status(
        "[[fail 400 code=context_length_exceeded]]", openai.BadRequestError, "context_length_exceeded", 1
    ),
    "429": Status("[[fail 429]]", openai.RateLimitError, "rate_limit_exceeded", 3),
    "500": Status("[[fail 500]]", openai.InternalServerError, "server_error", 3),
    "502": Status("[[fail 502 text]]", openai.InternalServerError, "server_error", 3),
    "503": Status("[[fail 503]]", openai.InternalServerError, "server_error", 3),
    "closed": Status("[[drop 0]]", openai.InternalServerError, "server_error", 3, repeated=1),
    "silent": Status("[[stall 0]]", openai.InternalServerError, "server_error", 3),
}


@pytest.fixture(params=STATUSES)
def status(request: pytest.FixtureRequest) -> Status:
    """Each of them."""
    return STATUSES[request.param]


@pytest.mark.parametrize("stream", [False, True], ids=["document", "stream"])
async def test_openai_over_http_raises_its_own_exception(status: Status, stream: bool) -> None:
    async with open_house("chat", IMPATIENT) as house, client_of(house, max_retries=0) as client:
        with pytest.raises(status.error) as raised:
            await client.responses.create(model="simulated", input=status.script, stream=stream)
        assert raised.value.code == status.code
        assert raised.value.request_id
        assert len(house.upstream.requests) == 1 + status.repeated
        ok = await client.responses.create(model="simulated", input='[[say "ok"]]')
        assert ok.output_text == "ok"


async def test_openai_over_http_tries_again_only_what_can_help(status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.001)
    async with open_house("chat", IMPATIENT) as house, client_of(house) as client:
        with pytest.raises(status.error):
            await client.responses.create(model="simulated", input=status.script)
        assert len(house.watcher.turns) == status.asked
        assert len(house.upstream.requests) == status.asked + status.repeated


@pytest.mark.parametrize("code", [429, 503])
async def test_openai_over_http_waits_as_long_as_the_upstream_said(code: int) -> None:
    async with open_house("chat") as house, client_of(house, max_retries=1) as client:
        script = f'[[fail {code} retry-after=1 once]] [[say "at last"]]'
        response = await client.responses.create(model="simulated", input=script)
        assert response.output_text == "at last"
        refused, again = house.upstream.requests
        assert refused.finished is not None
        assert again.started - refused.finished >= 1.0


async def test_openai_synchronous_over_http_tries_again() -> None:
    def ask(url: str) -> str:
        with synchronous_client_of(url, max_retries=1) as client:
            script = '[[fail 500 once]] [[say "at last"]]'
            return client.responses.create(model="simulated", input=script).output_text

    async with open_house("chat") as house:
        assert await asyncio.to_thread(ask, house.url) == "at last"
        assert len(house.upstream.requests) == 2


@pytest.mark.parametrize("name", [name for name, fault in FAULTS.items() if fault.ends != "error"])
async def test_openai_streaming_over_http_gets_the_terminal_event_once(name: str) -> None:
    """The status was sent: a failure now is an event, and the SDK does not ask again."""
    fault = FAULTS[name]
    async with open_house("chat", fault.settings) as house:
        async with client_of(house) as client:
            stream = await client.responses.create(model="simulated", input=fault.script, stream=True)
            events = [event async for event in stream]
        says(events[-1], fault)
        assert [event.type for event in events if event.type in TERMINAL] == [fault.ends]
        assert len(house.upstream.requests) == 1
