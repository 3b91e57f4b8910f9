"""What the user of Codex sees when something fails behind Loopline: a retry that succeeds, or the reason."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from proxy.errors import Kind
from proxy.tools.simulate import Options
from tests.clients.app_server import app_server
from tests.clients.codex import Codex
from tests.house import House, open_house

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]

CALL = '[[call exec_command {"cmd": "echo ran >> out.txt"}]] [[then]] '
SAY = '[[say "All done, all of it."]]'
IMPATIENT = {"upstream.idle_timeout_s": 0.5, "upstream.first_byte_timeout_s": 0.5}
EARLY = {**IMPATIENT, "server.early_events_s": 0.0}


class Once(NamedTuple):
    """A failure after the first tool call, and how the turn that met it ended."""

    script: str
    kind: Kind
    outcome: str


ONCE = {
    "drop in mid-answer": Once("[[drop 2 once]]", Kind.UPSTREAM_CLOSED, "failed"),
    "end in mid-answer": Once("[[eof 2 once]]", Kind.UPSTREAM_CLOSED, "failed"),
    "error in mid-answer": Once("[[error 2 once]]", Kind.UPSTREAM_FAILED, "failed"),
    "silence in mid-answer": Once("[[stall 2 once]]", Kind.UPSTREAM_TIMEOUT, "failed"),
    "silence": Once("[[stall 0 once]]", Kind.UPSTREAM_TIMEOUT, "refused"),
    "500": Once("[[fail 500 once]]", Kind.UPSTREAM_FAILED, "refused"),
    "502": Once("[[fail 502 once]]", Kind.UPSTREAM_FAILED, "refused"),
    "503": Once("[[fail 503 once]]", Kind.UPSTREAM_UNAVAILABLE, "refused"),
}


def tried_again(house: House, kind: Kind, outcome: str) -> None:
    """Warm-up, call, failure, and then everything once more on a socket of its own."""
    turns = house.watcher.turns
    assert [turn.outcome for turn in turns] == ["completed", "completed", outcome, "completed"]
    assert turns[2].error == kind.value
    assert {turn.transport for turn in turns} == {"websocket"}
    assert turns[3].parent == ""
    assert turns[3].items_in > turns[2].items_in
    assert turns[3].session != turns[2].session
    assert house.said(-1) == house.said(-2), "the second try asked for something else"


@pytest.mark.parametrize("name", ONCE)
async def test_a_failure_in_mid_turn_is_tried_again(name: str, dialect: str, codex: Codex) -> None:
    case = ONCE[name]
    async with open_house(dialect, IMPATIENT) as house:
        codex.configure(house.url)
        run = await codex.exec(f"{CALL}{SAY} {case.script}")
        await house.empty()
        assert run.code == 0, (run.failure, run.stderr)
        assert run.messages[-1] == "All done, all of it."
        assert codex.read("out.txt") == "ran\n", "the command ran again"
        tried_again(house, case.kind, case.outcome)


@pytest.mark.parametrize("name", ["500", "silence"])
async def test_a_failure_after_the_turn_was_announced_is_tried_again(name: str, codex: Codex) -> None:
    case = ONCE[name]
    async with open_house("chat", EARLY) as house:
        codex.configure(house.url)
        run = await codex.exec(f"{CALL}{SAY} {case.script}")
        await house.empty()
        assert run.code == 0, (run.failure, run.stderr)
        assert run.messages[-1] == "All done, all of it."
        tried_again(house, case.kind, "failed")


async def test_a_rate_limits_time_is_waited_for(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        run = await codex.exec(f"{CALL}{SAY} [[fail 429 retry-after=1 once]]")
        await house.empty()
        assert run.code == 0, (run.failure, run.stderr)
        assert codex.read("out.txt") == "ran\n"
        tried_again(house, Kind.UPSTREAM_RATE_LIMITED, "refused")
        refused, again = list(house.upstream.requests)[-2:]
        assert refused.finished is not None
        assert again.started - refused.finished >= 1.0


async def test_a_failure_over_http_is_tried_again(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url, websocket=False)
        run = await codex.exec(f"{CALL}{SAY} [[drop 2 once]]")
        assert run.code == 0, (run.failure, run.stderr)
        assert codex.read("out.txt") == "ran\n"
        assert [(turn.transport, turn.outcome) for turn in house.watcher.turns] == [
            ("http", "completed"),
            ("http", "failed"),
            ("http", "completed"),
        ]


@pytest.mark.parametrize(("status", "posts"), [(401, 2), (502, 4)])
async def test_an_upstream_that_goes_on_failing_is_told_after_all_retries(
    status: int, posts: int, codex: Codex
) -> None:
    """Over WebSocket, then over HTTP, where a 5xx is retried in two layers: 2 x 2 posts with one retry in each."""
    async with open_house("chat") as house:
        codex.configure(house.url, more="stream_max_retries = 1\nrequest_max_retries = 1\n")
        run = await codex.exec(f'[[fail {status} "the engine is gone"]]')
        assert run.code == 1
        assert "the engine is gone" in run.failure
        transports = [turn.transport for turn in house.watcher.turns if not turn.warm_up]
        assert transports == ["websocket"] * 2 + ["http"] * posts
        assert any("Falling back from WebSockets" in notice for notice in run.notices)


# --- Sockets that end ------------------------------------------------------------------------------------------------


async def test_a_server_that_restarts_between_turns_is_not_noticed(dialect: str, codex: Codex) -> None:
    """Nothing is left of a socket's `store: false` conversation: Codex sends it whole."""
    async with open_house(dialect) as house:
        codex.configure(house.url)
        async with app_server(codex) as server:
            await server.ask('[[say "First."]]')
            await house.server.sockets.aclose()
            await house.empty()
            after = await server.ask('[[say "Second."]]')
            assert (after.status, after.messages) == ("completed", ["Second."])
        assert house.watcher.sessions[0].close_code == 1012
        assert house.said()[-3:] == ['[[say "First."]]', "First.", '[[say "Second."]]']


