"""What a careful reader found: each of these lost, doubled or stopped something once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import BadInput, Closed, OutcomeUnknown, StoreUnavailable, Undecodable
from astyqueue.protocol.layout.columns import HEADER, message_name
from astyqueue.protocol.settling.outcomes import ACK, Release
from astyqueue.protocol.steps import Commit, Read, Request
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.consuming.outcome_recorder import PendingOutcome
from astyqueue.queue.consuming.waiters import Waiters
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.store import Batch, Name, Put, Store
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.support.places import Place


def test_an_ack_that_comes_after_a_renewal_was_begun_is_committed_all_the_same(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("one")
    [held] = queue.receive()
    claimer = queue.core.claimer
    assert held.lease is not None
    held.renew_until, held.lease.renew_at = None, clock.now()
    claimer._outcomes.renew(clock.now())  # noqa: SLF001 - the order is the point
    claimer.settle_later(held, ACK)
    queue.run(claimer.flush())
    assert queue.counts().total == 0


def test_a_renewal_that_comes_after_an_ack_does_not_take_its_place(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("one")
    [held] = queue.receive()
    claimer = queue.core.claimer
    claimer.settle_later(held, ACK)
    assert held.lease is not None
    held.renew_until, held.lease.renew_at = None, clock.now()
    claimer._outcomes.renew(clock.now())  # noqa: SLF001 - the order is the point
    queue.run(claimer.flush())
    assert queue.counts().total == 0


def test_who_has_left_is_handed_nothing_afterwards() -> None:
    seats, taken = Waiters(TimeMachine()), list[BaseDelivery]()
    seat = Waiter(lambda: 1, taken.extend)
    seats.add(seat)
    seats.remove(seat)
    assert seats.deliver([(seat, [])]) == []
    assert taken == []


def test_leases_that_ran_out_unsettled_do_not_stop_their_process(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send_many(["a", "b"])
    queue.receive(1)
    queue.receive(1)
    clock.advance("31s")
    queue.send("c")
    seen = []
    for _ in range(6):
        with queue.receive(10) as batch:
            seen += [delivery.body for delivery in batch]
        clock.advance("1s")
    assert sorted(map(str, seen)) == ["a", "b", "c"]


def test_a_clock_set_back_while_a_consumer_rests_strands_nothing(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    another.send("before")
    with queue.receive() as batch:
        assert len(batch) == 1
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "3h")
        clock.when_waiting(1)
        clock.set(clock.now() - 3_600_000_000)
        another.send("after")
        clock.advance("5s")
        assert [delivery.body for delivery in waiting.result(timeout=10)] == ["after"]


def test_a_row_that_cannot_be_read_leaves_the_others_their_turn(
    builder: QueueBuilder[MessageQueue], store: Store
) -> None:
    queue = builder.concurrency_shards(2).build()
    rows = {queue.send(number).id.row for number in range(2)}
    store.send(Batch(min(rows), (Put(HEADER, b"nonsense"),)))
    errors, seen = 0, 0
    for _ in range(10):
        try:
            seen += len(queue.receive(1))
        except Undecodable:
            errors += 1
    assert (errors, seen) == (1, 1)


def test_closing_a_queue_tells_whoever_waits(queue: MessageQueue, clock: TimeMachine) -> None:
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.receive, 1, "1h")
        clock.when_waiting(1)
        queue.close()
        with pytest.raises(Closed, match="was closed here"):
            waiting.result(timeout=10)


@pytest.mark.parametrize("limit", [0, -1, 2.5, "5"])
def test_a_limit_that_is_none_is_refused_before_anybody_waits_for_it(queue: MessageQueue, limit: int) -> None:
    with pytest.raises(BadInput, match="whole number, 1 or more"):
        queue.receive(limit)


def test_an_ack_that_nobody_waits_for_and_that_is_not_stored_does_not_fail_the_ack_of_another_row(
    place: Place, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    store = WithoutRow(place.store(clock))
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).concurrency_shards(2).build()
    assert len({queue.send(number).id.row for number in range(2)}) == 2
    [buffered], [waited_for] = queue.receive(1), queue.receive(1)
    claimer = queue.core.claimer
    claimer.settle_later(buffered, ACK)
    claimer._outcomes.urgent(clock.now())  # noqa: SLF001 - from now on it waits, and 5 ms later it is its turn
    clock.advance("5ms")
    store.row = buffered.row
    waited_for.ack()
    assert f"settle_failed row={buffered.row}" in caplog.text
    assert queue.stats.acked == 1
    store.row = ""
    queue.run(claimer.flush())
    assert (queue.stats.acked, queue.counts().total) == (2, 0)


def test_an_ack_that_went_through_before_the_store_failed_counts_as_done(place: Place, clock: TimeMachine) -> None:
    """The claim that carried it is refused once, so the ack goes alone; then the next look fails."""
    below = place.store(clock)
    store = Interposing(below)
    queue = MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock).build()
    rival = MessageQueue.builder().store(below).name("emails").clock(clock).build()
    queue.send_many(["held", "next", "for the rival"])
    [held] = queue.receive()
    queue.core.claimer.settle_later(held, ACK)
    store.before_commit = lambda: rival.receive(1)
    with pytest.raises(StoreUnavailable):
        queue.receive()
    store.failing = False
    queue.run(queue.core.claimer.flush())
    assert (queue.stats.acked, queue.stats.lost) == (1, 0)


def test_a_message_released_after_an_ack_of_unknown_outcome_comes_again_in_time(
    place: Place, clock: TimeMachine
) -> None:
    """The ack was carried out, so the settle of the release meets another timer than this process knows."""
    store = Unsure(place.store(clock))
    queue = MessageQueue.builder().store(store).name("emails").lease("2h").clock(clock).build()
    queue.send_many(["acked", "released"])
    acked, released = queue.receive(2)
    for _ in range(25):  # until the last scan for late messages
        clock.advance("30s")
        assert not queue.receive()
    store.away = False
    with pytest.raises(OutcomeUnknown):
        acked.ack()
    store.away = None
    released.release("1s")
    clock.advance("2s")
    assert [again.body for again in queue.receive()] == ["released"]


def test_a_message_released_by_a_settle_before_one_that_failed_comes_again_in_time(
    place: Place, clock: TimeMachine
) -> None:
    store = Refusing(place.store(clock))
    queue = MessageQueue.builder().store(store).name("emails").lease("2h").clock(clock).build()
    queue.send_many(["released", "kept"])
    [released], [kept] = queue.receive(), queue.receive()
    for _ in range(25):  # until the last scan for late messages
        clock.advance("30s")
        assert not queue.receive()
    queue.core.claimer.settle_later(released, Release(clock.now() + SECOND, 1))
    store.refuses = message_name(0, kept.id)
    with pytest.raises(StoreUnavailable):
        kept.ack()
    clock.advance("2s")
    assert [again.body for again in queue.receive()] == ["released"]


class Refusing(Faulty):
    """Is unavailable for commits that delete the column `refuses`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.refuses: Name | None = None

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and self.refuses in request.batch.deletes:
            message = "away"
            raise StoreUnavailable(message)
        return super().perform(request)


