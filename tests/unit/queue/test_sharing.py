"""Several processes share the rows of a queue."""

from __future__ import annotations

import random
from bisect import bisect_left
from itertools import pairwise

import pytest

from astyqueue.model.message import Message
from astyqueue.model.settings import Behaviour, Layout
from astyqueue.protocol.coordination.doorbell import RebalanceRequest
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.layout.rows import Ring, doorbell_row, is_home
from astyqueue.protocol.settling.outcomes import Extend
from astyqueue.protocol.steps import Commit, Read, Request, Send, run
from astyqueue.queue.delivery.base_delivery import new_deliveries
from astyqueue.queue.runtime import ReceiveRequest
from astyqueue.store import Batch, Named, Slice, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND
from tests.unit.protocol.worlds import put_at
from tests.unit.queue.stepped_workers import MILLISECOND, Crew, Worker

WIDE = Layout(concurrency_shards=8)
RING = Layout(time_shards=30, concurrency_shards=8)


@pytest.fixture(autouse=True)
def _the_same_every_time() -> None:
    """Processes differ by chance in how patient they are."""
    random.seed(1)


@pytest.fixture
def crew(clock: TimeMachine) -> Crew:
    return Crew(MemoryStore(clock), clock, WIDE)


def test_a_process_that_sent_nothing_hears_the_doorbell(crew: Crew) -> None:
    worker, sender = crew.join(), crew.outsider()
    sender.send(1)
    crew.pass_time(SECOND)
    for _ in range(20):
        sent = crew.clock.now()
        sender.send(1)
        crew.pass_time(50 * MILLISECOND)
        at, _ = worker.got[-1]
        assert at - sent <= 20 * MILLISECOND
    assert len(worker.got) == 21


def test_a_late_scan_does_not_make_a_delayed_message_wait_for_the_next_poll(clock: TimeMachine) -> None:
    """It reads no messages that are due later, although a poll has shown one of them."""
    crew = Crew(MemoryStore(clock), clock, Layout(concurrency_shards=2))
    worker, sender = crew.join(hands=100), crew.outsider()
    for delay in range(100 * MILLISECOND, 1_000 * MILLISECOND, 50 * MILLISECOND):
        sender.send(2)
        crew.pass_time(100 * MILLISECOND)
        due = clock.now() + delay
        sender.send(1, delay=delay / SECOND)
        crew.pass_time(delay + 2 * SECOND)
        assert worker.got[-1][0] - due <= 20 * MILLISECOND


def test_a_process_that_was_suspended_while_it_read_the_doorbell_goes_on_to_hear_it(crew: Crew) -> None:
    """The duration of such a read says nothing about the store."""
    worker, sender = crew.join(paced=True), crew.outsider()
    sender.send(1)
    crew.pass_time(SECOND, step=MILLISECOND)
    worker.requests.clear()
    while not any(map(_reads_doorbell, worker.requests)):
        worker.requests.clear()
        crew.pass_time(MILLISECOND, step=MILLISECOND)
    crew.clock.advance("30s")
    crew.pass_time(2 * SECOND + 100 * MILLISECOND)
    for _ in range(20):
        sent = crew.clock.now()
        sender.send(1)
        crew.pass_time(100 * MILLISECOND, step=MILLISECOND)
        at, _ = worker.got[-1]
        assert 0 <= at - sent <= 50 * MILLISECOND


def _reads_doorbell(request: Request) -> bool:
    return isinstance(request, Read) and request.wanted[0].row == doorbell_row("mail")


def test_a_row_in_which_only_senders_have_committed_has_no_owner_to_wait_for(crew: Crew) -> None:
    worker, sender = crew.join(), crew.outsider()
    crew.pass_time(SECOND)
    for number in range(20):
        sent = crew.clock.now()
        sender.send(1, key=str(number), unique="replace")
        crew.pass_time(50 * MILLISECOND)
        assert len(worker.got) == number + 1
        assert worker.got[-1][0] - sent <= 20 * MILLISECOND


