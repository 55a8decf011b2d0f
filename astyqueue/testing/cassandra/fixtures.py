"""Fixtures for pytest: `pytest_plugins = ["astyqueue.testing.cassandra.fixtures"]` in the topmost conftest.py.

Tests that use `cassandra` or `cassandra_url` run on the cluster that `--cassandra` or ASTYQUEUE_CASSANDRA names,
otherwise on a local node, otherwise in a container. Processes of pytest-xdist share it, and each has a keyspace of its
own. Where none is available they are skipped, which the summary of the run reports; with CI=true they fail.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from astyqueue.clock import SystemClock
from astyqueue.testing.cassandra.errors import CannotRunHere
from astyqueue.testing.cassandra.network import Contacts
from astyqueue.testing.cassandra.provider import CONTACT_POINTS, provided, provided_to_all

if TYPE_CHECKING:
    from cassandra.cluster import Session

_TOLD: Final = pytest.StashKey[list[str]]()
_HELD: Final = pytest.StashKey[ExitStack]()
_PATIENCE_SECONDS: Final = 60


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--cassandra`."""
    text = (
        "The Cassandra to test on: 'local' (nodes started here), 'container', or contact points such as "
        f"host1:9042,host2:9042. Default: {CONTACT_POINTS}, or the first of 'local' and 'container' that this machine "
        "can run."
    )
    parser.getgroup("astyqueue").addoption(
        "--cassandra", metavar="WHERE", default=os.environ.get(CONTACT_POINTS, ""), help=text
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the cluster that was tested on: a run without one proves nothing about Cassandra."""
    if lines := config.stash.get(_TOLD, []):
        terminalreporter.section("Cassandra")
        terminalreporter.write_line("\n".join(dict.fromkeys(lines)))


def tell(config: pytest.Config, line: str) -> None:
    """Add a line to the summary of the run."""
    config.stash.setdefault(_TOLD, []).append(line)


def lacking(config: pytest.Config, reason: str) -> None:
    """Skip this test for lack of a Cassandra, and report it in the summary of the run; with CI=true, fail it."""
    tell(config, f"NOT TESTED on Cassandra: {reason}")
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def cassandra(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Contacts:
    """A shared cluster; a test may change only the keyspaces that it creates."""
    where = pytestconfig.getoption("--cassandra")
    held = pytestconfig.stash.setdefault(_HELD, ExitStack())
    reason = ""
    try:
        if hasattr(pytestconfig, "workerinput"):  # a process of pytest-xdist, whose folder is in that of the run
            made = provided_to_all(where, tmp_path_factory.getbasetemp().parent)
        else:
            made = provided(where)
        found = held.enter_context(made)
    except CannotRunHere as error:
        reason = str(error)
    if reason:
        lacking(pytestconfig, reason)
    tell(pytestconfig, f"tested on {found.description}")
    return found.contacts


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the cluster, after all fixtures, and in no test's time: other processes may use it for minutes."""
    session.config.stash.get(_HELD, ExitStack()).close()


@pytest.fixture(scope="session")
def cassandra_session(cassandra: Contacts) -> Iterator[Session]:
    """A driver session with astyqueue's settings."""
    from astyqueue.stores.cassandra import Address  # noqa: PLC0415 - only tests on Cassandra load the driver
    from astyqueue.stores.cassandra.connection.cluster import connect  # noqa: PLC0415 - as above

    made = connect(Address(cassandra.contact_points, "system", cassandra.port), SystemClock())
    yield made
    made.cluster.shutdown()


@pytest.fixture(scope="session")
def cassandra_keyspace(cassandra_session: Session) -> Iterator[str]:
    """A keyspace with the tables of a store, for the whole run; it is dropped at the end."""
    from astyqueue.stores.cassandra.admin import KeyspaceAdministration  # noqa: PLC0415 - as above
    from astyqueue.stores.cassandra.schema.keyspace import Keyspace, replication  # noqa: PLC0415 - as above

    made = f"astyqueue_test_{secrets.token_hex(4)}"
    KeyspaceAdministration(cassandra_session, Keyspace(made, replication("1")), clock=SystemClock()).migrate()
    yield made
    cassandra_session.execute(f'DROP KEYSPACE "{made}"', timeout=_PATIENCE_SECONDS)


@pytest.fixture
def cassandra_url(cassandra: Contacts, cassandra_session: Session, cassandra_keyspace: str) -> str:
    """The URL of an empty store."""
    for table in ("entries", "history"):
        cassandra_session.execute(f'TRUNCATE "{cassandra_keyspace}"."{table}"', timeout=_PATIENCE_SECONDS)
    return cassandra.url(cassandra_keyspace)
