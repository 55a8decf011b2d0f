from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from tests.support.places import ONE_ROW, Place
from tests.support.simulated_disk import SimulatedDisk

Opening = Callable[..., MessageQueue]
AWAY: Final = "the network is down"


class Gate(Faulty):
    """A store that a test makes unreachable, or that refuses what the test says."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.behind = store
        self.is_away = False
        self.refuses: Callable[[bytes], Exception | None] = lambda _: None
        self.answers: Callable[[Request], object] = lambda _: None

    def perform(self, request: Request) -> object:
        if self.is_away:
            raise StoreUnavailable(AWAY)
        if (answer := self.answers(request)) is not None:
            return answer
        if isinstance(request, Commit | Send):
            batches = [request.batch] if isinstance(request, Commit) else request.batches
            for put in (put for batch in batches for put in batch.puts):
                if error := self.refuses(put.value):
                    raise error
        return super().perform(request)

    def close(self) -> None:
        """The test closes the store."""


@pytest.fixture
def store(place: Place) -> Gate:
    return Gate(place.store(SystemClock()))


@pytest.fixture
def plain(store: Gate) -> Iterator[MessageQueue]:
    """The queue without a spool, for consumers and for a look into the store."""
    with MessageQueue.builder().store(store).name("emails").options(priorities=3, **ONE_ROW).build() as queue:
        yield queue


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def opened(store: Gate, plain: MessageQueue, folder: Path) -> Iterator[Opening]:
    """Opens the queue with a spool, as several processes would."""
    with ExitStack() as stack:

        def build(**options: Any) -> MessageQueue:  # noqa: ANN401 - the options of a spool
            own = {name: options.pop(name) for name in ("store", "hook") if name in options}
            builder = MessageQueue.builder().store(own.get("store", store)).name(plain.name).spool(folder, **options)
            if "hook" in own:
                builder.hook(own["hook"])
            return stack.enter_context(builder.build())

        yield build


def bodies(queue: MessageQueue, count: int) -> list[object]:
    """The bodies of this number of messages, in the order of delivery; each is acked."""
    found: list[object] = []
    while len(found) < count and (received := queue.receive(200, wait="10s")):
        found += [delivery.body for delivery in received]
        received.ack()
    return found