def test_a_burst_behind_a_ring_is_found_as_soon(crew: Crew) -> None:
    """The bell is rung at most every five milliseconds, so it cannot name the shards of what is sent just after it."""
    worker, sender = crew.join(hands=100), crew.outsider()
    crew.pass_time(SECOND)
    for _ in range(8):
        sender.send(1)
    crew.pass_time(60 * MILLISECOND)
    assert len(worker.got) == 8


def test_a_row_is_left_to_the_process_that_works_in_it(crew: Crew) -> None:
    ann = crew.join(hands=1_000)
    ann.send(50)
    crew.pass_time(100 * MILLISECOND)
    bob, sender = crew.join(hands=1_000), crew.outsider()
    crew.pass_time(2 * SECOND, each=lambda: sender.send(1))
    refused = [worker.core.claimer.stats.refused_commits for worker in crew.workers]
    crew.pass_time(SECOND, each=lambda: sender.send(1))
    assert [worker.core.claimer.stats.refused_commits for worker in crew.workers] == refused
    assert len(ann.got) + len(bob.got) == 50 + 600


def test_what_a_dead_process_owned_goes_to_another(crew: Crew) -> None:
    ann = crew.join(hands=1_000)
    ann.send(8)
    crew.pass_time(100 * MILLISECOND)
    bob, sender = crew.join(hands=1_000), crew.outsider()
    ann.dead = True
    sent = crew.clock.now()
    for _ in range(8):
        sender.send(1)
    crew.pass_time(2 * SECOND)
    assert len(bob.got) == 8
    assert max(at for at, _ in bob.got) - sent <= SECOND


@pytest.mark.parametrize("layout", [Layout(), WIDE], ids=["one row", "shared rows"])
def test_a_message_that_lands_late_does_not_wait_for_a_lease_in_its_row_to_end(
    layout: Layout, clock: TimeMachine
) -> None:
    """The process that moved the head past its place does not scan: it has no credit until it has done its work."""
    store = MemoryStore(clock)
    crew = Crew(store, clock, layout, Behaviour(lease_us=3_600 * SECOND))
    ann, sent = crew.join(hands=1, busy_for=3_600 * SECOND), clock.now()
    ann.send(1)
    crew.pass_time(100 * MILLISECOND)
    [(_, begun)] = ann.got
    bob = crew.join()
    store.send(Batch(begun.row, (put_at(sent - MILLISECOND),)))
    crew.pass_time(5 * SECOND)
    assert len(bob.got) == 1


def test_a_lease_that_runs_out_is_taken_over_within_a_second(crew: Crew) -> None:
    ann = crew.join(hands=1_000, busy_for=3_600 * SECOND)
    ann.send(8)
    crew.pass_time(100 * MILLISECOND)
    assert len(ann.got) == 8
    ann.dead = True
    bob = crew.join(hands=1_000)
    crew.pass_time(125 * SECOND, step=50 * MILLISECOND)
    assert len(bob.got) == 8
    until = max(delivery.lease.timer.due for _, delivery in ann.got if delivery.lease)
    assert max(at for at, _ in bob.got) - until <= SECOND


def test_a_process_at_work_claims_again_once_another_has_the_suspect_that_it_must_not_claim(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout())
    dead = crew.join(hands=1, busy_for=3_600 * SECOND)
    for hands in (1, 2):
        dead.hands = hands
        dead.send(1)
        crew.pass_time(SECOND, step=50 * MILLISECOND)
    dead.dead = True
    _, suspect = dead.got[-1]  # it was claimed by a process that had another message, and may have crashed it
    busy = crew.join(hands=1, busy_for=3_600 * SECOND)
    busy.send(1)
    crew.pass_time(SECOND, step=50 * MILLISECOND)
    busy.core.claimer.settle_later(busy.got[0][1], Extend(clock.now() + 3_600 * SECOND))
    busy.hands = 10
    crew.pass_time(130 * SECOND, step=50 * MILLISECOND)
    free = crew.join(hands=1)
    crew.pass_time(5 * SECOND, step=50 * MILLISECOND)
    assert [delivery.id for _, delivery in free.got] == [suspect.id]
    free.dead = True
    before = len(busy.got)
    busy.send(5)
    crew.pass_time(5 * SECOND, step=50 * MILLISECOND)
    assert len(busy.got) == before + 5


