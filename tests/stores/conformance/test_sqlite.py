"""The SQLite store keeps what every store promises, whatever it is told about the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from astyqueue.store import HISTORY, Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import InTable, StoreConformance


class TestSQLiteStore(StoreConformance):
    @pytest.fixture(params=["full", "normal"])
    def store(self, clock: TimeMachine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
        store = open_store(f"sqlite:///{tmp_path / 'conformance.db'}?synchronous={request.param}", clock=clock)
        yield store
        store.close()


class TestSQLiteHistory(StoreConformance):
    @pytest.fixture
    def store(self, clock: TimeMachine, tmp_path: Path) -> Iterator[Store]:
        store = InTable(open_store(f"sqlite:///{tmp_path / 'conformance.db'}?synchronous=normal", clock=clock), HISTORY)
        yield store
        store.close()
