"""Who runs, who waits, and in which order: `Lanes` driven as a session drives it."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.errors import Kind, LooplineError
from proxy.session.lanes import Lane, Lanes, Request, read_name
from proxy.session.state import Action, State, Waiting
from proxy.wire.codec import Raw


def request(name: str, size: int = 1) -> Request:
    """Any request; the lanes look at nothing but its size."""
    return Request(LooplineError(Kind.INVALID_REQUEST, name), size, 0.0)


def label(taken: Request) -> str:
    """The name it was made with."""
    assert isinstance(taken.what, LooplineError)
    return taken.what.message


class Driver:
    """Lanes with every start recorded; as a session it pumps after each change."""

    def __init__(self, max_names: int = 32, max_running: int = 1, max_turns: int = 64, max_bytes: int = 1000) -> None:
        self.waiting = Waiting(max_turns, max_bytes)
        self.lanes = Lanes(max_names, max_running, self.waiting)
        self.started: list[str] = []

    def add(self, lane: str | None, what: str, size: int = 1) -> None:
        self.lanes.add(self.lanes.open(lane), request(what, size))
        self.pump()

    def end(self, lane: str | None) -> None:
        self.lanes.ended(self.lane(lane))
        self.pump()

    def lane(self, name: str | None) -> Lane:
        lane = self.lanes.find(name)
        assert lane is not None
        return lane

    def pump(self) -> None:
        while (taken := self.lanes.take()) is not None:
            self.started.append(label(taken[1]))


# --- Order -----------------------------------------------------------------------------------------------------------


def test_a_lane_runs_one_turn_at_a_time_in_the_order_they_came() -> None:
    driver = Driver(max_running=16)
    for number in range(4):
        driver.add("a", str(number))
    assert driver.started == ["0"]
    for expected in (["0", "1"], ["0", "1", "2"], ["0", "1", "2", "3"]):
        driver.end("a")
        assert driver.started == expected
    driver.end("a")
    assert driver.lane("a").state is State.IDLE
    assert driver.lanes.running == 0


def test_lanes_run_beside_one_another_up_to_the_limit_and_the_next_waits_for_the_first_end() -> None:
    driver = Driver(max_running=3)
    for name in ("a", "b", "c", "d", "e"):
        driver.add(name, name)
    assert driver.started == ["a", "b", "c"]
    assert driver.lane("d").state is State.READY
    driver.end("b")
    assert driver.started == ["a", "b", "c", "d"]
    driver.end("d")
    assert driver.started == ["a", "b", "c", "d", "e"]


def test_the_default_lane_counts_as_one_that_runs() -> None:
    driver = Driver(max_running=2)
    for name in (None, "a", "b"):
        driver.add(name, str(name))
    assert driver.started == ["None", "a"]


def test_a_long_queue_takes_no_more_than_its_lanes_share() -> None:
    driver = Driver(max_running=1)
    for number in range(5):
        driver.add("greedy", f"greedy {number}")
    driver.add("modest", "modest 0")
    driver.add("modest", "modest 1")
    for _ in range(6):
        driver.end("modest" if driver.started[-1].startswith("modest") else "greedy")
    assert driver.started == ["greedy 0", "modest 0", "greedy 1", "modest 1", "greedy 2", "greedy 3", "greedy 4"]


def test_what_comes_while_others_wait_for_room_does_not_overtake_them() -> None:
    driver = Driver(max_running=1)
    for name in ("a", "b", "c"):
        driver.add(name, name)
    driver.lanes.ended(driver.lane("a"))
    driver.lanes.add(driver.lane("a"), request("a again"))  # before the session has looked who is next
    driver.pump()
    assert driver.started == ["a", "b"]
    driver.end("b")
    driver.end("c")
    assert driver.started == ["a", "b", "c", "a again"]


# --- Names -----------------------------------------------------------------------------------------------------------


def test_names_are_bounded_for_good_and_the_default_lane_is_none_of_them() -> None:
    driver = Driver(max_names=2, max_running=16)
    for name in (None, "a", "b"):
        driver.add(name, str(name))
        driver.end(name)
    with pytest.raises(LooplineError, match=r"maximum \(limits\.lanes\)") as raised:
        driver.lanes.open("c")
    assert (raised.value.kind, raised.value.param) == (Kind.STREAM_LIMIT, "stream_id")
    for name in ("a", None, "b"):
        driver.add(name, f"{name} again")
    assert driver.started[3:] == ["a again", "None again", "b again"]


def test_the_default_lane_may_come_after_all_the_names() -> None:
    driver = Driver(max_names=1, max_running=16)
    driver.add("a", "a")
    driver.add(None, "default")
    with pytest.raises(LooplineError):
        driver.lanes.open("b")
    assert driver.lanes.find("b") is None
    assert driver.started == ["a", "default"]


@pytest.mark.parametrize("raw", [b'"a"', b'"A-z_0.9"', b'"%b"' % (b"x" * 256), b'"."', b'"\\u0061"'])
def test_a_good_name(raw: bytes) -> None:
    assert read_name(Raw(raw)) == (b"a" if raw == b'"\\u0061"' else raw.strip(b'"')).decode()


@pytest.mark.parametrize("raw", [None, Raw(b"null")])
def test_no_name_is_the_default_lane(raw: Raw | None) -> None:
    assert read_name(raw) is None


@pytest.mark.parametrize(
    "raw",
    [
        b'""',
        b'"%b"' % (b"x" * 257),
        b'"a b"',
        b'"a\\n"',
        '"é"'.encode(),
        b'"a/b"',
        b'"\\""',
        b"1",
        b"true",
        b"[]",
        b"{}",
    ],
)
def test_a_bad_name(raw: bytes) -> None:
    with pytest.raises(LooplineError) as raised:
        read_name(Raw(raw))
    assert (raised.value.kind, raised.value.param) == (Kind.INVALID_STREAM_ID, "stream_id")


# --- Bounds on what waits --------------------------------------------------------------------------------------------


def test_what_runs_at_once_takes_no_room_among_what_waits() -> None:
    driver = Driver(max_running=2, max_turns=1, max_bytes=10)
    driver.add("a", "a", size=1000)
    driver.add("b", "b", size=1000)
    assert (driver.waiting.turns, driver.waiting.bytes) == (0, 0)


def test_the_bound_on_what_waits_is_the_sockets_not_the_lanes() -> None:
    driver = Driver(max_running=1, max_turns=2)
    for name in ("a", "a", "b"):
        driver.add(name, name)
    with pytest.raises(LooplineError) as raised:
        driver.add("c", "c")
    assert raised.value.kind is Kind.QUEUE_FULL
    driver.end("a")
    driver.add("c", "c")
    assert driver.waiting.turns == 2


def test_a_refused_request_leaves_its_lane_as_it_was() -> None:
    driver = Driver(max_running=1, max_turns=1)
    driver.add("a", "a")
    driver.add("b", "b")
    for name in ("a", "b", "c"):
        with pytest.raises(LooplineError):
            driver.add(name, "too much")
    driver.end("a")
    driver.end("b")
    assert driver.started == ["a", "b"]
    assert {lane.state for lane in driver.lanes} == {State.IDLE}
    assert (driver.waiting.turns, driver.waiting.bytes) == (0, 0)


# --- Ends ------------------------------------------------------------------------------------------------------------


def test_dropping_what_waits_gives_its_room_back_and_starts_none_of_it() -> None:
    driver = Driver(max_running=1)
    for name in ("a", "a", "b", "b"):
        driver.add(name, f"{name} waits")
    assert [label(each) for lane in driver.lanes for each in driver.lanes.drop_waiting(lane)] == [
        "a waits",
        "b waits",
        "b waits",
    ]
    driver.end("a")
    assert driver.started == ["a waits"]
    assert (driver.waiting.turns, driver.waiting.bytes) == (0, 0)


def test_a_lost_socket_says_which_lanes_have_something_to_stop_and_starts_nothing_more() -> None:
    driver = Driver(max_running=1)
    driver.add("idle", "idle")
    driver.end("idle")
    for name in ("runs", "waits"):
        driver.add(name, name)
    assert [driver.lanes.lost(driver.lane(name)) for name in ("idle", "runs", "waits")] == [
        Action.REST,
        Action.STOP,
        Action.STOP,
    ]
    driver.end("runs")
    assert driver.started == ["idle", "runs"]
    assert (driver.waiting.turns, driver.waiting.bytes) == (0, 0)


# --- Everything at once ----------------------------------------------------------------------------------------------

NAMES = (None, "a", "b", "c", "d", "e")


class LanesMachine(RuleBasedStateMachine):
    """Against a model: a queue of what waits for each lane, and the line of the lanes that wait for room."""

    @initialize(running=st.integers(1, 4), turns=st.integers(1, 12), size=st.integers(1, 60), names=st.integers(1, 5))
    def begin(self, running: int, turns: int, size: int, names: int) -> None:
        self.bounds = (names, running, turns, size)
        self.driver = Driver(names, running, turns, size)
        self.made = 0
        self.running: dict[str | None, str] = {}
        self.queues: dict[str | None, deque[tuple[str, int, bool]]] = {}
        self.line: deque[str | None] = deque()
        self.expected: list[str] = []

    @rule(name=st.sampled_from(NAMES), size=st.integers(0, 30))
    def create(self, name: str | None, size: int) -> None:
        self.made += 1
        what = f"{name} {self.made}"
        if name not in self.queues and name is not None and len(self.queues.keys() - {None}) == self.bounds[0]:
            self._refused(name, what, size, Kind.STREAM_LIMIT)
            return
        queue = self.queues.setdefault(name, deque())
        waits = name in self.running or bool(queue) or len(self.running) == self.bounds[1]
        if waits and not self._room(size):
            self._refused(name, what, size, Kind.QUEUE_FULL)
            return
        queue.append((what, size, waits))
        if name not in self.running and name not in self.line:
            self.line.append(name)
        self._start()
        self.driver.add(name, what, size)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 10), successor=st.booleans())
    def end(self, which: int, successor: bool) -> None:
        """A turn ends; where it was steered, its successor goes before what waits on the lane."""
        name = list(self.running)[which % len(self.running)]
        del self.running[name]
        if successor:
            self.made += 1
            self.queues[name].appendleft((f"{name} {self.made}", 0, False))
            self.driver.lane(name).queue.insert(0, request(f"{name} {self.made}", 0))
        if self.queues[name]:
            self.line.append(name)
        self._start()
        self.driver.end(name)

    def _refused(self, name: str | None, what: str, size: int, kind: Kind) -> None:
        with pytest.raises(LooplineError) as raised:
            self.driver.add(name, what, size)
        assert raised.value.kind is kind

    def _room(self, size: int) -> bool:
        waiting = self._waiting()
        return len(waiting) < self.bounds[2] and sum(waiting) + size <= self.bounds[3]

    def _waiting(self) -> list[int]:
        return [size for queue in self.queues.values() for _, size, waits in queue if waits]

    def _start(self) -> None:
        while self.line and len(self.running) < self.bounds[1]:
            name = self.line.popleft()
            self.running[name] = self.queues[name].popleft()[0]
            self.expected.append(self.running[name])

    @invariant()
    def starts_are_those_of_the_model(self) -> None:
        assert self.driver.started == self.expected
        assert max(Counter(self.driver.started).values(), default=1) == 1
        assert self.driver.lanes.running == len(self.running) <= self.bounds[1]

    @invariant()
    def what_waits_is_counted(self) -> None:
        waiting = self._waiting()
        assert (self.driver.waiting.turns, self.driver.waiting.bytes) == (len(waiting), sum(waiting))

    def teardown(self) -> None:
        """Left alone, everything accepted gets its turn and no room stays taken."""
        while self.running:
            self.end(0, False)
            self.starts_are_those_of_the_model()
        assert not any(self.queues.values())
        assert {lane.state for lane in self.driver.lanes} <= {State.IDLE}
        assert (self.driver.waiting.turns, self.driver.waiting.bytes) == (0, 0)


TestAgainstTheModel = LanesMachine.TestCase
TestAgainstTheModel.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
