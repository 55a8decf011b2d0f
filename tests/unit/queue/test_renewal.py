"""A lease is renewed as one: what that costs does not depend on how many messages it covers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import FrameType

import pytest

import astyqueue
from astyqueue import Delivery, Hook, Message, MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import LeaseLost, OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Request, Steps
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.runtime import ReceiveRequest
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.waiting import Rest
from tests.support.forks import beside_threads, in_a_fork
from tests.support.places import Place

#: Longer than the part of a lease of thirty seconds after which it is renewed.
HALF = "15s"
LEASE = timedelta(seconds=30)
DEADLINE = 20


@dataclass
class Told(Hook):
    """Notes what became of deliveries."""

    outcomes: list[tuple[object, str]] = field(default_factory=list)

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        self.outcomes.append((delivery.body, outcome))


def open_queue(store: Store, clock: TimeMachine, *hooks: Hook, shards: int = 1) -> MessageQueue:
    builder = MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).concurrency_shards(shards)
    for hook in hooks:
        builder = builder.hook(hook)
    return builder.build()


def receive(queue: MessageQueue, count: int) -> list[Delivery]:
    """Receive as those do whose leases are renewed."""
    taken = queue.run(queue.core.take(ReceiveRequest(count, 0, queue.delivery, renew=True)))
    return [delivery for delivery in taken if isinstance(delivery, Delivery)]


def renew(queue: MessageQueue) -> None:
    """Renew what is due, as the thread that renews does, until there is nothing to do."""
    queue.run(_until_rest(queue.core.claimer.renew_leases(lambda: False)))


def _until_rest(steps: Steps[None]) -> Steps[None]:
    with closing(steps):
        request = next(steps)
        while not isinstance(request, Rest):
            try:
                answer = yield request
            except StoreError as error:
                request = steps.throw(error)
            else:
                request = steps.send(answer)


def calls_of(work: Callable[[], object]) -> int:
    """The number of calls of functions of the package that this takes."""
    package = str(Path(astyqueue.__file__).parent)
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(package)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def cost_of_renewal(clock: TimeMachine, messages: int) -> tuple[int, int, int]:
    """Commits, changed columns, and calls of a renewal of one lease of this number of messages."""
    store = Recording(MemoryStore(clock))
    with open_queue(store, clock) as queue:
        queue.send_many(range(messages))
        deliveries = receive(queue, messages)
        assert len(deliveries) == messages
        clock.advance(HALF)
        store.requests.clear()
        calls = calls_of(lambda: renew(queue))
        commits = commits_of(store)
        assert {delivery.lease_until for delivery in deliveries} == {clock.instant + LEASE}
    return len(commits), sum(len(one.batch.puts) + len(one.batch.deletes) for one in commits), calls


def commits_of(store: Recording) -> list[Commit]:
    return [request for request in store.requests if isinstance(request, Commit)]


def test_renewing_two_hundred_messages_of_a_lease_costs_as_much_as_renewing_one(clock: TimeMachine) -> None:
    commits, columns, calls = cost_of_renewal(clock, 1)
    many_commits, many_columns, many_calls = cost_of_renewal(clock, 200)
    assert (commits, columns) == (many_commits, many_columns) == (1, 2)
    assert abs(many_calls - calls) <= 5


def with_ack_of_another_row(queue: MessageQueue, clock: TimeMachine) -> tuple[Delivery, Delivery]:
    """A delivery whose lease is to be renewed now, and one of another row whose ack was just handed in."""
    queue.send("one")
    queue.send("other")
    [one], [other] = receive(queue, 1), receive(queue, 1)
    assert one.row != other.row
    clock.advance(HALF)
    queue.core.claimer.settle_later(other, ACK)
    return one, other


class SlowClaims(Faulty):
    """A store whose first commit takes nearly as long as a lease."""

    def __init__(self, store: Store, clock: TimeMachine) -> None:
        super().__init__(store)
        self.clock = clock
        self.slow = False

    def perform(self, request: Request) -> object:
        if self.slow and isinstance(request, Commit):
            self.slow = False
            self.clock.advance("27s")
        return super().perform(request)


def test_a_claim_that_was_slow_does_not_make_all_later_leases_short(clock: TimeMachine) -> None:
    store = SlowClaims(MemoryStore(clock), clock)
    queue = open_queue(store, clock)
    queue.send("work")
    store.slow = True
    [delivery] = receive(queue, 1)
    clock.advance("1800ms")  # three fifths of the three seconds that are left
    renew(queue)
    assert delivery.lease_until == clock.instant + LEASE


def test_a_renewal_does_not_hurry_outcomes_of_other_rows(clock: TimeMachine) -> None:
    store = Recording(MemoryStore(clock))
    with open_queue(store, clock, shards=2) as queue:
        one, other = with_ack_of_another_row(queue, clock)
        store.requests.clear()
        renew(queue)
        assert {commit.batch.row for commit in commits_of(store)} == {one.row}
        clock.advance("5ms")
        renew(queue)
        assert {commit.batch.row for commit in commits_of(store)} == {one.row, other.row}


def test_what_is_not_to_be_renewed_keeps_the_end_of_its_lease(place: Place, clock: TimeMachine) -> None:
    with open_queue(place.store(clock), clock) as queue:
        queue.send_many(range(5))
        deliveries = receive(queue, 5)
        before = deliveries[0].lease_until
        clock.advance(HALF)
        deliveries[0].renew_until = clock.now()
        deliveries[1].ack()
        renew(queue)
        kept, _, *renewed = deliveries
        assert kept.lease_until == before
        assert {delivery.lease_until for delivery in renewed} == {clock.instant + LEASE}
        for delivery in (kept, *renewed):
            delivery.ack()
        assert queue.counts().total == 0


def test_a_lease_that_is_lost_before_it_is_renewed_is_reported_once_for_each_message(
    place: Place, clock: TimeMachine
) -> None:
    told = Told()
    store = place.store(clock)
    with open_queue(store, clock, told) as queue, open_queue(store, clock) as another:
        queue.send_many(range(3))
        deliveries = receive(queue, 3)
        clock.advance("31s")
        assert sum(len(another.receive(3)) for _ in range(3)) == 3
        assert deliveries[0].lease is not None
        queue.core.claimer._outcomes.renew(clock.now() - 2_000_000)  # noqa: SLF001 - the renewal was begun in time
        renew(queue)
        queue.core.claimer.notifier.finish(10)
        assert queue.stats.lost == 3
        assert sorted(told.outcomes) == [(number, "lost") for number in range(3)]
        with pytest.raises(LeaseLost):
            deliveries[0].ack()


@dataclass
class Renewing(Told):
    """Renews what is due between the commit of a transaction and what follows from that in this process."""

    queue: MessageQueue | None = None

    def after_send(self, message: Message, sent: MessageId) -> None:  # noqa: ARG002 - as a hook has them
        if self.queue:
            renew(self.queue)


def test_a_renewal_does_not_report_as_lost_what_a_transaction_has_just_acked(
    tmp_path: Path, clock: TimeMachine
) -> None:
    told = Renewing()
    with (
        closing(open_store(f"sqlite:///{tmp_path}/mail.db", clock=clock)) as store,
        open_queue(store, clock, told) as queue,
    ):
        queue.send("work")
        [delivery] = receive(queue, 1)
        clock.advance(HALF)
        told.queue = queue
        with queue.transaction() as tx:
            tx.send("bill")
            tx.ack(delivery)
        told.queue = None
        queue.core.claimer.notifier.finish(10)
        assert (delivery.settled, told.outcomes) == ("acked", [("work", "acked")])
        assert (queue.stats.lost, queue.stats.acked) == (0, 1)


@pytest.mark.parametrize("applied", [True, False])
def test_a_renewal_of_unknown_outcome_is_read_back(clock: TimeMachine, *, applied: bool) -> None:
    store = Failing(MemoryStore(clock), OutcomeUnknown("no answer"), at=2, of=(Commit,), applied=applied)
    with open_queue(store, clock) as queue:
        queue.send_many(range(3))
        deliveries = receive(queue, 3)
        clock.advance(HALF)
        renew(queue)
        assert {delivery.lease_until for delivery in deliveries} == {clock.instant + LEASE}
        for delivery in deliveries:
            delivery.ack()
        assert (queue.counts().total, queue.stats.lost) == (0, 0)


class Blocked(Faulty):
    """A store in which nothing can be committed to one row."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.row = ""

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and request.batch.row == self.row:
            message = "not now"
            raise StoreUnavailable(message)
        return super().perform(request)


