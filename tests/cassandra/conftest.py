"""Nodes for tests on Cassandra: one that all share, and some that a test may kill."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest
from cassandra.cluster import Session

from astyqueue.clock import SystemClock
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import CannotRunHere
from astyqueue.testing.cassandra.fixtures import lacking, tell
from astyqueue.units import SECOND


@pytest.fixture(scope="session")
def session(cassandra_session: Session) -> Session:
    """A session of the driver, as astyqueue sets it."""
    return cassandra_session


@pytest.fixture(scope="session")
def keyspace(cassandra_keyspace: str) -> str:
    """A keyspace with the tables of a store, one for the whole run."""
    return cassandra_keyspace


@pytest.fixture
def url(cassandra_url: str) -> str:
    """The URL of a store that is empty."""
    return cassandra_url


@pytest.fixture(scope="session")
def one_node(pytestconfig: pytest.Config) -> Iterator[LocalCassandra]:
    """One node that tests may kill, as the test before has left it; `run_with` has one process run all that use it."""
    with _started(pytestconfig, 1) as cluster:
        yield cluster


@pytest.fixture
def node(one_node: LocalCassandra) -> LocalCassandra:
    """One node, running, to be killed and wiped."""
    one_node.restart(*one_node.down)
    return one_node


@pytest.fixture(scope="module")
def strict_node(pytestconfig: pytest.Config) -> Iterator[LocalCassandra]:
    """One node that gives up a read of more than 400 tombstones, where others pass 100 000."""
    with _started(
        pytestconfig, 1, settings={"tombstone_warn_threshold": 200, "tombstone_failure_threshold": 400}
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three_nodes(pytestconfig: pytest.Config) -> Iterator[LocalCassandra]:
    """Three nodes of this module's own, as the test before has left them."""
    with _started(pytestconfig, 3) as cluster:
        yield cluster


@pytest.fixture
def ring(three_nodes: LocalCassandra) -> LocalCassandra:
    """Three nodes, all running, to be killed, frozen and wiped."""
    three_nodes.restart(*three_nodes.down)
    return three_nodes


@contextmanager
def _started(
    config: pytest.Config, nodes: int, *, settings: Mapping[str, object] | None = None
) -> Iterator[LocalCassandra]:
    """Local nodes, whatever Cassandra the other tests run on: no other can be killed here."""
    clock = SystemClock()
    began = clock.monotonic()
    with ExitStack() as held:
        reason = ""
        try:
            cluster = held.enter_context(LocalCassandra(nodes, settings=settings))
        except CannotRunHere as error:
            reason = str(error)
        if reason:
            lacking(config, reason)
        took = (clock.monotonic() - began) / SECOND
        where = f"{nodes} local node{'s' * (nodes > 1)}: {', '.join(cluster.contact_points)}"
        tell(config, f"tested on {where}, up after {took:.1f} s")
        yield cluster