def test_a_lease_in_a_row_of_the_past_is_taken_over_within_three_seconds(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout(time_shards=30, time_shard_us=60 * SECOND, concurrency_shards=2))
    ann = crew.join(hands=1_000, busy_for=3_600 * SECOND)
    ann.send(8)
    crew.pass_time(100 * MILLISECOND)
    ann.dead = True
    bob = crew.join(hands=1_000)
    crew.pass_time(125 * SECOND, step=50 * MILLISECOND)
    until = max(delivery.lease.timer.due for _, delivery in ann.got if delivery.lease)
    assert len(bob.got) == 8
    assert max(at for at, _ in bob.got) - until <= 3 * SECOND


def test_a_new_process_finds_what_waits_in_rows_of_the_past(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, RING)
    sender = crew.outsider()
    for _ in range(5):
        sender.send(8)
        clock.advance("1h")
    worker = crew.join(hands=1_000)
    crew.pass_time(2 * SECOND)
    assert len(worker.got) == 40


def test_delayed_messages_come_when_they_are_due_whatever_the_row(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout(time_shards=5, time_shard_us=60 * SECOND, concurrency_shards=2))
    worker, sender = crew.join(hands=1_000), crew.outsider()
    dues = [clock.now() + seconds * SECOND for seconds in (3, 30, 59, 61, 100, 170)]
    for due in dues:
        sender.send(1, delay=(due - clock.now()) / SECOND)
    crew.pass_time(180 * SECOND, step=20 * MILLISECOND)
    late = sorted(at - delivery._envelope.due for at, delivery in worker.got)  # noqa: SLF001 - due as it was asked for
    assert len(late) == 6
    assert late[-1] <= 200 * MILLISECOND


@pytest.mark.parametrize("layout", [Layout(), WIDE, RING], ids=["one row", "eight rows", "a ring"])
def test_a_process_that_only_waits_for_a_delayed_message_has_it_in_time_and_reads_no_more_for_it(
    clock: TimeMachine, layout: Layout
) -> None:
    """The message is due in ten minutes, and was sent by another process."""
    store = MemoryStore(clock)
    crew, idle = Crew(store, clock, layout), Crew(MemoryStore(clock), clock, layout)
    waits, has_nothing = crew.join(), idle.join()
    crew.outsider().send(1, delay=600)
    due = clock.now() + 600 * SECOND
    crew.pass_time(590 * SECOND, step=250 * MILLISECOND, each=has_nothing.work)
    assert waits.got == []
    assert waits.count(Read) <= has_nothing.count(Read) * 1.1
    assert waits.count(Commit) <= 1
    crew.pass_time(12 * SECOND, each=has_nothing.work)
    assert [at - due <= 10 * MILLISECOND for at, _ in waits.got] == [True]


