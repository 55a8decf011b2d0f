"""The Cassandra store keeps what every store promises, on real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import pytest

from astyqueue.clock import SystemClock
from astyqueue.durations import Duration, as_microseconds
from astyqueue.store import HISTORY, Store
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import as_async
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import InTable, StoreConformance
from astyqueue.waiting import Wakeup
from tests.stores.conformance.test_stores import CalledFromThreads


class RealTime(TimeMachine):
    """Stands still at the time that the nodes have; `advance` waits until they have come that far too."""

    def __init__(self) -> None:
        self._real = SystemClock()
        super().__init__(self._real.now())

    def advance(self, duration: Duration) -> Self:
        Wakeup(self._real).wait(self._real.monotonic() + as_microseconds(duration))
        return super().advance(duration)


class TestCassandraStore(StoreConformance):
    @pytest.fixture
    def clock(self) -> TimeMachine:
        return RealTime()

    @pytest.fixture
    def store(self, url: str, clock: TimeMachine) -> Iterator[Store]:
        store = open_store(url, clock=clock)
        yield store
        store.close()


class TestCassandraHistory(TestCassandraStore):
    @pytest.fixture
    def store(self, url: str, clock: TimeMachine) -> Iterator[Store]:
        store = InTable(open_store(url, clock=clock), HISTORY)
        yield store
        store.close()


class TestAsyncCassandraStore(TestCassandraStore):
    """The same promises, kept for tasks of an event loop."""

    @pytest.fixture
    def store(self, url: str, clock: TimeMachine) -> Iterator[Store]:
        store = CalledFromThreads(as_async(open_store(url, clock=clock)))
        yield store
        store.close()
