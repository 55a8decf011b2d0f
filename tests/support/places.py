"""Where the queues of a test are: in memory, in a SQLite file, or on a real Cassandra. One suite tests all three.

The conformance suite holds each store to its port, so behaviour above the port is tested in memory: a test that uses
`place` runs there, or on the first store that its `stores` mark names. Tests marked `every_store`, at least one for
each operation that users call, run in memory and on SQLite, and with `--store cassandra` on the Cassandra that
`astyqueue.testing.cassandra.fixtures` provides; `--all-stores` treats every test as marked. On Cassandra every store
has rows of its own, which costs nothing; only `place.url`, for programs that open their store themselves, empties the
whole table first.
"""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pytest

from astyqueue.clock import Clock, SystemClock
from astyqueue.protocol.steps import Commit, Read, Request, Send
from astyqueue.store import AsyncStore, Batch, Column, Expectation, Outcome, Spread, Store, Wanted
from astyqueue.stores import open_store
from astyqueue.stores.async_adapter import as_async
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND

if TYPE_CHECKING:
    from cassandra.cluster import Session

CASSANDRA: Final = "cassandra"
EMBEDDED: Final = ("memory", "sqlite")
#: The folders of tests that are about Cassandra alone.
_ON_CASSANDRA: Final = frozenset(Path(__file__).parents[1] / name for name in ("cassandra", "ring"))
#: The nodes have clocks of their own, and take write times from them; a test's time stays behind these, however far the
#: test advances it.
BEHIND: Final = 24 * 3600 * SECOND
#: A claim takes from one row: a test that counts on one claim, or on order, needs one row on any store.
ONE_ROW: Final = {"time_shards": 1, "concurrency_shards": 1}


class Place(Protocol):
    """Where the stores of one test are; they are removed after it."""

    @property
    def kind(self) -> str:
        """Memory, sqlite or cassandra."""
        ...

    @property
    def url(self) -> str:
        """The URL of a store that was empty when this was first read."""
        ...

    def store(self, clock: Clock) -> Store:
        """One more store, empty, with one row to a queue unless the test wants several."""
        ...


class Embedded:
    """Stores in memory, or in files of a directory."""

    def __init__(self, kind: str, url: Callable[[str], str], held: ExitStack) -> None:
        self.kind = kind
        self.url = url("work")
        self._named = (url(f"store-{number}") for number in itertools.count())
        self._held = held

    def store(self, clock: Clock) -> Store:
        opened = open_store(next(self._named), clock=clock)
        self._held.callback(opened.close)
        return opened


class OnCassandra:
    """Stores in a keyspace that other tests use too."""

    kind = CASSANDRA

    def __init__(self, session: Session, keyspace: str, emptied: Callable[[], str]) -> None:
        self._session = session
        self._keyspace = keyspace
        self._emptied = emptied

    @property
    def url(self) -> str:
        return self._emptied()

    def store(self, clock: Clock) -> Store:
        from astyqueue.stores.cassandra import CassandraStore  # noqa: PLC0415 - tests on other stores need no driver

        assert clock.now() < SystemClock().now() + SECOND
        return Apart(CassandraStore(self._session, self._keyspace), secrets.token_hex(4))


class Apart(Faulty):
    """A store with rows of its own in a store that others use too, where each of its rows has another name."""

    spread = Spread()
    at_once = 64

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store)
        self._name = name
        self._for_tasks = ApartForTasks(as_async(store), self)

    def as_async(self) -> ApartForTasks:
        return self._for_tasks

    def perform(self, request: Request) -> object:
        match request:
            case Read(wanted, exact):
                request = Read(self.wanted(wanted), exact)
            case Send():
                first, *more = map(self.batch, request.batches)
                request = Send(first, tuple(more))
            case Commit(batch, expects):
                request = Commit(self.batch(batch), expects)
        return super().perform(request)

    def wanted(self, wanted: tuple[Wanted, ...]) -> tuple[Wanted, ...]:
        """The same of its own rows."""
        return tuple(dataclasses.replace(each, row=f"{self._name}/{each.row}") for each in wanted)

    def batch(self, batch: Batch) -> Batch:
        """The same for its own row."""
        return dataclasses.replace(batch, row=f"{self._name}/{batch.row}")


