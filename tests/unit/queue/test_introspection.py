"""What a process shows of its queue: its counters, and its parts in a debugger, without a request, a lock or a body."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from astyqueue import Dispatcher, LeaseLost, MessageQueue, aio, connect
from astyqueue.errors import Undecodable
from astyqueue.protocol.layout.columns import HEADER, message_name
from astyqueue.protocol.steps import Steps
from astyqueue.queue.consuming.leader_follower import Leadership
from astyqueue.queue.hooks import HookNotifier
from astyqueue.queue.metrics import QueueStats
from astyqueue.store import Batch, Put, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Recording, TimeMachine
from astyqueue.units import MonotonicUs
from astyqueue.waiting import Wakeup


def test_counters_lose_no_count_of_several_threads() -> None:
    stats = QueueStats()

    def count() -> None:
        for _ in range(5_000):
            stats.add("acked")

    threads = [threading.Thread(target=count) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert stats.acked == 20_000


@pytest.mark.every_store
def test_each_send_claim_and_outcome_is_counted(queue: MessageQueue, clock: TimeMachine) -> None:
    row = queue.send("a").id.row
    queue.send_many(["b", "c", "d"])
    acked, released, rejected, late = queue.receive(4)
    acked.ack()
    released.release("1h")
    rejected.reject("no")
    clock.advance("31s")
    assert [again.body for again in queue.receive(4)] == ["d"]
    with pytest.raises(LeaseLost):
        late.ack()
    assert len(queue.receive()) == 0
    stats = queue.stats
    assert (stats.sent, stats.received, stats.acked, stats.released, stats.rejected, stats.lost) == (4, 5, 1, 1, 1, 1)
    assert stats.rows == {row: 5}
    assert stats.empty_polls >= 1
    assert stats.refused_commits == 0


def test_a_message_that_was_tried_before_counts_as_redelivered(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("again")
    queue.receive()[0].fail()
    clock.advance("3s")
    queue.receive()
    assert queue.stats.redelivered == 1


def test_messages_and_headers_that_cannot_be_read_are_counted(queue: MessageQueue, store: Store) -> None:
    sent = queue.send("will be damaged").id
    store.send(Batch(sent.row, (Put(message_name(sent.priority, sent.id), b"nonsense"),)))
    assert len(queue.receive()) == 0
    assert [letter.kind for letter in queue.dead_letters()] == ["undecodable"]
    store.send(Batch(sent.row, (Put(HEADER, b"nonsense"),)))
    queue.core.claimer.changed(sent.row)
    with pytest.raises(Undecodable, match="its header"):
        queue.receive()
    assert queue.stats.undecodable == 2


def nothing(_wakeup: Wakeup, _until: MonotonicUs | None) -> Steps[None]:
    """A round of work without work."""
    yield from ()


def test_the_repr_of_a_queue_and_its_parts_shows_what_they_hold(clock: TimeMachine) -> None:
    store = Recording(MemoryStore(clock))
    with MessageQueue.builder().store(store).name("emails").clock(clock).lease("30s").build() as queue:
        row = queue.send("a secret").id.row
        queue.send("a secret")
        first, _ = queue.receive(2)
        queue.core.claimer.settle_later(first, queue.retry_policy.release(first, None))
        requests = len(store.requests)
        state = queue.core.scheduler.rows[row]
        claimer = "<Claimer: <Waiters: 0>, 2 leased, <SettleBuffer: 1 outcomes, 0 renewals>>"
        assert repr(queue) == f"<MessageQueue emails: {claimer}>"
        assert repr(first.lease) == f"<Lease in {row} until {clock.now() + 30_000_000}: 2 deliveries>"
        assert repr(state.snapshot).startswith(f"<RowSnapshot {row}: header ")
        assert repr(state).startswith(f"<RowState {row}: ")
        assert repr(state.snapshot.timers) == "<TimerIndex: 1 timers, 2 messages hidden>"
        core = queue.core
        assert repr(core) == f"<QueueRuntime of emails in {core.process.name}: {core.claimer!r}>"
        assert repr(core.claimer.leases) == "<LeaseTable: 1 leases, 2 deliveries>"
        assert repr(core.settings_sync).startswith("<SettingsSync of emails: next read ")
        assert repr(core.doorbell) == "<PacedDoorbell of emails: 0 rows unrung>"
        assert repr(core.claimer.history).startswith("<HistoryWriter of emails: keeps ")
        assert repr(Leadership(clock, nothing, HookNotifier())) == "<Leadership: 0 in line>"
        assert repr(queue.core.scheduler).startswith("<RowScheduler: work in ")
        assert repr(queue.core.scheduler.poller).startswith(f"<HeaderPoller of {queue.core.process.name}: ")
        assert len(store.requests) == requests
        with queue.core.claimer._outcomes._lock:  # noqa: SLF001 - a debugger stops where the lock is held
            assert "secret" not in repr(queue)
    assert repr(queue).endswith(", closed>")


def test_the_repr_of_a_connection_its_store_and_a_dispatcher_shows_whether_they_are_open(clock: TimeMachine) -> None:
    with connect("memory://", clock=clock) as connection:
        assert repr(connection) == "<Connection to <MemoryStore open>>"
        dispatcher = Dispatcher.builder().queue(connection.queue("emails")).handler(lambda _: None, threads=2).build()
        assert repr(dispatcher) == "<Dispatcher of emails with 2 threads, not started>"
    assert repr(connection) == "<Connection to <MemoryStore closed>>"


def test_the_repr_of_a_queue_for_tasks_shows_the_same(clock: TimeMachine) -> None:
    async def scene() -> None:
        async with await aio.connect("memory://", clock=clock) as connection:
            assert repr(connection) == "<Connection to <MemoryStore open>>"
            assert repr(await connection.queue("emails")).startswith("<MessageQueue emails: <Claimer: ")

    asyncio.run(scene())