def test_a_lease_that_cannot_be_renewed_is_tried_again_and_keeps_no_other_outcome_from_the_store(
    clock: TimeMachine,
) -> None:
    store = Blocked(MemoryStore(clock))
    with open_queue(store, clock, shards=2) as queue:
        one, _ = with_ack_of_another_row(queue, clock)
        store.row = one.row
        with pytest.raises(StoreUnavailable):
            renew(queue)
        renew(queue)
        assert queue.stats.acked == 0
        clock.advance("5ms")
        with pytest.raises(StoreUnavailable):
            renew(queue)
        assert queue.stats.acked == 1
        store.row = ""
        renew(queue)
        clock.advance("5ms")
        renew(queue)
        assert one.lease_until == clock.instant + LEASE - timedelta(milliseconds=10)


class HeldUp(Faulty):
    """A store whose reads by the thread that renews take until the store is closed, and at most a tenth of a second."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(SystemClock()))
        self.reading = threading.Event()
        self.closed = threading.Event()

    def perform(self, request: Request) -> object:
        if threading.current_thread().name == "astyqueue:renewal":
            self.reading.set()
            self.closed.wait(0.1)
        return super().perform(request)

    def close(self) -> None:
        self.closed.set()
        super().close()


def renewal_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "astyqueue:renewal"]


def test_a_queue_that_was_closed_uses_its_store_no_more() -> None:
    store = HeldUp()
    with MessageQueue.builder().store(store).name("emails").lease("1s").build() as queue:
        queue.send(1)
        for _ in queue.deliveries():
            assert store.reading.wait(DEADLINE)
            break
    assert not renewal_threads()
    store.close()


def test_the_thread_that_renews_ends_quietly_when_the_store_is_closed_first() -> None:
    store = HeldUp()
    queue = MessageQueue.builder().store(store).name("emails").lease("1s").build()
    queue.send(1)
    deliveries = queue.deliveries()
    next(deliveries)
    assert store.reading.wait(DEADLINE)
    store.close()
    deliveries.close()
    queue.close()


class Away(Faulty):
    """A store that takes no commits while it is away."""

    def __init__(self, clock: TimeMachine) -> None:
        super().__init__(MemoryStore(clock))
        self.away = False

    def perform(self, request: Request) -> object:
        if self.away and isinstance(request, Commit):
            reason = "away"
            raise StoreUnavailable(reason)
        return super().perform(request)


@pytest.mark.parametrize("ends", ["loop", "queue"])
def test_the_thread_that_renews_ends_with_its_loop_or_queue_in_the_pause_after_an_error(
    clock: TimeMachine, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    store = Away(clock)
    queue = open_queue(store, clock)
    queue.send("work")
    deliveries = queue.deliveries()
    next(deliveries)
    clock.when_waiting(1)
    store.away = True
    clock.advance(HALF)
    clock.when_waiting(1)
    store.away = False
    assert "renewal_failed" in caplog.text
    [thread] = renewal_threads()
    if ends == "loop":
        deliveries.close()
        thread.join(DEADLINE)
        assert not thread.is_alive()
    queue.close()
    assert not thread.is_alive()


def test_a_loop_renews_leases_although_no_thread_could_be_started_for_the_one_before(
    clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with open_queue(MemoryStore(clock), clock) as queue:
        queue.send("long work")
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                next(queue.deliveries())
        deliveries = queue.deliveries()
        delivery = next(deliveries)
        until = delivery.lease_until
        clock.when_waiting(1).advance(HALF).when_waiting(1)
        assert until is not None
        assert delivery.lease_until == until + timedelta(seconds=15)
        deliveries.close()


@beside_threads
def test_a_message_that_a_child_process_works_on_longer_than_its_lease_is_not_delivered_again(
    tmp_path: Path, clock: TimeMachine
) -> None:
    """The child uses the queue of its parent first for the loop, as a worker does that was forked in advance."""
    url = f"sqlite:///{tmp_path}/mail.db"
    builder = MessageQueue.builder().store(url).clock(clock).name("emails").options(lease="10s")
    queue = builder.build()
    queue.send("long work")

    def work() -> bool:
        deliveries = queue.deliveries()
        next(deliveries)
        for _ in range(10):
            clock.when_waiting(1)
            clock.advance("4s")
        clock.when_waiting(1)
        again = MessageQueue.builder().store(url).clock(clock).name("emails").build().receive()
        return not list(again)

    assert in_a_fork(work)
    queue.close()


@beside_threads
def test_a_child_of_a_process_inside_a_loop_renews_its_own_leases(tmp_path: Path) -> None:
    queue = MessageQueue.builder().store(f"sqlite:///{tmp_path}/mail.db").name("emails").build()
    queue.send_many(["of the parent", "of the child"])
    of_the_parent = queue.deliveries()
    next(of_the_parent)

    def work() -> bool:
        deliveries = queue.deliveries()
        next(deliveries)
        return any(thread.is_alive() for thread in renewal_threads())

    held = in_a_fork(work)
    of_the_parent.close()
    queue.close()
    assert held