class ApartForTasks:
    """The same for tasks."""

    def __init__(self, store: AsyncStore, apart: Apart) -> None:
        self._store = store
        self._apart = apart

    async def read(self, wanted: tuple[Wanted, ...], *, exact: bool = False) -> list[list[Column]]:
        return await self._store.read(self._apart.wanted(wanted), exact=exact)

    async def send(self, batch: Batch, *more: Batch) -> None:
        await self._store.send(*map(self._apart.batch, (batch, *more)))

    async def commit(self, batch: Batch, expects: tuple[Expectation, ...]) -> Outcome:
        return await self._store.commit(self._apart.batch(batch), expects)

    async def close(self) -> None:
        await self._store.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store", choices=(*EMBEDDED, CASSANDRA), help="Run the tests that need a store on this one, and no others."
    )
    parser.addoption("--all-stores", action="store_true", help="Run each test that needs a store on every store.")
    parser.addoption("--kills", type=int, help="How many workers to kill, instead of as many as take a minute or so.")
    parser.addoption(
        "--upgraded", type=int, help="How many messages each sender of a rolling upgrade sends, instead of 300 or 1000."
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stores(*kinds): which of the stores this test is about, when not all")
    config.addinivalue_line(
        "markers", "every_store: `make test` runs this test on each store, and not on the first only"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the stores of this run."""
    if "place" in metafunc.fixturenames:
        marks = [set(mark.args) for mark in metafunc.definition.iter_markers("stores")]
        kinds = [kind for kind in (*EMBEDDED, CASSANDRA) if all(kind in mark for mark in marks)]
        everywhere = metafunc.config.getoption("--all-stores") or metafunc.definition.get_closest_marker("every_store")
        asked = metafunc.config.getoption("--store")
        chosen = (asked,) if asked else EMBEDDED
        stores = [kind for kind in (kinds if everywhere else kinds[:1]) if kind in chosen]
        metafunc.parametrize("place", stores, indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that do not depend on the store that was chosen."""
    about = [_is_about(item, config.getoption("--store")) for item in items]
    config.hook.pytest_deselected(items=[item for item, chosen in zip(items, about, strict=True) if not chosen])
    items[:] = [item for item, chosen in zip(items, about, strict=True) if chosen]


def _is_about(item: pytest.Item, kind: str | None) -> bool:
    """Whether a test uses one of the stores of this run.

    Tests without a store are in every run except those for one store; tests of Cassandra alone are in those for it.
    """
    if "place" in getattr(item, "fixturenames", ()):
        return item.callspec.params["place"] in (*EMBEDDED, CASSANDRA)  # type: ignore[attr-defined]  # `place` is a parameter
    return kind is None or (kind == CASSANDRA and not _ON_CASSANDRA.isdisjoint(item.path.parents))


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Where the queues of this test are."""
    kind: str = request.param
    with ExitStack() as held:
        if kind == CASSANDRA:
            session = request.getfixturevalue("cassandra_session")
            keyspace = request.getfixturevalue("cassandra_keyspace")
            yield OnCassandra(session, keyspace, lambda: str(request.getfixturevalue("cassandra_url")))
        elif kind == "sqlite":
            yield Embedded(kind, lambda name: f"sqlite:///{tmp_path}/{name}.db?synchronous=normal", held)
        else:
            run = secrets.token_hex(4)
            yield Embedded(kind, lambda name: f"memory://{name}-{run}", held)


@pytest.fixture
def clock(pytestconfig: pytest.Config) -> TimeMachine:
    """Time stands still until the test moves it."""
    on_cassandra = pytestconfig.getoption("--store") == CASSANDRA
    return TimeMachine(SystemClock().now() - BEHIND if on_cassandra else None)
