"""A worker that ends once its queues are empty: what waits in a spool counts as well."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from astyqueue import Dispatcher, MessageQueue
from astyqueue.cli.worker import until_empty
from astyqueue.cli.worker.until_empty import WhenEmpty
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.journal_errors import JournalError
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.spool import SpoolStatus
from astyqueue.store import Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW, Place
from tests.unit.dispatch.stage import DEADLINE, Breaking, Heard

#: Requests within which a look that takes the queue for empty ends the worker.
REQUESTS = 12


class HeldForwarder(Faulty):
    """A store to which a spool forwards nothing before `go`, and of which a test sees the requests of a burst."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.held, self.go, self.is_away = threading.Event(), threading.Event(), False
        self.requested = threading.Semaphore(0)
        #: If set, the second try of the spool waits for it.
        self.tries_again: threading.Event | None = None
        self.fails_again = threading.Event()
        self._failed = False

    def perform(self, request: Request) -> object:
        name = threading.current_thread().name
        if name.startswith("astyqueue-spool") and isinstance(request, Commit | Send):
            self.held.set()
            assert self.go.wait(DEADLINE)
            if self._failed and self.tries_again is not None:
                self.fails_again.set()
                assert self.tries_again.wait(DEADLINE)
            if self.is_away:
                self._failed = True
                raise StoreUnavailable
        if name == "astyqueue:burst":
            self.requested.release()
        return super().perform(request)


class Burst:
    """A dispatcher whose first message sends another one into the spool, and the watch that ends it."""

    def __init__(self, store: HeldForwarder, folder: Path) -> None:
        self.store = store
        self.heard, self.handled, self.ended = Heard(), list[object](), threading.Event()
        with MessageQueue.builder().store(store).name("emails").options(**ONE_ROW).build() as plain:
            plain.send("first")
        builder = MessageQueue.builder().store(store).name("emails").hook(self.heard)
        self.queue = builder.spool(folder, drain=0).build()
        self.dispatcher = Dispatcher.builder().queue(self.queue).handler(self._handle).build()

    def start(self) -> None:
        self.watch()
        self.dispatcher.start()

    def watch(self) -> None:
        WhenEmpty(lambda: [self.queue], self._end, begun=lambda: self.dispatcher.running).watch()

    def _handle(self, delivery: Delivery) -> None:
        self.handled.append(delivery.body)
        if delivery.body == "first":
            self.queue.send("second")
            assert self.store.held.wait(DEADLINE)

    def _end(self) -> None:
        self.ended.set()
        self.store.requested.release(REQUESTS)

    def when_acked(self) -> None:
        with self.heard.changed:
            assert self.heard.changed.wait_for(lambda: self.heard.count("acked"), DEADLINE)


@pytest.fixture
def burst(place: Place, tmp_path: Path) -> Iterator[Burst]:
    made = Burst(HeldForwarder(place.store(SystemClock())), tmp_path / "spool")
    yield made
    made.store.go.set()
    made.dispatcher.stop()
    made.queue.close()


def test_a_message_in_the_spool_is_forwarded_and_handled_before_a_burst_ends(burst: Burst) -> None:
    burst.start()
    burst.when_acked()
    for _ in range(burst.store.requested._value + REQUESTS):  # noqa: SLF001 - those from now on
        assert burst.store.requested.acquire(timeout=DEADLINE)
    assert not burst.ended.is_set()
    burst.store.go.set()
    assert burst.ended.wait(DEADLINE)
    assert burst.handled == ["first", "second"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst that waits for a spool only that long, once it cannot be forwarded."""
    monkeypatch.setattr(until_empty, "_FORWARDED_WITHIN", SECOND // 10)


@pytest.mark.usefixtures("impatient")
def test_a_burst_does_not_wait_for_a_spool_that_cannot_be_forwarded(burst: Burst) -> None:
    burst.store.is_away = True
    burst.store.go.set()
    burst.start()
    assert burst.ended.wait(DEADLINE)
    assert burst.handled == ["first"]


def test_a_burst_waits_for_the_next_try_of_a_spool_after_the_store_was_away(burst: Burst) -> None:
    burst.store.is_away = True
    burst.store.go.set()
    burst.store.tries_again = threading.Event()
    burst.dispatcher.start()
    burst.when_acked()
    assert burst.store.fails_again.wait(DEADLINE)
    burst.watch()
    for _ in range(REQUESTS):
        assert burst.store.requested.acquire(timeout=DEADLINE)
    assert not burst.ended.is_set()
    burst.store.is_away = False
    burst.store.tries_again.set()
    assert burst.ended.wait(DEADLINE)
    assert burst.handled == ["first", "second"]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("error", [OSError("broken on purpose"), JournalError("broken on purpose")])
def test_a_burst_does_not_wait_for_a_spool_that_cannot_be_read(
    burst: Burst, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail() -> SpoolStatus:
        raise error

    monkeypatch.setattr(burst.queue.core.spool, "status", fail)
    burst.store.is_away = True
    burst.store.go.set()
    burst.start()
    assert burst.ended.wait(DEADLINE)


def test_the_time_that_a_burst_gives_a_spool_begins_anew_when_the_store_was_away(
    clock: TimeMachine, tmp_path: Path
) -> None:
    store = Breaking(MemoryStore(clock))
    with MessageQueue.builder().store(store).clock(clock).name("emails").spool(tmp_path, drain=0).build() as queue:
        queue.core.spool.status = _raising  # type: ignore[method-assign]  # a folder that cannot be read
        looking = WhenEmpty(lambda: [queue], lambda: None)
        looks = list[bool]()
        for broken, wait in ((False, "6s"), (True, "6s"), (False, "6s"), (False, "6s"), (False, "0s")):
            store.broken = broken
            looks.append(looking._empty([queue]))  # noqa: SLF001 - one look, at a known time
            clock.advance(wait)
        assert looks == [False, False, False, False, True]


def _raising() -> SpoolStatus:
    message = "broken on purpose"
    raise OSError(message)
