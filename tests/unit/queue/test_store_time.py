"""Clocks that differ: all processes go by the store's."""

from __future__ import annotations

import pytest

from astyqueue import MessageQueue, ids
from astyqueue.clock import Comparison, CorrectedClock
from astyqueue.errors import BadInput, StoreUnavailable
from astyqueue.protocol.coordination.store_time import clock_offset
from astyqueue.protocol.steps import Commit, Read, Request, run
from astyqueue.queue.connection import Connection
from astyqueue.queue.settings_sync import ClockSync
from astyqueue.store import Named
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND, MonotonicUs

HOUR = 3_600 * SECOND


@pytest.mark.parametrize("difference", [0, 5 * SECOND, -5 * SECOND])
def test_the_write_time_of_a_commit_tells_how_far_the_store_is_ahead(clock: TimeMachine, difference: int) -> None:
    store = MemoryStore(clock)
    assert run(clock_offset(lambda: clock.now() - difference, 0, nonce=ids.nonce()), store) == difference


def test_clocks_that_may_agree_are_taken_to_agree(clock: TimeMachine) -> None:
    """The commit took two seconds as we saw it, so a store that seems one second ahead may as well not be."""
    times = iter([clock.now() - SECOND, clock.now() + SECOND])
    assert run(clock_offset(lambda: next(times), 0, nonce=ids.nonce()), MemoryStore(clock)) == 0


class Busy(Faulty):
    """A store in which another process always reads the time as well, just before we read."""

    def perform(self, request: Request) -> object:
        if isinstance(request, Read):
            run(clock_offset(lambda: 0, 0, nonce=ids.nonce()), self._store)
        return super().perform(request)


def test_a_commit_that_somebody_else_overwrote_tells_nothing(clock: TimeMachine) -> None:
    assert run(clock_offset(clock.now, 0, nonce=ids.nonce()), Busy(MemoryStore(clock))) is None


def test_a_queue_goes_by_the_time_of_its_store() -> None:
    behind = TimeMachine(CorrectedClock().now() - HOUR)
    with MessageQueue.builder().store(MemoryStore(behind)).name("mail").build() as queue:
        sent = queue.send("hello")
        assert abs(sent.id.moment - behind.now()) < 60 * SECOND
        assert abs(queue.clock.now() - behind.now()) < 60 * SECOND
        assert queue.receive()[0].body == "hello"


def test_a_clock_that_was_handed_in_is_not_corrected(clock: TimeMachine) -> None:
    store = Recording(MemoryStore(TimeMachine(clock.now() + HOUR)))
    with MessageQueue.builder().store(store).clock(clock).name("mail").build() as queue:
        assert queue.send("hello").id.moment == clock.now()
    assert not any(request.batch.row == ":time" for request in store.requests if isinstance(request, Commit))


def test_the_store_is_asked_once_a_minute_and_not_for_every_message() -> None:
    store = Recording(MemoryStore(CorrectedClock()))
    with MessageQueue.builder().store(store).name("mail").build() as queue:
        for _ in range(10):
            queue.send("hello")
    assert sum(request.batch.row == ":time" for request in store.requests if isinstance(request, Commit)) == 1


