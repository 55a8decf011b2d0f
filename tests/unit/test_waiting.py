"""Waiting for a time or a signal, as a thread and as a task."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from astyqueue.clock import Clock, SystemClock
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import BargingLock, Wakeup
from tests.support.interrupting import Interrupting

DEADLINE = 10


@pytest.fixture(params=[TimeMachine, SystemClock])
def any_clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def in_threads(count: int, work: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads)


async def others_go_on() -> None:
    """Come back when every task that was ready has had its turn."""
    turn = asyncio.Event()
    asyncio.get_running_loop().call_soon(turn.set)
    await turn.wait()


def test_a_signal_before_the_wait_is_not_lost(any_clock: Clock) -> None:
    wakeup = Wakeup(any_clock)
    wakeup.set()
    join(in_threads(1, wakeup.wait))


def test_signals_before_the_wait_count_as_one(clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)
    wakeup.set()
    wakeup.set()
    wakeup.wait()
    second = in_threads(1, wakeup.wait)
    clock.when_waiting(1, DEADLINE)
    assert second[0].is_alive()
    wakeup.set()
    join(second)


def test_a_signal_lets_every_thread_that_waits_go_on(clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)
    threads = in_threads(8, wakeup.wait)
    clock.when_waiting(8, DEADLINE)
    wakeup.set()
    join(threads)
    assert clock.waiters == 0


def test_no_signal_is_lost_between_a_thread_that_sets_and_one_that_waits(any_clock: Clock) -> None:
    """Two threads take turns a thousand times; one lost signal and both would wait for ever."""
    there, back = Wakeup(any_clock), Wakeup(any_clock)
    rounds = 1_000

    def answer() -> None:
        for _ in range(rounds):
            there.wait()
            back.set()

    def ask() -> None:
        for _ in range(rounds):
            there.set()
            back.wait()

    join([*in_threads(1, answer), *in_threads(1, ask)])


def test_a_wait_for_a_moment_that_has_passed_returns_at_once(any_clock: Clock) -> None:
    Wakeup(any_clock).wait(any_clock.monotonic())
    asyncio.run(Wakeup(any_clock).wait_in_task(any_clock.monotonic()))


def test_a_wait_ends_by_real_time() -> None:
    clock = SystemClock()
    until = clock.monotonic() + SECOND // 100
    Wakeup(clock).wait(until)
    assert clock.monotonic() >= until
    asyncio.run(Wakeup(clock).wait_in_task(clock.monotonic() + SECOND // 100))
    assert clock.monotonic() >= until + SECOND // 100


def test_a_thread_that_waits_for_a_moment_goes_on_when_time_is_moved_there(clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)
    until = clock.monotonic() + 60 * SECOND
    arrived: list[MonotonicUs] = []

    def work() -> None:
        while clock.monotonic() < until:
            wakeup.wait(until)
        arrived.append(clock.monotonic())

    threads = in_threads(4, work)
    clock.when_waiting(4, DEADLINE).advance("59s")
    clock.advance("1s")
    join(threads)
    assert arrived == [until] * 4


def test_a_signal_from_a_thread_wakes_a_task(any_clock: Clock) -> None:
    async def work() -> None:
        wakeup = Wakeup(any_clock)
        waiting = asyncio.create_task(wakeup.wait_in_task())
        await others_go_on()
        setter = in_threads(1, wakeup.set)
        async with asyncio.timeout(DEADLINE):
            await waiting
        join(setter)

    asyncio.run(work())


def test_a_signal_before_a_task_waits_is_not_lost(any_clock: Clock) -> None:
    async def work() -> None:
        wakeup = Wakeup(any_clock)
        wakeup.set()
        async with asyncio.timeout(DEADLINE):
            await wakeup.wait_in_task()

    asyncio.run(work())


def test_the_event_loop_goes_on_while_tasks_wait_and_one_signal_wakes_them_all(clock: TimeMachine) -> None:
    async def work() -> None:
        wakeup = Wakeup(clock)
        waiting = [asyncio.create_task(wakeup.wait_in_task()) for _ in range(5)]
        await others_go_on()
        assert clock.waiters == 5
        wakeup.set()
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*waiting)

    asyncio.run(work())
    assert clock.waiters == 0


def test_threads_and_tasks_wait_for_the_same_signal(clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)
    threads = [*in_threads(2, wakeup.wait), *in_threads(2, lambda: asyncio.run(wakeup.wait_in_task()))]
    clock.when_waiting(4, DEADLINE)
    wakeup.set()
    join(threads)


def test_a_cancelled_task_leaves_nothing_behind(clock: TimeMachine) -> None:
    async def work() -> None:
        wakeup = Wakeup(clock)
        waiting = asyncio.create_task(wakeup.wait_in_task(clock.monotonic() + SECOND))
        await others_go_on()
        assert clock.waiters == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert clock.waiters == 0

    asyncio.run(work())


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_wakeup_lets_go_of_the_loops_whose_tasks_waited(clock: TimeMachine, *, cancelled: bool) -> None:
    wakeup = Wakeup(clock)

    async def work() -> weakref.ref[asyncio.AbstractEventLoop]:
        waiting = asyncio.create_task(wakeup.wait_in_task())
        await others_go_on()
        if cancelled:
            waiting.cancel()
        wakeup.set()
        await asyncio.wait([waiting], timeout=DEADLINE)
        assert waiting.cancelled() is cancelled
        return weakref.ref(asyncio.get_running_loop())

    loop = asyncio.run(work())
    gc.collect()
    assert loop() is None


def test_a_signal_that_finds_its_task_cancelled_is_left_for_the_next_to_wait(clock: TimeMachine) -> None:
    async def work() -> None:
        wakeup = Wakeup(clock)
        cancelled = asyncio.create_task(wakeup.wait_in_task())
        await others_go_on()
        wakeup.set()
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        async with asyncio.timeout(DEADLINE):
            await wakeup.wait_in_task()

    asyncio.run(work())


def test_a_loop_that_was_closed_with_a_task_in_it_does_not_trouble_who_signals(clock: TimeMachine) -> None:
    wakeup = Wakeup(clock)
    loop = asyncio.new_event_loop()
    left = loop.create_task(wakeup.wait_in_task())
    loop.run_until_complete(others_go_on())
    assert clock.waiters == 1
    loop.close()
    wakeup.set()
    clock.advance(1)
    left.get_coro().close()
    assert clock.waiters == 0
    assert repr(left)


def test_a_signal_that_is_interrupted_at_any_point_keeps_no_other_thread_from_signalling(clock: TimeMachine) -> None:
    for at in itertools.count(1):
        wakeup, interrupting = Wakeup(clock), Interrupting(at)
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            wakeup.set()
        join(in_threads(1, wakeup.set))
        if interrupting.points < at:
            break


def test_a_signal_that_no_wait_has_seen_shows_until_one_sees_it(any_clock: Clock) -> None:
    wakeup = Wakeup(any_clock)
    assert not wakeup.signalled
    wakeup.set()
    wakeup.set()
    assert wakeup.signalled
    wakeup.wait(any_clock.monotonic())
    assert not wakeup.signalled


@pytest.fixture
def threads_that_change_often() -> Iterator[None]:
    """Threads that lose the interpreter lock after a few bytecodes, also inside short sections."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_change_often")
