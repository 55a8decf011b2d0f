"""The simulated servers answer as real ones do: the same stories on both, answer by answer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Literal
from unittest import mock

import pytest
from cassandra.cluster import Session

from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.store import Named, Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.connection.cluster import connect
from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from tests.cassandra.scripted_requests import HEADER, ROW, STORIES, Story
from tests.simulation.cassandra.cluster import Call, Cluster
from tests.simulation.cassandra.replica import Replica
from tests.simulation.cassandra.store import SimulatedClock, SimulatedStore
from tests.simulation.engine.fault_profile import FaultProfile
from tests.support.proxy import Proxy

CLOCK = SystemClock()
KEYSPACE = "stories"
#: How long tombstones are kept in these scenarios, in seconds.
GRACE = 1


class Simulated:
    """Three simulated replicas."""

    def __init__(self) -> None:
        self._clock = SimulatedClock()
        self.store = SimulatedStore(
            self._clock, profile=dataclasses.replace(FaultProfile.fault_free(3), grace_us=GRACE * SECOND)
        )

    def now(self) -> int:
        self._clock.advance("10ms")
        return self._clock.now()

    def losing(self, what: Literal["question", "answer"], change: Callable[[Store], object]) -> None:
        def begin(cluster: Cluster, local: Replica, call: Call) -> None:
            if what == "answer":
                cluster.network.coordinate(local, call.job(local), lambda _: None)

        with mock.patch.object(Cluster, "_begin", begin):
            change(self.store)

    def clear_graves(self) -> None:
        self._clock.advance("3s")
        assert all(replica.purge(GRACE * SECOND) for replica in self.store.cluster.replicas)


class Real:
    """A real node, and a way to it that can lose what is said."""

    def __init__(self, node: LocalCassandra, store: Store, *, proxy: Proxy, through: Store) -> None:
        self.store = store
        self._node = node
        self._proxy = proxy
        self._through = through

    def now(self) -> int:
        return CLOCK.now()

    def losing(self, what: Literal["question", "answer"], change: Callable[[Store], object]) -> None:
        self._connected()
        cut = self._proxy.cut_at_next_answer if what == "answer" else self._proxy.cut_at_next_question
        cut(ROW.encode())
        change(self._through)

    def _connected(self) -> None:
        """Go on when the way is open again after what was cut before; the test's time limit ends this."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                self._through.read((Named(ROW, (HEADER,)),))
                return

    def clear_graves(self) -> None:
        """Each command takes longer than tombstones are kept."""
        self._node.nodetool(1, "flush", KEYSPACE)
        self._node.nodetool(1, "compact", KEYSPACE)
        self._node.nodetool(1, "compact", KEYSPACE)


@pytest.fixture(scope="module")
def session(one_node: LocalCassandra) -> Iterator[Session]:
    """A session to a node with tables in which tombstones are kept for a moment only."""
    with administer(one_node.url(KEYSPACE), clock=CLOCK, replication="1") as administration:
        administration.migrate()
    session = connect(Address(one_node.contact_points, "system", one_node.contacts.port), CLOCK)
    session.execute(f'ALTER TABLE {KEYSPACE}."entries" WITH gc_grace_seconds = {GRACE}')
    yield session
    session.cluster.shutdown()


@pytest.fixture(scope="module")
def way(one_node: LocalCassandra, session: Session) -> Iterator[Real]:  # noqa: ARG001 - the tables are there by then
    with Proxy(one_node.contact_points[0], one_node.contacts.port) as proxy:
        through = f"cassandra://{proxy.host}:{proxy.port}/{KEYSPACE}"
        with (
            closing(open_store(one_node.url(KEYSPACE), clock=CLOCK)) as store,
            closing(open_store(through, clock=CLOCK)) as lossy,
        ):
            yield Real(one_node, store, proxy=proxy, through=lossy)


@pytest.fixture
def real(way: Real, session: Session) -> Real:
    """The same node with nothing in it."""
    session.execute(f'TRUNCATE {KEYSPACE}."entries"', timeout=60)
    return way


@pytest.mark.timeout(120)
@pytest.mark.parametrize("history", STORIES, ids=lambda history: history.__name__)
def test_simulated_and_real_servers_give_the_same_answers(real: Real, history: Story) -> None:
    simulated = list(history(Simulated()))
    assert len(simulated) > 0
    assert list(history(real)) == simulated
