"""The memory store keeps what every store promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue.store import HISTORY, Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import InTable, StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self, clock: TimeMachine) -> Iterator[Store]:
        store = open_store("memory://", clock=clock)
        yield store
        store.close()


class TestMemoryHistory(StoreConformance):
    @pytest.fixture
    def store(self, clock: TimeMachine) -> Iterator[Store]:
        store = InTable(open_store("memory://", clock=clock), HISTORY)
        yield store
        store.close()