class Graves(Faulty):
    """Counts the deleted messages that slices pass."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.graves: list[bytes] = []
        self.passed = 0

    def delete(self, row: str) -> None:
        """Delete every message of a row, as cancels of each would."""
        [columns] = self._store.read((Slice(row, Type.MESSAGE),))
        self.graves = sorted([*self.graves, *(column.name.id for column in columns)])
        self._store.send(Batch(row, deletes=tuple(column.name for column in columns)))

    def perform(self, request: Request) -> object:
        for wanted in request.wanted if isinstance(request, Read) else ():
            if isinstance(wanted, Slice) and wanted.type == Type.MESSAGE:
                self.passed += len(
                    self.graves[bisect_left(self.graves, wanted.after) : bisect_left(self.graves, wanted.until)]
                )
        return super().perform(request)


@pytest.mark.parametrize("layout", [Layout(), WIDE], ids=["one row", "eight rows"])
def test_delayed_messages_that_were_cancelled_are_not_scanned_before_their_time(
    clock: TimeMachine, layout: Layout
) -> None:
    store = Graves(MemoryStore(clock))
    crew = Crew(store, clock, layout)
    crew.join()
    sender = crew.outsider()
    for delay in range(120, 720):
        sender.send(1, delay=delay)
    for row in Ring("mail", layout).rows():
        store.delete(row)
    assert len(store.graves) == 600
    crew.pass_time(60 * SECOND, step=20 * MILLISECOND)
    assert store.passed == 0


def test_rows_are_spread_fairly_over_processes_that_come_later(crew: Crew) -> None:
    sender = crew.outsider()
    crew.join()
    crew.pass_time(2 * SECOND, each=lambda: sender.send(4))
    crew.join()
    crew.join()
    crew.join()
    crew.pass_time(3 * SECOND, each=lambda: sender.send(4))
    before = [len(worker.got) for worker in crew.workers]
    crew.pass_time(2 * SECOND, each=lambda: sender.send(4))
    shares = [len(worker.got) - count for worker, count in zip(crew.workers, before, strict=True)]
    assert sum(shares) == pytest.approx(1_600, abs=60)
    assert min(shares) * 3 >= max(shares), shares


@pytest.mark.full
def test_more_processes_than_rows_all_get_some_work(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout(concurrency_shards=2))
    sender = crew.outsider()
    for _ in range(4):
        crew.join()
    crew.pass_time(20 * SECOND, each=lambda: sender.send(4))
    assert min(len(worker.got) for worker in crew.workers) > 100


def test_processes_do_not_stampede_when_an_idle_queue_gets_a_message(crew: Crew) -> None:
    sender = crew.outsider()
    for _ in range(8):
        crew.join()
    crew.pass_time(10 * SECOND, step=20 * MILLISECOND)
    for sent in range(1, 21):
        sender.send(1)
        crew.pass_time(SECOND, step=20 * MILLISECOND)
        assert sum(len(worker.got) for worker in crew.workers) == sent
        crew.pass_time(5 * SECOND, step=100 * MILLISECOND)
    assert sum(worker.core.claimer.stats.refused_commits for worker in crew.workers) <= 10


def test_no_row_starves_while_one_is_never_empty(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout(concurrency_shards=4))
    worker, sender = crew.join(hands=5), crew.outsider()
    crew.pass_time(10 * SECOND, each=lambda: sender.send(3))
    by_row = {delivery.row for _, delivery in worker.got}
    assert len(by_row) == 4
    for row in by_row:
        moments = [at for at, delivery in worker.got if delivery.row == row]
        assert max(later - earlier for earlier, later in pairwise(moments)) < SECOND


def test_what_an_idle_process_costs_is_bounded(clock: TimeMachine) -> None:
    """The figure that the documentation states: reads per second of a process that has nothing to do."""
    crew = Crew(MemoryStore(clock), clock, RING)
    worker = crew.join()
    worker.send(100)
    crew.pass_time(700 * SECOND, step=SECOND // 4)
    worker.requests.clear()
    crew.pass_time(60 * SECOND, step=MILLISECOND)
    slices = sum(len(request.wanted) for request in worker.requests if isinstance(request, Read))
    assert worker.count(Commit) <= 1
    assert slices / 60 <= 100, slices / 60


@pytest.mark.full
def test_a_row_of_the_past_is_read_ever_more_rarely(clock: TimeMachine) -> None:
    """With short time shards many rows changed lately; reading each every two seconds is most of what a queue costs."""
    crew = Crew(MemoryStore(clock), clock, RING.model_copy(update={"time_shard_us": 60 * SECOND}))
    worker, other, sender = crew.join(), crew.join(), crew.outsider()
    worker.send(1)
    crew.pass_time(60 * SECOND, step=SECOND // 4)
    [(_, delivery)] = [*worker.got, *other.got]
    header = Named(delivery.row, (HEADER,))

    def reads(seconds: int) -> int:
        other.requests.clear()
        for _ in range(seconds // 30):
            sender.send(1)  # so that the queue stays in use
            crew.pass_time(30 * SECOND, step=SECOND // 4)
        return sum(request.wanted.count(header) for request in other.requests if isinstance(request, Read))

    assert reads(60) <= 30  # until it knows that nothing is leased any more
    assert 9 <= reads(540) <= 30
    assert 9 <= reads(600) <= 12


def test_a_row_that_is_known_to_have_work_is_not_asked_at_each_ring_of_the_doorbell(crew: Crew) -> None:
    worker, sender = crew.join(hands=20, busy_for=SECOND), crew.outsider()
    sender.send(800)
    crew.pass_time(5 * SECOND)
    worker.requests.clear()
    crew.pass_time(5 * SECOND, each=lambda: sender.send(1))
    glances = [
        one
        for request in worker.requests
        if isinstance(request, Read)
        for one in request.wanted
        if _asks_what_waits(one)
    ]
    assert len(glances) <= 20
    assert len(worker.got) >= 180


def _asks_what_waits(wanted: Slice | Named) -> bool:
    """As a survey does; a claim asks for as many as it wants."""
    return isinstance(wanted, Slice) and wanted.type == Type.MESSAGE and wanted.limit == 1 and not is_home(wanted.row)


def test_what_was_requested_long_ago_keeps_nobody_from_looking(clock: TimeMachine) -> None:
    """A process that polls once and ends must find what waits, whatever it reads at the doorbell at first."""
    crew = Crew(MemoryStore(clock), clock, Layout())
    sender = crew.outsider()
    run(sender.core.doorbell.request(RebalanceRequest("somebody", "mail:0:0")), sender.store)
    clock.advance("7d")
    sender.send(3)
    newcomer = crew.outsider()
    assert len(run(newcomer.core.take(ReceiveRequest(10, 0, new_deliveries)), newcomer.store)) == 3


def test_a_consumer_that_does_not_wait_yields_a_row_to_no_other_process(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout())
    poller, sender = crew.outsider(), crew.outsider()
    assert run(poller.core.take(ReceiveRequest(1, 0, new_deliveries)), poller.store) == []
    for _ in range(5):
        clock.advance("1s")
        sender.send(1)
        run(sender.core.doorbell.request(RebalanceRequest("somebody", "mail:0:0")), sender.store)
        assert len(run(poller.core.take(ReceiveRequest(1, 0, new_deliveries)), poller.store)) == 1


def test_an_idle_process_beside_a_busy_one_writes_nothing_in_a_queue_of_one_row(clock: TimeMachine) -> None:
    crew = Crew(MemoryStore(clock), clock, Layout())
    busy, sender = crew.join(), crew.outsider()
    crew.pass_time(SECOND, each=lambda: sender.send(1))
    idle = crew.join()
    crew.pass_time(2 * SECOND, each=lambda: busy.send(1))
    assert not any(isinstance(request, Send) for request in idle.requests)


def _to_one_shard(sender: Worker, shard: int) -> None:
    """Keys decide the shard: one that falls into this one."""
    key = next(key for key in map(str, range(1_000)) if sender.core.ring.shard_of_key(key) == shard)
    run(sender.core.send(Message(None, key)), sender.store)


def test_a_doorbell_that_never_rests_hides_no_other_row(crew: Crew) -> None:
    worker, noisy, rare = crew.join(hands=1_000), crew.outsider(), crew.outsider()
    crew.pass_time(SECOND, each=lambda: _to_one_shard(noisy, 0))
    for _ in range(10):
        sent = crew.clock.now()
        _to_one_shard(rare, 5)
        _to_one_shard(noisy, 0)
        crew.pass_time(100 * MILLISECOND, each=lambda: _to_one_shard(noisy, 0))
        [at] = [at for at, delivery in worker.got if delivery.row == "mail:0:5" and at >= sent]
        assert at - sent <= 50 * MILLISECOND


def test_who_only_sends_keeps_no_note_of_each_message(crew: Crew) -> None:
    sender = crew.outsider()
    for _ in range(100):
        sender.send(1)
    assert len(sender.core.scheduler._reported) <= 8  # noqa: SLF001 - what it keeps is what this is about
