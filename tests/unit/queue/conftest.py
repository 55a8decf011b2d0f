from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from astyqueue import MessageQueue
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from tests.support.places import Place

Opens = Callable[..., MessageQueue]


@pytest.fixture
def store(place: Place, clock: TimeMachine) -> Store:
    return place.store(clock)


@pytest.fixture
def builder(clock: TimeMachine, store: Store) -> QueueBuilder[MessageQueue]:
    return MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock)


@pytest.fixture
def queue(builder: QueueBuilder[MessageQueue]) -> Iterator[MessageQueue]:
    with builder.build() as opened:
        yield opened


@pytest.fixture
def another(clock: TimeMachine, store: Store) -> Iterator[MessageQueue]:
    """The same queue, open in what might be another process."""
    with MessageQueue.builder().store(store).name("emails").clock(clock).build() as opened:
        yield opened
