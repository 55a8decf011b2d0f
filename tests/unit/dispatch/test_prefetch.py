"""How much is claimed, when, and in how many commits."""

from __future__ import annotations

import threading

import pytest

from astyqueue.clock import SystemClock
from astyqueue.dispatch.consumers import MultiQueueConsumer
from astyqueue.dispatch.flow_control import AdaptivePrefetch
from astyqueue.dispatch.slots import ClaimCredit, FreeSlots, ReadyDeliveries
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND
from tests.support.places import Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Gate, Stage

LEASE = 120 * SECOND
MILLISECOND = SECOND // 1_000


@pytest.mark.parametrize(("threads", "backlog"), [(1, 0), (2, 5), (3, 10), (1, 1)])
def test_blocked_handlers_leave_all_but_their_own_and_the_backlog_in_the_queue(
    stage: Stage, threads: int, backlog: int
) -> None:
    """The backlog is filled in gulps of half its bound, so it may lack a little less than that."""
    gate = Gate()
    stage.queue.send_many(range(50))
    stage.start(gate, threads=threads, backlog=backlog)
    gate.when_entered(threads)
    stage.when(lambda: stage.stats.received >= threads + backlog - backlog // 2)
    stage.look_around()
    stage.look_around()
    assert stage.stats.received <= threads + backlog
    gate.open.set()
    assert stage.when_settled(50) == {"acked": 50}


def test_before_handlers_are_known_to_be_quick_each_free_one_gets_one(stage: Stage) -> None:
    gate = Gate()
    stage.queue.send_many(range(50))
    stage.start(gate, threads=4)
    gate.when_entered(4)
    stage.look_around()
    assert stage.stats.received == 4
    gate.open.set()


def test_a_handler_that_ends_has_the_next_claimed_at_once_without_any_tick(still: Stage) -> None:
    """Time stands still: only what happens can bring the next message."""
    seen: list[object] = []
    all_seen = threading.Event()

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if len(seen) == 20:
            all_seen.set()

    still.queue.send_many(range(20))
    still.start(handle, threads=1, backlog=0)
    assert all_seen.wait(DEADLINE)
    assert seen == list(range(20))


class CommitGate(Faulty):
    """A store whose commits wait while it is closed."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.open = threading.Event()
        self.open.set()

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit):
            assert self.open.wait(DEADLINE)
        return super().perform(request)


def test_messages_are_claimed_together_and_acks_that_come_during_a_commit_share_the_next(
    stages: Stages, place: Place
) -> None:
    gate = CommitGate(place.store(SystemClock()))
    stage = stages(store=gate)
    stage.queue.send_many(range(200))
    claimed, handled = threading.Event(), threading.Semaphore(0)

    def handle(_: Delivery) -> None:
        assert claimed.wait(DEADLINE)
        handled.release()

    before = stage.commits
    stage.start(handle, threads=4, backlog=200)
    stage.when(lambda: stage.stats.received == 200)
    assert stage.commits - before < 10
    gate.open.clear()
    before = stage.commits
    claimed.set()
    assert all(handled.acquire(timeout=DEADLINE) for _ in range(200))
    gate.open.set()
    assert stage.when_settled(200) == {"acked": 200}
    assert stage.commits - before < 5


@pytest.mark.every_store
def test_sixty_four_threads_share_the_work_and_nothing_is_handled_twice(stage: Stage) -> None:
    at_once = threading.Barrier(64)
    seen: list[object] = []

    def handle(delivery: Delivery) -> None:
        at_once.wait(DEADLINE)
        seen.append(delivery.body)

    stage.queue.send_many(range(256))
    stage.start(handle, threads=64)
    assert stage.when_settled(256) == {"acked": 256}
    assert sorted(map(str, seen)) == sorted(map(str, range(256)))


def test_a_message_sent_while_all_wait_is_handled_at_once(still: Stage) -> None:
    gate = Gate()
    gate.open.set()
    still.start(gate, threads=2)
    for number in range(5):
        still.queue.send(number)
        gate.when_entered()
    assert gate.bodies == list(range(5))


@pytest.mark.parametrize("set_back", [0, 600 * SECOND], ids=["clock goes on", "clock set back"])
def test_what_waits_behind_handlers_that_turned_out_slow_is_released(
    stages: Stages, clock: TimeMachine, set_back: int
) -> None:
    stage = stages(clock)
    gate = Gate()
    quick = threading.Event()

    def handle(delivery: Delivery) -> None:
        if isinstance(delivery.body, str):
            gate(delivery)
        elif delivery.body == 99:
            quick.set()

    stage.queue.send_many(range(100))
    stage.start(handle, threads=1)
    assert quick.wait(DEADLINE)
    stage.queue.send_many(["slow", *range(20)])
    gate.when_entered()
    stage.when(lambda: stage.stats.received == 121)
    stage.look_around()
    clock.set(clock.now() - set_back)
    clock.advance("3s")
    stage.look_around()
    clock.advance("10ms")
    stage.when(lambda: stage.heard.count("released") == 20)
    assert len(stage.queue.receive(50)) == 20
    gate.open.set()


def test_the_bound_starts_at_nothing_and_grows_while_handlers_are_quick() -> None:
    prefetch = AdaptivePrefetch(8, LEASE)
    prefetch.adapt()
    assert prefetch.bound == 0
    for _ in range(100):
        prefetch.took(5)
    prefetch.adapt()
    assert prefetch.bound == 400


@pytest.mark.parametrize(
    ("took", "bound"), [(SECOND, 0), (200 * MILLISECOND, 4), (100 * MILLISECOND, 8), (10 * MILLISECOND, 80), (1, 400)]
)
def test_the_bound_is_what_handlers_take_in_a_tenth_of_a_second(took: int, bound: int) -> None:
    prefetch = AdaptivePrefetch(8, LEASE)
    for _ in range(300):
        prefetch.took(took)
    prefetch.adapt()
    assert prefetch.bound == pytest.approx(bound, abs=1)


def test_the_bound_shrinks_when_handlers_turn_slow() -> None:
    prefetch = AdaptivePrefetch(8, LEASE)
    for _ in range(100):
        prefetch.took(5)
    prefetch.adapt()
    for _ in range(10):
        prefetch.took(5 * SECOND)
    prefetch.adapt()
    assert prefetch.bound == 0


def test_the_bound_follows_a_short_lease() -> None:
    prefetch = AdaptivePrefetch(8, SECOND // 10)
    for _ in range(300):
        prefetch.took(10 * MILLISECOND)
    prefetch.adapt()
    assert prefetch.bound == pytest.approx(8, abs=1)


def test_small_swings_leave_the_bound_alone() -> None:
    prefetch = AdaptivePrefetch(8, LEASE)
    for _ in range(300):
        prefetch.took(10 * MILLISECOND)
    prefetch.adapt()
    settled = prefetch.bound
    for _ in range(300):
        prefetch.took(14 * MILLISECOND)
    prefetch.adapt()
    assert prefetch.bound == settled


class Line:
    """The deliveries of one queue that wait, the credit for more, and a slot that takes one when the test says so."""

    def __init__(self, bound: int) -> None:
        self.calls: list[None] = []
        prefetch = AdaptivePrefetch(1, LEASE, bound)
        self.ready = ReadyDeliveries(SystemClock(), prefetch, None)
        self._credit = ClaimCredit(FreeSlots(), self.ready, prefetch, weight=1, wake=lambda: self.calls.append(None))
        self._slot: MultiQueueConsumer[Delivery] = MultiQueueConsumer(lambda: None)
        self._slot.add_queue(self.ready.manager)

    def credit(self) -> int:
        return self._credit.credit()

    def accept(self, deliveries: list[Delivery]) -> list[Delivery]:
        self._credit.arrived(len(deliveries))
        return self.ready.accept(deliveries)

    def take(self) -> Delivery | None:
        pulled = self._slot.pull()
        self._credit.taken()
        return None if pulled is None else pulled.ready.message

    def shut(self) -> list[Delivery]:
        self._credit.shut()
        return self.ready.shut()


def deliveries(stage: Stage, count: int) -> list[Delivery]:
    stage.queue.send_many(range(count))
    return [*stage.queue.receive(count)]


def test_credit_is_asked_for_in_gulps(still: Stage) -> None:
    line = Line(10)
    assert line.credit() == 10
    line.accept([*deliveries(still, 10)])
    assert line.credit() == 0
    for _ in range(4):
        line.take()
    assert (line.credit(), line.calls) == (0, [])
    line.take()
    assert line.calls == [None]
    assert line.credit() == 5


def test_credit_that_was_given_stands_while_its_messages_come_in_parts(still: Stage) -> None:
    line = Line(10)
    assert line.credit() == 10
    first, second = deliveries(still, 7), deliveries(still, 3)
    line.accept([*first])
    assert line.credit() == 3
    line.accept([*second])
    assert line.credit() == 0


def test_once_shut_there_is_no_credit_and_what_comes_late_is_released(still: Stage) -> None:
    line = Line(10)
    early, late = deliveries(still, 3), deliveries(still, 2)
    line.accept([*early])
    assert line.shut() == early
    assert line.credit() == 0
    assert line.accept([*late]) == late
    assert line.take() is None
