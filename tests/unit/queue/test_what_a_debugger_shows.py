"""What a debugger shows of a queue and its parts: facts in one line, without a request, a lock or a body."""

from __future__ import annotations

import asyncio

from astyqueue import Dispatcher, MessageQueue, aio, connect
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Recording, TimeMachine


def test_a_queue_and_its_parts_show_what_they_hold(clock: TimeMachine) -> None:
    store = Recording(MemoryStore(clock))
    with MessageQueue.builder().store(store).name("emails").clock(clock).lease("30s").build() as queue:
        row = queue.send("a secret").id.row
        queue.send("a secret")
        first, _ = queue.receive(2)
        queue.core.claimer.settle_later(first, queue.terms.release(first, None))
        requests = len(store.requests)
        state = queue.core.scheduler.rows[row]
        claimer = "<Claimer: <Waiters: 0>, 2 leased, <SettleBuffer: 1 outcomes, 0 renewals>>"
        assert repr(queue) == f"<MessageQueue emails: {claimer}>"
        assert repr(first.lease) == f"<Lease in {row} until {clock.now() + 30_000_000}: 2 deliveries>"
        assert repr(state.snapshot).startswith(f"<RowSnapshot {row}: header ")
        assert repr(state).startswith(f"<RowState {row}: ")
        assert repr(state.snapshot.upcoming) == "<TimerIndex: 1 claimable, 0 slots, 0 postponed>"
        assert repr(queue.core.scheduler).startswith("<RowScheduler: work in ")
        assert repr(queue.core.scheduler.poller).startswith(f"<HeaderPoller of {queue.core.process.name}: ")
        assert len(store.requests) == requests
        with queue.core.claimer._outcomes._lock:  # noqa: SLF001 - a debugger stops where the lock is held
            assert "secret" not in repr(queue)
    assert repr(queue).endswith(", closed>")


def test_a_connection_its_store_and_a_dispatcher_show_what_they_are(clock: TimeMachine) -> None:
    with connect("memory://", clock=clock) as connection:
        assert repr(connection) == "<Connection to <MemoryStore open>>"
        dispatcher = Dispatcher.builder().queue(connection.queue("emails")).handler(lambda _: None, threads=2).build()
        assert repr(dispatcher) == "<Dispatcher of emails:2, not started>"
    assert repr(connection) == "<Connection to <MemoryStore closed>>"


def test_a_queue_of_tasks_shows_the_same(clock: TimeMachine) -> None:
    async def scene() -> None:
        async with await aio.connect("memory://", clock=clock) as connection:
            assert repr(connection) == "<Connection to <Threaded <MemoryStore open>>>"
            assert repr(await connection.queue("emails")).startswith("<MessageQueue emails: <Claimer: ")

    asyncio.run(scene())