class Standing(CorrectedClock):
    """A clock of this machine that is moved by hand: it goes on, and it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = self._set = 0

    def pass_by(self, microseconds: int) -> None:
        self._passed += microseconds

    def be_set(self, microseconds: int) -> None:
        self._set += microseconds

    def monotonic(self) -> MonotonicUs:
        return super().monotonic() + self._passed

    def comparison(self) -> Comparison:
        at, shift = super().comparison()
        return Comparison(at, shift + self._set + self._passed)


def asked_for_the_time(store: Recording) -> int:
    return sum(request.batch.row == ":time" for request in store.requests if isinstance(request, Commit))


def test_the_queues_of_a_connection_ask_for_the_time_once() -> None:
    store = Recording(MemoryStore(CorrectedClock()))
    with Connection(store, None) as connection:
        for name in ("emails", "reports", "bills"):
            queue = connection.queue(name)
            queue.send("hello")
            assert queue.receive()
    assert asked_for_the_time(store) == 1


def test_who_only_sends_asks_for_the_time_once_an_hour_and_who_receives_once_a_minute() -> None:
    clock = Standing()
    store = Recording(MemoryStore(clock))
    with MessageQueue.builder().store(store).clock(clock).name("mail").build() as queue:
        for _ in range(31):
            queue.send("hello")
            clock.pass_by(80 * SECOND)
        assert asked_for_the_time(store) == 1
        queue.receive()
        assert asked_for_the_time(store) == 2
        clock.pass_by(80 * SECOND)
        queue.receive()
        assert asked_for_the_time(store) == 3
        clock.pass_by(80 * 60 * SECOND)
        queue.send("hello")
        assert asked_for_the_time(store) == 4


def test_a_clock_that_was_set_is_compared_at_once() -> None:
    clock = Standing()
    store = Recording(MemoryStore(clock))
    with MessageQueue.builder().store(store).clock(clock).name("mail").build() as queue:
        for step in (0, SECOND // 2, -5 * SECOND, 0):
            clock.be_set(step)
            queue.send("hello")
    assert asked_for_the_time(store) == 2


def test_a_store_that_does_not_answer_leaves_the_clock_as_it_was() -> None:
    clock = CorrectedClock()
    store = Failing(MemoryStore(clock), StoreUnavailable("away"))
    run(ClockSync(clock).follow(), store)
    assert clock.ahead == 0


def test_a_comparison_that_failed_is_repeated_soon_also_by_who_only_sends() -> None:
    clock = Standing()
    store = Recording(MemoryStore(clock))
    keeping = ClockSync(clock)
    run(keeping.follow(only_sends=True), Failing(MemoryStore(clock), StoreUnavailable("away")))
    run(keeping.follow(only_sends=True), store)
    assert asked_for_the_time(store) == 0
    clock.pass_by(30 * SECOND)
    run(keeping.follow(only_sends=True), store)
    run(keeping.follow(only_sends=True), store)
    assert asked_for_the_time(store) == 1


def test_a_slow_commit_does_not_move_a_clock_that_may_be_right(clock: TimeMachine) -> None:
    """What is known to be five minutes ahead stays so, also when an answer takes so long that it says less."""
    times = iter([clock.now() - 300 * SECOND, clock.now() - 298 * SECOND])
    assert run(clock_offset(lambda: next(times), 300 * SECOND, nonce=ids.nonce()), MemoryStore(clock)) == 300 * SECOND


def test_a_store_whose_clock_was_set_back_tells_nothing_until_its_times_go_on(clock: TimeMachine) -> None:
    """Commits of a row never go back in time; after a clock that did, their times creep on by a microsecond."""
    store = MemoryStore(clock)
    assert run(clock_offset(clock.now, 0, nonce=ids.nonce()), store) == 0
    clock.set(clock.now() - 3_600 * SECOND)
    assert run(clock_offset(clock.now, 0, nonce=ids.nonce()), store) is None
    clock.advance("61m")
    assert run(clock_offset(clock.now, 0, nonce=ids.nonce()), store) == 0


def settings_read(store: Recording) -> int:
    return sum(
        isinstance(wanted, Named) and wanted.row == "mail:settings"
        for request in store.requests
        if isinstance(request, Read)
        for wanted in request.wanted
    )


def test_sends_look_at_the_settings_only_where_nobody_receives(clock: TimeMachine) -> None:
    store = Recording(MemoryStore(clock))
    with MessageQueue.builder().store(store).clock(clock).name("mail").build() as queue:
        store.requests.clear()
        for _ in range(1_000):
            clock.advance("1s")
            queue.send("hello")
        assert settings_read(store) == 125
        store.requests.clear()
        for _ in range(100):
            queue.receive()
            store.requests.clear()
            clock.advance("5s")
            queue.send("hello")
            assert settings_read(store) == 0


def test_who_only_sends_follows_changed_settings_within_ten_seconds(clock: TimeMachine) -> None:
    store = MemoryStore(clock)
    with MessageQueue.builder().store(store).clock(clock).name("mail").build() as queue:
        MessageQueue.builder().store(store).clock(clock).name("mail").build().configure(body_bytes=10)
        clock.advance("9s")
        with pytest.raises(BadInput):
            queue.send("a body of more than ten bytes")
