"""Two tenants on one server, each trying every way to reach what is the other's.

A model says what each may know: its own ids, its own words. Whatever else one of them asks for is answered exactly as
if it had never been: the same events and the same work, counted in calls of our own code, so that no clock is needed
to see that none is faster.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Mapping
from types import FrameType
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from proxy.access.accounts import Quota
from proxy.access.gate import Gate
from proxy.access.keys import KeyLimits, Keys, make_key
from proxy.conversation.memory import MemoryStore
from proxy.http_client import HttpRequest
from proxy.session.limits import SessionLimits
from proxy.session.registry import Registry
from proxy.session.services import Caller, NoHolder
from proxy.session.session import Session
from proxy.session.tasks import Tasks
from proxy.session.turn import Turn
from proxy.telemetry.observer import TurnRecord
from proxy.wire import ids
from proxy.wire.client_events import Limits, parse_create
from proxy.wire.codec import decode_object, encode
from tests.keyed import moment, random_bytes
from tests.session.playing import PlaySocket, PlayUpstream
from tests.session.scripted import Checkpoints, Recorder, services
from tests.wire_client import user

T = TypeVar("T")
NAMES = ("alice", "bobby")
LANES: tuple[str | None, ...] = (None, "a", "b")
SETTINGS = SessionLimits(keepalive_s=0, lifetime_s=0)
TURNS_A_MINUTE = 10_000
tenants = st.sampled_from(NAMES)
lanes = st.sampled_from(LANES)
picks = st.integers(0, 50)
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


class Listening(PlayUpstream):
    """Remembers every request, and answers at once unless it is told to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Mapping[str, str], bytes]] = []
        self.free()

    def open(self, request: HttpRequest) -> Any:
        if request.method == "POST":
            self.asked.append((dict(request.headers), b"".join(request.body)))
        return super().open(request)

    def hold(self) -> None:
        """Answers wait from now on, until `free`."""
        self._free = False

    def free(self) -> None:
        super().free()


