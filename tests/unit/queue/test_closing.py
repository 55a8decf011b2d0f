"""A queue that several threads or tasks close at once, or that was not closed as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from astyqueue import Message, MessageQueue, aio, connect
from astyqueue.errors import Closed, OutcomeUnknown
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.protocol.coordination.permits import show_permits
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Request, Send, run
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.spool import Spool, SpoolFolder
from astyqueue.spool.forwarder import Forwarder
from astyqueue.store import HISTORY, Named, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, TimeMachine
from astyqueue.testing.faults import Faulty
from tests.support.places import Place

DEADLINE: Final = 10
#: A queue that writes something when it is closed, and what that is.
WRITES: Final[dict[str, tuple[dict[str, object], Callable[[Request], bool]]]] = {
    "history": ({"history": "all"}, lambda request: isinstance(request, Send) and request.batch.table == HISTORY),
    "permit": ({"max_active_processes": 1}, lambda request: isinstance(request, Commit)),
}


class Held(Faulty):
    """Holds up the first request that a test names, before it is carried out."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.holds: Callable[[Request], bool] = lambda _: False
        self.entered, self.open = threading.Event(), threading.Event()

    def perform(self, request: Request) -> object:
        if self.holds(request):
            self.holds = lambda _: False
            self.entered.set()
            assert self.open.wait(DEADLINE)
        return super().perform(request)

    @property
    def is_closed(self) -> bool:
        try:
            self.read((Named("row", ()),))
        except Closed:
            return True
        return False


@pytest.fixture
def store(place: Place, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch) -> Held:
    """What the queue opens by its URL, and closes."""
    held = Held(place.store(clock))
    monkeypatch.setattr("astyqueue.queue.builder.open_store", lambda *_, **__: held)
    return held


def prepared(builder: QueueBuilder[MessageQueue], clock: TimeMachine, **options: object) -> QueueBuilder[MessageQueue]:
    return builder.store("memory://").name("emails").clock(clock).options(**options)


@pytest.mark.parametrize("what", WRITES)
def test_the_last_of_two_threads_that_close_a_queue_closes_its_store(
    store: Held, clock: TimeMachine, what: str
) -> None:
    options, holds = WRITES[what]
    queue = prepared(MessageQueue.builder(), clock, **options).build()
    queue.send("work")
    queue.receive()
    with ThreadPoolExecutor(1) as threads:
        store.holds = holds
        first = threads.submit(queue.close)
        assert store.entered.wait(DEADLINE)
        queue.close()
        store.open.set()
        first.result(DEADLINE)
    assert store.is_closed


def in_a_loop(scene: Callable[[], Coroutine[None, None, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), timeout=30))


@pytest.mark.parametrize("what", WRITES)
def test_the_last_of_two_tasks_that_close_a_queue_closes_its_store(store: Held, clock: TimeMachine, what: str) -> None:
    async def scene() -> None:
        options, holds = WRITES[what]
        builder = aio.MessageQueue.builder().store("memory://").name("emails").clock(clock).options(**options)
        queue = await builder.build()
        await queue.send("work")
        await queue.receive()
        store.holds = holds
        first = asyncio.create_task(queue.close())
        assert await asyncio.to_thread(store.entered.wait, DEADLINE)
        await queue.close()
        store.open.set()
        await first
        assert store.is_closed

    in_a_loop(scene)


def test_a_queue_that_was_closed_as_one_for_threads_still_closes_its_store(store: Held, clock: TimeMachine) -> None:
    async def scene() -> None:
        queue = await aio.MessageQueue.builder().store("memory://").name("emails").clock(clock).build()
        queue.blocking.close()
        assert not store.is_closed
        await queue.close()
        assert store.is_closed

    in_a_loop(scene)


@pytest.mark.parametrize("closes", ["connection", "queue"])
def test_a_connection_that_is_closed_while_another_thread_has_its_spools_forwarded_keeps_its_store_open_until_then(
    store: Held, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closes: str
) -> None:
    begun, drain, close = threading.Event(), Forwarder.drain, Spool.close

    def drained(forwarder: Forwarder, timeout: int, *, patient: bool) -> bool:
        begun.set()
        return drain(forwarder, timeout, patient=patient)

    def closed(spool: Spool) -> None:
        if begun.is_set():  # the second one: it may wait from here on
            store.open.set()
        close(spool)

    monkeypatch.setattr(Forwarder, "drain", drained)
    monkeypatch.setattr(Spool, "close", closed)
    monkeypatch.setattr("astyqueue.stores.lazy_store.open_store", lambda *_, **__: store)
    connection = connect("memory://", spool=tmp_path)
    queue = connection.queue("emails")
    store.holds = lambda request: isinstance(request, Commit) and request.batch.row.startswith("emails:")
    queue.send("work")
    assert store.entered.wait(DEADLINE)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(connection.close if closes == "connection" else queue.close)
        assert begun.wait(DEADLINE)
        connection.close()
        store.open.set()
        first.result(DEADLINE)
    assert sum(one.messages for one in SpoolFolder(tmp_path, "emails").states()) == 0
    assert store.is_closed


class ClosedAfter(Faulty):
    """Another thread closes it just after a request that has stored a message."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._closed = False

    def perform(self, request: Request) -> object:
        if self._closed:
            message = "the store was closed"
            raise Closed(message)
        answer = super().perform(request)
        if isinstance(request, Commit | Send):
            batches = (request.batch,) if isinstance(request, Commit) else request.batches
            self._closed = any(put.name.type == Type.MESSAGE for batch in batches for put in batch.puts)
        return answer


@pytest.mark.parametrize("unique", [None, "keep"])
def test_a_message_that_is_stored_just_before_the_store_is_closed_was_sent(
    place: Place, clock: TimeMachine, unique: str | None
) -> None:
    """Whoever gets Closed takes it that nothing was sent, and sends it again elsewhere."""
    store = place.store(clock)
    queue = MessageQueue.builder().store(store).clock(clock).name("emails").options(history="all").build()
    options = Message("hello", key="k", unique=unique) if unique else Message("hello")
    assert run(queue.core.send(options), ClosedAfter(store)).new


def test_a_permit_whose_commit_has_no_answer_is_released_with_its_process(clock: TimeMachine) -> None:
    store = MemoryStore(clock)
    core = QueueRuntime(Settings(name="mail", behaviour=Behaviour(max_active_processes=1)), clock, ())
    permit = core.claimer.permit
    unanswered = Failing(store, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    run(permit.keep(wanting=True, needed=True, working=False), unanswered)
    assert run(show_permits("mail", 1, clock.now), store).active
    permit.leave(for_good=True)
    assert permit.leaving
    run(permit.keep(wanting=True, needed=True, working=False), store)
    assert not run(show_permits("mail", 1, clock.now), store).active
    assert not permit.leaving


def test_a_queue_that_lost_its_limit_after_a_permit_of_unknown_outcome_can_be_closed(clock: TimeMachine) -> None:
    store = MemoryStore(clock)
    silent = Failing(store, OutcomeUnknown("no answer"), of=(Commit,), applied=True)
    with MessageQueue.builder().store(store).clock(clock).name("mail").options(max_active_processes=1).build() as other:
        other.send(1)
        queue = MessageQueue.builder().store(silent).clock(clock).name("mail").build()
        with contextlib.suppress(OutcomeUnknown):
            queue.receive()
        other.configure(max_active_processes=0)
        queue.core.settings_sync.settings = other.settings
        with ThreadPoolExecutor(1) as threads:
            try:
                threads.submit(queue.close).result(DEADLINE)
            except TimeoutError:
                queue.core.close()
                raise
        assert other.permits().active == []
