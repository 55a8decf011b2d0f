"""The stores here keep what every store promises, and the suite that shows it fails each defective store."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from astyqueue.store import HISTORY, AsyncStore, Batch, Column, Expectation, Outcome, Spread, Store, Wanted
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import as_async
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance import InTable, StoreConformance
from tests.stores.conformance.defective_stores import DEFECTIVE

T = TypeVar("T")


class CalledFromThreads:
    """The verbs of an `AsyncStore`, called by threads and carried out by tasks of an event loop of its own."""

    spread = Spread()
    at_once = 64

    def __init__(self, store: AsyncStore) -> None:
        """Start the event loop; `close` closes the store, and ends it."""
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tasks", daemon=True)
        self._thread.start()

    def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        return self._carried_out(self._store.read(wanted, exact=exact))

    def send(self, batch: Batch, *more: Batch) -> None:
        self._carried_out(self._store.send(batch, *more))

    def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        return self._carried_out(self._store.commit(batch, expects))

    def close(self) -> None:
        """Close the store; later verbs are carried out by a loop for each, so that they raise what they should."""
        self._carried_out(self._store.close())
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _carried_out(self, verb: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            return asyncio.run(verb)
        return asyncio.run_coroutine_threadsafe(verb, self._loop).result()


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