class Tenant:
    """One of the two: its socket, and what it may know."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.socket = PlaySocket()
        self.ids: list[str] = []
        self.read = 0

    @property
    def word(self) -> str:
        """What is in everything that it says, and in nothing that the other says."""
        return f"secret-of-{self.name}"

    def news(self) -> list[dict[str, Any]]:
        """The events since the last look."""
        events = self.socket.events[self.read :]
        self.read = len(self.socket.events)
        return events


class TwoTenants(RuleBasedStateMachine):
    """Both tenants, one of everything that they share."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.crashes: list[BaseException] = []
        self.run(self.build())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the machine's own loop."""
        return self.loop.run_until_complete(work)

    async def build(self) -> None:
        self.upstream = Listening()
        self.tasks = Tasks(lambda _, error: self.crashes.append(error))
        self.registry = Registry(self.tasks)
        self.services = services(self.upstream, MemoryStore(1 << 30, 3600))
        made = [
            make_key(name, moment(), random_bytes, limits=KeyLimits(requests_per_minute=TURNS_A_MINUTE))
            for name in NAMES
        ]
        self.gate = Gate(
            b"s" * 32,
            Keys(key for key, _ in made),
            each=Quota(),
            whole=Quota(),
            clock=lambda: 0.0,
            wall=lambda: moment().timestamp(),
        )
        self.callers: dict[str, Caller] = {}
        self.tenants = {name: Tenant(name) for name in NAMES}
        for name, (_, token) in zip(NAMES, made, strict=True):
            grant = self.gate.grant({"authorization": f"Bearer {token}"})
            self.callers[name] = Caller(grant.tenant, {"x-request-id": name}, grant)
            session = Session(self.tenants[name].socket, self.callers[name], self.services, self.registry, SETTINGS)
            _ = self.tasks.spawn(session.run(), name)
        self.turns = dict.fromkeys(NAMES, 0)
        await self.rest()

    async def rest(self) -> None:
        """Let everything that can go on go on."""
        for _ in range(60):
            await asyncio.sleep(0)

    async def say(self, tenant: Tenant, message: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send something; the events that come of it."""
        tenant.news()
        tenant.socket.put(dict(message))
        await self.rest()
        return tenant.news()

    async def create(self, tenant: Tenant, lane: str | None, text: str, **members: Any) -> list[dict[str, Any]]:
        """A turn on a lane; what it was answered."""
        named = {"stream_id": lane} if lane else {}
        said = [user(f"{tenant.word} {text}")]
        return await self.say(tenant, {"type": "response.create", "input": said, **named, **members})

    def other(self, tenant: Tenant) -> Tenant:
        """The one that is not this one."""
        return next(each for each in self.tenants.values() if each is not tenant)

    # --- What each does with what is its own --------------------------------------------------------------------------

    @rule(name=tenants, lane=lanes, store=st.booleans(), pick=picks)
    def turn(self, name: str, lane: str | None, store: bool, pick: int) -> None:
        tenant = self.tenants[name]
        parent = {"previous_response_id": tenant.ids[pick % len(tenant.ids)]} if tenant.ids and pick % 3 else {}
        events = self.run(self.create(tenant, lane, f"turn {pick}", store=store, **parent))
        self.turns[name] += 1
        ended = events[-1]
        if ended["type"] == "response.completed":
            if store:
                tenant.ids.append(ended["response"]["id"])
        else:  # an id of its own that its lane holds no longer
            assert parent
            raise AssertionError(f"a stored response of its own was not found: {ended}")

    # --- What each tries with what is the other's ---------------------------------------------------------------------

    def both(self, name: str, pick: int) -> tuple[Tenant, str, str] | None:
        """Who tries, an id of the other, and one that never was."""
        tenant = self.tenants[name]
        known = self.other(tenant).ids
        return (tenant, known[pick % len(known)], ids.response_id()) if known else None

    def the_same(self, tenant: Tenant, message: Mapping[str, Any], *targets: str) -> None:
        """Send a message with each id in the place of ID: the answers are equal, and what they cost."""
        answers = []
        for target in (ids.response_id(), *targets):  # the first only brings lane and caches to where they will be
            text = json.loads(json.dumps(dict(message)).replace("ID", target))
            with Counted() as counted:
                events = self.run(self.say(tenant, text))
            answers.append((events, target, counted.calls))
        self.equal(answers[1:])
        if message["type"] == "response.create":
            self.turns[tenant.name] += len(answers)

    def equal(self, answers: list[tuple[list[dict[str, Any]], str, int]]) -> None:
        told = [json.dumps(events).replace(asked, "ID") for events, asked, _ in answers]
        assert told[0] == told[1]
        assert answers[0][2] == answers[1][2], "one was more work than the other"

    def tried(self, name: str, pick: int, message: Mapping[str, Any]) -> None:
        """Send a message with each id in the place of ID."""
        both = self.both(name, pick)
        if both is None:
            return
        tenant, theirs, never = both
        asked = len(self.upstream.asked)
        self.the_same(tenant, message, theirs, never)
        assert len(self.upstream.asked) == asked

    @rule(name=tenants, lane=lanes, pick=picks, store=st.booleans(), warm=st.booleans())
    def continue_the_others(self, name: str, lane: str | None, pick: int, store: bool, warm: bool) -> None:
        named = {"stream_id": lane} if lane else {}
        create = {"type": "response.create", "previous_response_id": "ID", "input": [user("x")], **named}
        self.tried(name, pick, {**create, "store": store, "generate": not warm})

    @rule(name=tenants, pick=picks)
    def steer_the_others(self, name: str, pick: int) -> None:
        self.tried(name, pick, {"type": "response.steer", "previous_response_id": "ID", "input": [user("x")]})

    @rule(name=tenants, pick=picks)
    def cancel_the_others(self, name: str, pick: int) -> None:
        self.tried(name, pick, {"type": "response.cancel", "response_id": "ID"})

    @rule(name=tenants, pick=picks)
    def inject_into_the_others(self, name: str, pick: int) -> None:
        self.tried(name, pick, {"type": "response.inject", "response_id": "ID", "input": []})

    @rule(name=tenants, pick=picks)
    def continue_the_others_by_http(self, name: str, pick: int) -> None:
        both = self.both(name, pick)
        if both is None:
            return
        answers = []
        for target in both[1:]:
            with Counted() as counted:
                error = self.run(self.post(both[0], target))
            answers.append(([error], target, counted.calls))
        self.equal(answers)

    async def post(self, tenant: Tenant, parent: str) -> dict[str, Any]:
        """A turn as an HTTP request has it: no lanes; what it was refused with."""
        body = encode({"input": f"{tenant.word} by http", "previous_response_id": parent})
        create = parse_create(decode_object(body), len(body), Limits())
        record = TurnRecord(response=ids.response_id(), transport="http", received_s=0.0)
        follower = Recorder(Checkpoints())
        turn = Turn(self.services, self.callers[tenant.name], create, NoHolder(), record)
        running = self.registry.start(record.response, turn.run, follower)
        assert running.task is not None
        await running.task
        (error,) = follower.errors
        return {"kind": error.kind.value, "message": error.message, "param": error.param}

    @rule(name=tenants, pick=picks)
    def reach_for_what_runs(self, name: str, pick: int) -> None:
        """Steering and cancelling what the other runs at this moment leaves it as it was."""
        tenant = self.tenants[name]
        other = self.other(tenant)
        self.upstream.hold()
        try:
            begun = self.run(self.create(other, None, "long", store=True))
            self.upstream.step(0)
            self.run(self.rest())
            begun += other.news()
            self.turns[other.name] += 1
            running = next(event["response"]["id"] for event in begun if event["type"] == "response.created")
            for message in (
                {"type": "response.steer", "previous_response_id": "ID", "input": [user("stop")]},
                {"type": "response.cancel", "response_id": "ID"},
                {"type": "response.create", "previous_response_id": "ID", "input": [user("x")]},
            ):
                self.the_same(tenant, message, running, ids.response_id())
        finally:
            self.upstream.free()
            self.run(self.rest())
        ended = other.news()[-1]
        assert ended["type"] == "response.completed"
        assert ended["response"]["id"] == running
        other.ids.append(running)

    @rule(name=tenants, lane=lanes)
    def resend_what_the_other_said(self, name: str, lane: str | None) -> None:
        """The same words are the tenant's own: nothing of the other's history comes along."""
        tenant = self.tenants[name]
        tools = [{"type": "function", "name": "lookup", "parameters": {"type": "object"}}]
        self.run(self.create(tenant, lane, "the same words", store=False, tools=tools))
        self.turns[name] += 1
        assert len(json.loads(self.upstream.asked[-1][1])["messages"]) == 1

    # --- What is always so --------------------------------------------------------------------------------------------

    @invariant()
    def nobody_hears_of_the_other(self) -> None:
        for tenant in self.tenants.values():
            other = self.other(tenant)
            for _, body in self.upstream.asked:
                assert not (tenant.word.encode() in body and other.word.encode() in body)
            assert other.word not in json.dumps(tenant.socket.events)

    @invariant()
    def limits_are_each_ones_own(self) -> None:
        for name, caller in self.callers.items():
            left = caller.grant.rate_headers()["x-ratelimit-remaining-requests"]
            assert int(left) == TURNS_A_MINUTE - self.turns[name]
            assert caller.grant.account.turns == 0

    def teardown(self) -> None:
        async def end() -> None:
            for tenant in self.tenants.values():
                tenant.socket.lose()
            await self.rest()
            await self.tasks.aclose()

        self.run(end())
        self.loop.close()
        assert not self.crashes, self.crashes
        assert self.gate.accounts.whole.budget.used == 0


class Counted:
    """Counts the calls of our own functions while it is open."""

    calls = 0

    def __enter__(self) -> Counted:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/proxy/" in frame.f_code.co_filename:
            self.calls += 1


TestTwoTenants = pytest.mark.slow(TwoTenants.TestCase)  # twelve seconds of a core
TestTwoTenants.settings = settings(
    deadline=None, max_examples=25, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