async def test_a_server_that_restarts_in_mid_turn_is_asked_again(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        async with app_server(codex) as server:
            await server.begin(f"{SAY} [[stall 2 once]]")
            await house.upstream.wait_for(lambda u: bool(u.requests) and u.requests[-1].tokens_sent == 2)
            await house.server.sockets.aclose()
            after = await server.end()
            assert (after.status, after.messages[-1]) == ("completed", "All done, all of it.")
        assert house.watcher.turns[1].error == Kind.SHUTTING_DOWN.value


async def test_a_forgotten_response_is_replaced_by_the_whole_conversation(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        async with app_server(codex) as server:
            await server.ask('[[say "First."]]')
            (session,) = house.server.sockets.sessions
            for lane in session._lanes:
                lane.latest = None
            after = await server.ask('[[say "Second."]]')
            assert (after.status, after.messages) == ("completed", ["Second."])
        refused, again = house.watcher.turns[-2:]
        assert refused.error == Kind.PARENT_NOT_FOUND.value
        assert (again.outcome, again.parent) == ("completed", "")
        assert house.said()[-3:] == ['[[say "First."]]', "First.", '[[say "Second."]]']


# --- Final errors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
@pytest.mark.parametrize("settings", [{}, {"server.early_events_s": 0.0}], ids=["refused", "failed"])
@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_final_error_is_shown_in_the_upstreams_words(
    status: int, settings: dict[str, object], websocket: bool, codex: Codex
) -> None:
    async with open_house("chat", settings) as house:
        codex.configure(house.url, websocket=websocket)
        run = await codex.exec(f'[[fail {status} "temperature must not be purple"]]')
        assert run.code == 1
        assert "temperature must not be purple" in run.failure
        assert len(house.upstream.requests) == 1, "a request that cannot succeed was repeated"


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
async def test_a_prompt_too_long_is_final_and_named_so(websocket: bool, dialect: str, codex: Codex) -> None:
    """Codex has a sentence of its own for this code and shows no other."""
    async with open_house(dialect, options=Options(context_tokens=2048)) as house:
        codex.configure(house.url, websocket=websocket)
        run = await codex.exec("Say hello.")
        assert run.code == 1
        assert "ran out of room in the model's context window" in run.failure
        assert house.watcher.turns[-1].error == Kind.CONTEXT_LENGTH.value
        assert len(house.upstream.requests) == 1


async def test_a_used_up_quota_is_final(codex: Codex) -> None:
    async with open_house("chat") as house:
        codex.configure(house.url)
        run = await codex.exec("[[fail 429 code=insufficient_quota]]")
        assert run.code == 1
        assert "Quota exceeded" in run.failure
        assert len(house.upstream.requests) == 1


async def test_an_answer_cut_off_by_length_is_shown_and_final(dialect: str, codex: Codex) -> None:
    async with open_house(dialect) as house:
        codex.configure(house.url)
        run = await codex.exec("[[length 5]]")
        assert run.code == 1
        assert len(run.messages) == 1
        assert "max_output_tokens" in run.failure
        assert len(house.upstream.requests) == 1


@pytest.mark.parametrize("websocket", [True, False], ids=["websocket", "http"])
async def test_a_model_that_is_not_served_is_named_with_those_that_are(websocket: bool, codex: Codex) -> None:
    async with open_house("chat", {"models.default": ""}) as house:
        codex.configure(house.url, websocket=websocket, model="no-such-model")
        run = await codex.exec("Say hello.")
        assert run.code == 1
        assert "no-such-model" in run.failure
        assert "serves simulated" in run.failure
        assert len(house.upstream.requests) == 0
