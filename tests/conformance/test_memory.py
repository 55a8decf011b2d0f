"""The memory store keeps what every store promises."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import StoreConformance


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store(self, clock: TimeMachine) -> Iterator[Store]:
        store = open_store("memory://", clock=clock)
        yield store
        store.close()
