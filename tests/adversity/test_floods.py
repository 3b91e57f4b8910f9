"""Floods in small, counted and not timed: whatever was opened is gone at the end. `make flood` has the large ones."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from tests.adversity import floods
from tests.house import House, open_house

SMALL = {"limits.frame_bytes": 1_000_000, "limits.frame_hard_bytes": 2_000_000}


async def flood(house: House, attacks: tuple[floods.Attack, ...], each: int, at_once: int = 10) -> Counter[str]:
    done: Counter[str] = Counter()
    waves = (itertools.islice(itertools.cycle(attacks), each) for _ in range(at_once))
    async with house.connect() as client:
        flooding = asyncio.gather(*(floods.repeat(wave, house.url, done) for wave in waves))
        while not flooding.done():
            await client.says("still here")
        await flooding
    assert not [name for name in done if name.startswith("lost")], done
    return done


async def test_sockets_opened_and_left_are_all_gone() -> None:
    async with open_house("chat") as house:
        done = await flood(house, floods.SOCKETS, each=25)
        assert done["opened"] == 250
        await house.watcher.wait_for(lambda: len(house.watcher.sessions) == 251)
        await house.empty()
        await house.upstream.wait_for(lambda upstream: all(r.finished or r.aborted for r in upstream.requests), 5)


async def test_bombs_are_told_of_and_closed_with_1009_each() -> None:
    async with open_house("chat", SMALL) as house:

        async def explode(url: str, done: Counter[str]) -> None:
            await floods.explode(url, done, 16 * floods.MIB)

        done = await flood(house, (explode,), each=5)
        assert done == {"bombs": 50, "bombs: message_too_large, close 1009": 50}
        await house.empty()


@pytest.mark.parametrize("bytes_each", [0, 3])
async def test_senders_that_never_finish_are_gone_with_their_connections(bytes_each: int) -> None:
    async with open_house("chat") as house:

        async def trickle(url: str, done: Counter[str]) -> None:
            await floods.trickle(url, done, 0.01, bytes_each)

        done = await flood(house, (trickle,), each=6, at_once=50)
        assert sum(done.values()) == 300
        await house.empty()