def test_one_thread_at_a_time_is_in_a_barging_lock_and_none_is_left_waiting() -> None:
    lock = BargingLock()
    inside: list[None] = []
    most_inside: list[int] = []
    entered: list[None] = []

    def enter_often() -> None:
        for _ in range(2_000):
            with lock:
                inside.append(None)
                most_inside.append(len(inside))
                inside.pop()
        entered.append(None)

    join(in_threads(8, enter_often))

    assert len(entered) == 8
    assert len(most_inside) == 8 * 2_000
    assert set(most_inside) == {1}


def test_a_barging_lock_whose_block_is_interrupted_at_any_point_is_free_afterwards() -> None:
    for at in itertools.count(1):
        lock, interrupting = BargingLock(), Interrupting(at)
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            enter(lock)
        join(in_threads(1, partial(enter, lock)))
        if interrupting.points < at:
            break


def enter(lock: BargingLock) -> None:
    with lock:
        pass


def test_an_error_in_a_barging_lock_frees_it_for_a_thread_that_waits() -> None:
    lock, waits, entered = BargingLock(), threading.Event(), threading.Event()

    def enter() -> None:
        waits.set()
        with lock:
            entered.set()

    def fail_inside() -> None:
        with lock:
            in_threads(1, enter)
            assert waits.wait(DEADLINE)
            assert not entered.is_set()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_inside()

    assert entered.wait(DEADLINE)
