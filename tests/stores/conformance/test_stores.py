"""The stores here keep what every store promises, and the suite that shows it fails each defective store."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from astyqueue.store import HISTORY, Store
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import as_async
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import InTable, StoreConformance
from tests.stores.conformance.defective_stores import DEFECTIVE
from tests.support.called_from_threads import CalledFromThreads


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


class TestStoresForTasks(StoreConformance):
    """The same promises, kept for tasks of an event loop."""

    @pytest.fixture(params=["memory://", "sqlite:///{directory}/conformance.db?synchronous=normal"])
    def store(self, clock: TimeMachine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
        store = CalledFromThreads(as_async(open_store(request.param.format(directory=tmp_path), clock=clock)))
        yield store
        store.close()


DEFECTIVE_STORES = Path(__file__).with_name("defective_stores.py")


def test_the_suite_fails_each_defective_store_also_when_python_is_optimised() -> None:
    settings = ["--noconftest", "-p", "no:cacheprovider", "-q", "--tb=no", "-rf"]
    ran = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", *settings, str(DEFECTIVE_STORES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    caught = re.findall(r"^FAILED .*\[(?:.*-)?(\w+)(?:-.*)?\]", ran.stdout, re.MULTILINE)
    assert {kind.__name__ for kind in DEFECTIVE} == {name for name in caught if name[:1].isupper()}, ran.stdout
