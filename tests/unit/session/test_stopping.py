"""Timers of turns: nearly all are left before their time, and none may be lost or kept."""

import asyncio
import gc
import weakref

from proxy.session.stopping import Timers


async def test_a_timer_calls_once_its_time_has_come_and_one_that_was_left_does_not() -> None:
    timers, rung = Timers(), asyncio.Event()
    called: list[str] = []
    with timers.after(0.001, called.append, "left"):
        pass
    with timers.after(0.002, called.append, "first"), timers.after(0.004, rung.set):
        await rung.wait()
    assert called == ["first"]


async def test_an_earlier_timer_does_not_wait_for_a_later_one() -> None:
    timers, rung = Timers(), asyncio.Event()
    with timers.after(3600, rung.clear), timers.after(0.001, rung.set):
        await rung.wait()


async def test_a_timer_may_begin_another_when_it_calls() -> None:
    timers, rung = Timers(), asyncio.Event()
    second = timers.after(0.001, rung.set)
    with timers.after(0.001, second.__enter__):
        await rung.wait()


async def test_one_that_raises_keeps_no_other_from_its_time() -> None:
    def fail() -> None:
        raise ValueError("told to the loop")

    timers, rung, told = Timers(), asyncio.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
    with timers.after(0.001, fail), timers.after(0.001, rung.set), timers.after(0.002, told.append, "later"):
        await rung.wait()
        while len(told) < 2:
            await asyncio.sleep(0)
    assert told[-1] == "later"


async def test_what_was_left_is_not_kept_alive_and_takes_no_memory_without_end() -> None:
    class Turn:
        def begin(self) -> None: ...

    timers, turn = Timers(), Turn()
    kept = weakref.ref(turn)
    with timers.after(3600, turn.begin):
        for _ in range(10_000):
            with timers.after(3600, turn.begin):
                pass
        assert len(timers) < 1000
    del turn
    gc.collect()
    assert kept() is None
