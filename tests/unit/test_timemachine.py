"""Time in the hand of a test."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from astyqueue.clock import Clock, microseconds
from astyqueue.errors import BadInput
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

DEADLINE = 10


def test_it_starts_at_a_round_moment_or_where_it_is_told() -> None:
    new_year = datetime(2026, 1, 1, tzinfo=UTC)
    assert TimeMachine().instant == new_year
    assert TimeMachine(new_year + timedelta(days=1)).now() == microseconds(new_year) + 86_400 * SECOND
    assert TimeMachine(17).now() == 17


def test_a_naive_start_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        TimeMachine(datetime(2026, 1, 1))  # noqa: DTZ001 - the mistake this is about


def test_it_is_a_clock(clock: TimeMachine) -> None:
    as_clock: Clock = clock
    assert as_clock.now() == clock.now()


def test_time_stands_still_until_it_is_moved(clock: TimeMachine) -> None:
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())


def test_advancing_moves_both_clocks(clock: TimeMachine) -> None:
    wall, monotonic = clock.now(), clock.monotonic()
    clock.advance("10s").advance(0.5).advance(timedelta(microseconds=1))
    assert clock.now() - wall == clock.monotonic() - monotonic == 10_500_001


def test_time_does_not_pass_backwards(clock: TimeMachine) -> None:
    with pytest.raises(BadInput):
        clock.advance(-1)


def test_setting_moves_the_wall_clock_alone_either_way(clock: TimeMachine) -> None:
    monotonic = clock.monotonic()
    assert clock.set(datetime(2030, 1, 1, tzinfo=UTC)).instant.year == 2030
    assert clock.set(0).now() == 0
    assert clock.monotonic() == monotonic


def test_the_two_clocks_are_never_alike(clock: TimeMachine) -> None:
    assert abs(clock.now() - int(clock.monotonic())) > 365 * 86_400 * SECOND


def test_only_a_move_can_tell_how_long_a_wait_for_a_later_moment_is(clock: TimeMachine) -> None:
    until = clock.monotonic() + SECOND
    assert clock.blocking_seconds(until) is None
    assert clock.advance("999ms").blocking_seconds(until) is None
    assert clock.advance("1ms").blocking_seconds(until) == 0


def test_every_move_wakes_whoever_watches_until_they_stop(clock: TimeMachine) -> None:
    calls: list[int] = []
    stop = clock.on_move(lambda: calls.append(clock.now()))
    clock.advance(1).set(5)
    stop()
    stop()
    clock.advance(1)
    assert len(calls) == 2
    assert calls[-1] == 5


def test_it_counts_who_waits(clock: TimeMachine) -> None:
    stops = [clock.on_move(lambda: None) for _ in range(3)]
    assert clock.waiters == 3
    stops[0]()
    assert clock.waiters == 2


def test_who_was_woken_does_not_wait_until_it_waits_again(clock: TimeMachine) -> None:
    stop = clock.on_move(lambda: None)
    clock.advance("1s")
    assert clock.waiters == 0
    clock.on_move(lambda: None)
    assert clock.waiters == 1
    stop()
    assert clock.waiters == 1


def test_it_tells_when_threads_wait_so_that_no_test_sleeps(clock: TimeMachine) -> None:
    until = clock.monotonic() + 3_600 * SECOND
    threads = [threading.Thread(target=Wakeup(clock).wait, args=(until,), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    clock.when_waiting(3, DEADLINE).advance("1h")
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads)
    assert clock.waiters == 0


def test_a_thread_waiting_on_the_wall_clock_wakes_when_it_is_set(clock: TimeMachine) -> None:
    """What a worker does: turn a wall time into a wait, and look at the wall clock again whenever it wakes."""
    due = clock.now() + 86_400 * SECOND
    wakeup = Wakeup(clock)

    def work() -> None:
        while (left := due - clock.now()) > 0:
            wakeup.wait(clock.monotonic() + left)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    clock.when_waiting(1, DEADLINE).set(due)
    thread.join(DEADLINE)
    assert not thread.is_alive()


def test_a_task_wakes_when_time_is_advanced_from_another_thread(clock: TimeMachine) -> None:
    async def work() -> None:
        mover = threading.Thread(target=lambda: clock.when_waiting(1, DEADLINE).advance("1h"))
        mover.start()
        async with asyncio.timeout(DEADLINE):
            await Wakeup(clock).wait_in_task(clock.monotonic() + 3_600 * SECOND)
        mover.join(DEADLINE)

    asyncio.run(work())
    assert clock.waiters == 0


def test_waiting_for_waiters_ends_with_an_error_that_counts_them(clock: TimeMachine) -> None:
    clock.on_move(lambda: None)
    with pytest.raises(TimeoutError, match=r"1 of 2 wait on this clock after 0\.01 s"):
        clock.when_waiting(2, 0.01)


def test_it_shows_where_it_stands(clock: TimeMachine) -> None:
    assert repr(clock.advance("90s")) == "TimeMachine(2026-01-01T00:01:30+00:00)"
