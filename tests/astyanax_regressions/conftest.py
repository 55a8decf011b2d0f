"""Queues for what our ancestors got wrong, or tested, on every store."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from astyqueue import MessageQueue
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from tests.support.places import ONE_ROW, Place

#: Opens the queue in what might be a process of its own: `opens(store, time_shards=30)`.
Opens = Callable[..., MessageQueue]


@pytest.fixture
def store(place: Place, clock: TimeMachine) -> Store:
    return place.store(clock)


@pytest.fixture
def opens(clock: TimeMachine, store: Store) -> Opens:
    def opened(on: Store | None = None, **options: object) -> MessageQueue:
        builder = MessageQueue.builder().store(on or store).name("jobs").clock(clock)
        return builder.options(**{"lease": "30s"} | ONE_ROW | options).build()

    return opened


@pytest.fixture
def queue(opens: Opens) -> Iterator[MessageQueue]:
    with opens() as opened:
        yield opened
