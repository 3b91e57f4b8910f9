"""Who is pinged when, and who is given up; times by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from proxy.server.heartbeat import Heartbeat

INTERVAL_S = 20.0


@dataclass(eq=False)
class Client:
    """A socket that notes what is done to it."""

    heard_s: float = 100.0
    pinged_s: float = 0.0
    done: list[str] = field(default_factory=list)

    def ping(self) -> None:
        self.done.append("ping")

    def abort(self) -> None:
        self.done.append("abort")


def looked_at(client: Client, *times: float) -> list[str]:
    """What is done at each of these times."""
    heartbeat = Heartbeat(INTERVAL_S)
    for now in times:
        client.done.append(str(now))
        heartbeat.beat(client, now)
    return client.done


def test_whoever_said_something_lately_is_left_alone() -> None:
    assert looked_at(Client(), 100, 105, 110, 115) == ["100", "105", "110", "115"]


def test_whoever_would_be_silent_for_an_interval_at_the_next_look_is_pinged_once() -> None:
    assert looked_at(Client(), 115, 115.1, 120, 125) == ["115", "115.1", "ping", "120", "125"]


def test_whoever_answers_no_ping_for_three_intervals_is_dropped() -> None:
    assert looked_at(Client(), 116, 175, 176) == ["116", "ping", "175", "176", "abort"]


@pytest.mark.parametrize("answered_s", [116.5, 175.9])
def test_whoever_says_anything_after_a_ping_is_looked_at_anew(answered_s: float) -> None:
    client = Client()
    assert looked_at(client, 116)[-1] == "ping"
    client.heard_s, client.done = answered_s, []
    assert looked_at(client, 176, 177)[1:] == (["ping", "177"] if answered_s < 161 else ["177"])


async def test_it_looks_at_all_of_them_once_a_round_and_rests_when_there_are_none() -> None:
    silent_since_s = asyncio.get_running_loop().time() - INTERVAL_S
    heartbeat, clients = Heartbeat(INTERVAL_S), [Client(silent_since_s) for _ in range(40)]
    for client in clients:
        heartbeat.add(client)
    for _ in heartbeat._groups:
        assert heartbeat._timer is not None
        heartbeat._timer.cancel()
        heartbeat._look()
    assert [client.done for client in clients] == [["ping"]] * 40
    for client in clients:
        heartbeat.remove(client)
    assert heartbeat._timer is None
