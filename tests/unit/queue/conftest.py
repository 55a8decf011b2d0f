from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from astyqueue import MessageQueue
from astyqueue.queue.builder import QueueBuilder
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine

Opens = Callable[..., MessageQueue]


@pytest.fixture
def store(clock: TimeMachine) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def builder(clock: TimeMachine, store: MemoryStore) -> QueueBuilder[MessageQueue]:
    return MessageQueue.builder().store(store).name("emails").lease("30s").clock(clock)


@pytest.fixture
def queue(builder: QueueBuilder[MessageQueue]) -> Iterator[MessageQueue]:
    with builder.build() as opened:
        yield opened


@pytest.fixture
def another(clock: TimeMachine, store: MemoryStore) -> Iterator[MessageQueue]:
    """The same queue, open in what might be another process."""
    with MessageQueue.builder().store(store).name("emails").clock(clock).build() as opened:
        yield opened
