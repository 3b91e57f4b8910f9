"""A signal wakes whoever waits, as asyncio.Event does."""

from __future__ import annotations

import asyncio

import pytest

from proxy.session.signal import Signal


async def test_everybody_who_waits_is_woken_and_later_ones_do_not_wait() -> None:
    signal = Signal()
    waiting = [asyncio.ensure_future(signal.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    signal.set()
    await asyncio.gather(*waiting, signal.wait())
    assert signal.is_set()


async def test_after_clear_one_waits_for_the_next() -> None:
    signal = Signal(is_set=True)
    signal.clear()
    waiting = asyncio.ensure_future(signal.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    signal.set()
    signal.clear()  # who waited before is woken all the same
    await waiting


async def test_one_that_is_cancelled_leaves_the_others() -> None:
    signal = Signal()
    first, second = (asyncio.ensure_future(signal.wait()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    signal.set()
    await second
