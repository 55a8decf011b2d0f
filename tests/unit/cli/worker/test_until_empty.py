"""A worker that ends once its queues are empty: what waits in a spool counts as well."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from astyqueue import Dispatcher, MessageQueue
from astyqueue.cli.worker.until_empty import WhenEmpty
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.testing import Faulty
from tests.support.places import ONE_ROW, Place
from tests.unit.dispatch.stage import DEADLINE, Heard

#: Requests within which a look that takes the queue for empty ends the worker.
REQUESTS = 12


class HeldForwarder(Faulty):
    """A store to which a spool forwards nothing before `go`, and of which a test sees the requests of a burst."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.held, self.go, self.is_away = threading.Event(), threading.Event(), False
        self.requested = threading.Semaphore(0)

    def perform(self, request: Request) -> object:
        name = threading.current_thread().name
        if name.startswith("astyqueue-spool") and isinstance(request, Commit | Send):
            self.held.set()
            assert self.go.wait(DEADLINE)
            if self.is_away:
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
        WhenEmpty(lambda: [self.queue], self._end, begun=lambda: self.dispatcher.running).watch()
        self.dispatcher.start()

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


def test_a_burst_does_not_wait_for_a_spool_that_cannot_be_forwarded(burst: Burst) -> None:
    burst.store.is_away = True
    burst.store.go.set()
    burst.start()
    assert burst.ended.wait(DEADLINE)
    assert burst.handled == ["first"]