class Unsure(Faulty):
    """Once `away` is False, the answer to the next commit is lost, and no read is answered until it is None."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.away: bool | None = None

    def perform(self, request: Request) -> object:
        if self.away and isinstance(request, Read):
            message = "away"
            raise StoreUnavailable(message)
        answer = super().perform(request)
        if self.away is False and isinstance(request, Commit):
            self.away = True
            raise OutcomeUnknown
        return answer


class WithoutRow(Faulty):
    """A store that takes no commit to one row."""

    row = ""

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and request.batch.row == self.row:
            raise StoreUnavailable(self.row)
        return super().perform(request)


class Interposing(Faulty):
    """Lets a rival in before one commit, and fails every read after the settle that follows, until a test stops it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.before_commit: Callable[[], object] | None = None
        self.commits_left: int | None = None
        self.failing = True

    def perform(self, request: Request) -> object:
        if isinstance(request, Commit) and self.before_commit:
            before, self.before_commit, self.commits_left = self.before_commit, None, 2
            before()
        if isinstance(request, Read) and self.commits_left == 0 and self.failing:
            message = "away"
            raise StoreUnavailable(message)
        answer = super().perform(request)
        if isinstance(request, Commit) and self.commits_left:
            self.commits_left -= 1
        return answer


class Meeting(deque[PendingOutcome]):
    """Outcomes that are handed in at once: none of their threads goes on before all of them have."""

    def __init__(self, parties: int) -> None:
        super().__init__()
        self._all_in = threading.Barrier(parties, timeout=10)

    def append(self, outcome: PendingOutcome) -> None:
        super().append(outcome)
        self._all_in.wait()

    def extend(self, outcomes: Iterable[PendingOutcome]) -> None:
        super().extend(outcomes)
        self._all_in.wait()


@pytest.mark.parametrize("parties", [1, 2, 3, 7])
def test_of_outcomes_that_are_handed_in_at_once_one_calls_the_leader_and_the_others_need_not(
    queue: MessageQueue, parties: int
) -> None:
    queue.send_many(range(parties))
    outcomes, held = queue.core.claimer._outcomes, list(queue.receive(parties))  # noqa: SLF001 - the moment is the point
    outcomes._incoming = Meeting(parties)  # noqa: SLF001 - as above
    with ThreadPoolExecutor(parties) as threads:
        assert any(threads.map(lambda delivery: outcomes.add(delivery, ACK), held))
    assert not outcomes.settled()
    queue.run(queue.core.claimer.flush())
    assert queue.counts().total == 0
