"""Which Cassandra the tests run on: the one that ASTYQUEUE_CASSANDRA names, or else nodes started here.

Where neither is to be had the tests are skipped and the last lines of the run say so; with CI=true they fail.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Final

import pytest
from cassandra.cluster import Session

from astyqueue.clock import SECOND, SystemClock
from astyqueue.stores.cassandra import Address, create_schema
from astyqueue.stores.cassandra.connecting import connect
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import CannotRunHere, Contacts

CONTACT_POINTS: Final = "ASTYQUEUE_CASSANDRA"
_TOLD: Final = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was tested on: a run without a Cassandra proves nothing about one."""
    if told := config.stash.get(_TOLD, []):
        terminalreporter.section("Cassandra")
        terminalreporter.write_line("\n".join(dict.fromkeys(told)))


@pytest.fixture(scope="session")
def cassandra(pytestconfig: pytest.Config) -> Iterator[Contacts]:
    """A Cassandra for tests that leave it as it is: theirs are the keyspaces they make."""
    with ExitStack() as held:
        if named := os.environ.get(CONTACT_POINTS):
            _tell(pytestconfig, f"tested on {named}, which {CONTACT_POINTS} names")
            yield Contacts.parse(named)
        else:
            yield held.enter_context(_started(pytestconfig, 1)).contacts


@pytest.fixture(scope="session")
def session(cassandra: Contacts) -> Iterator[Session]:
    """A session of the driver, as astyqueue sets it."""
    made = connect(Address(cassandra.contact_points, "system", cassandra.port), SystemClock())
    yield made
    made.cluster.shutdown()


@pytest.fixture(scope="session")
def keyspace(session: Session) -> Iterator[str]:
    """A keyspace with the tables of a store, one for the whole run."""
    made = f"astyqueue_test_{secrets.token_hex(4)}"
    create_schema(session, made, {"class": "SimpleStrategy", "replication_factor": 1})
    yield made
    session.execute(f'DROP KEYSPACE "{made}"', timeout=60)


@pytest.fixture
def url(cassandra: Contacts, session: Session, keyspace: str) -> str:
    """The URL of a store that is empty."""
    session.execute(f'TRUNCATE "{keyspace}"."entries"', timeout=60)
    return cassandra.url(keyspace)


@pytest.fixture(scope="module")
def one_node(pytestconfig: pytest.Config) -> Iterator[LocalCassandra]:
    """One node of this module's own, as the test before has left it."""
    with _started(pytestconfig, 1) as cluster:
        yield cluster


@pytest.fixture
def node(one_node: LocalCassandra) -> LocalCassandra:
    """One node, running, to be killed and wiped."""
    one_node.restart(*one_node.down)
    return one_node


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
def _started(config: pytest.Config, nodes: int) -> Iterator[LocalCassandra]:
    clock = SystemClock()
    began = clock.monotonic()
    cluster, lacking = LocalCassandra(nodes), ""
    try:
        cluster.start()
    except CannotRunHere as error:
        lacking = str(error)
    if lacking:
        _tell(config, f"NOT TESTED on Cassandra: {lacking}")
    if lacking and os.environ.get("CI") == "true":
        pytest.fail(lacking, pytrace=False)
    if lacking:
        pytest.skip(lacking)
    took = (clock.monotonic() - began) / SECOND
    _tell(config, f"tested on {nodes} local node{'s' * (nodes > 1)}: {', '.join(cluster.contact_points)}, up after {took:.1f} s")
    with closing(cluster):
        yield cluster


def _tell(config: pytest.Config, line: str) -> None:
    config.stash.setdefault(_TOLD, []).append(line)
