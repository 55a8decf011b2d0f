"""The rights that SECURITY.md lists are enough for what it says, on a node that grants nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cassandra.cluster import Session

from astyqueue import MessageQueue, connect
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreError, StoreUnavailable
from astyqueue.findings import Severity
from astyqueue.journal import Journal
from astyqueue.queue import health_check
from astyqueue.spark.connections import time_at
from astyqueue.spark.options import Place
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.connection.cluster import connect as session_of
from astyqueue.stores.url import locate
from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: A node that asks for logins takes half a minute to start; `make test` has one in test_store_secured.py.
pytestmark = pytest.mark.full

CLOCK = SystemClock()
GRANTS = re.findall(r"GRANT .*? TO (\w+);", (Path(__file__).parents[2] / "SECURITY.md").read_text())
STATEMENTS = re.findall(r"GRANT .*?;", (Path(__file__).parents[2] / "SECURITY.md").read_text())
#: The login of a new cluster is made some time after the node takes requests.
PATIENCE = 30 * SECOND


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCassandra]:
    settings = {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    with LocalCassandra(settings=settings) as started:
        yield started


@contextmanager
def opened(url: str) -> Iterator[Session]:
    session = session_of(Address.of(locate(url)), CLOCK)
    try:
        yield session
    finally:
        session.cluster.shutdown()


def url_of(cluster: LocalCassandra, role: str) -> str:
    password = "cassandra" if role == "cassandra" else "secret"
    return f"cassandra://{role}:{password}@{cluster.contact_points[0]}/jobs?dc=datacenter1"


def is_let_in(url: str) -> bool:
    try:
        with opened(url):
            return True
    except StoreUnavailable:
        return False


@pytest.fixture(scope="module")
def granted(cluster: LocalCassandra) -> LocalCassandra:
    """The keyspace, its tables made by the role that is to make them, and every role with its rights."""
    admin = url_of(cluster, "cassandra")
    until = CLOCK.monotonic() + PATIENCE
    while not is_let_in(admin) and CLOCK.monotonic() < until:
        Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND // 5)
    with opened(admin) as session, administer(admin, clock=CLOCK, replication="datacenter1:1") as administration:
        session.execute(administration.statements()[0])
        for role in sorted(set(GRANTS)):
            session.execute(f"CREATE ROLE {role} WITH PASSWORD = 'secret' AND LOGIN = true")
        for statement in STATEMENTS:
            if "migrator" in statement:
                session.execute(statement)
        with administer(url_of(cluster, "migrator"), clock=CLOCK, replication="datacenter1:1") as migration:
            assert any("made version" in done for done in migration.migrate())
        for statement in STATEMENTS:
            if "migrator" not in statement:
                session.execute(statement)
    return cluster


def test_a_migrator_migrates_again_and_verifies(granted: LocalCassandra) -> None:
    with administer(url_of(granted, "migrator"), clock=CLOCK, replication="datacenter1:1") as migration:
        assert [done.partition(":")[0] for done in migration.migrate()] == ["nothing to do"]
        assert {finding.severity for finding in migration.verify()} == {Severity.OK}


def test_a_worker_sends_handles_and_mends_and_makes_no_table(granted: LocalCassandra) -> None:
    url = url_of(granted, "worker")
    with MessageQueue.builder().store(url).name("mail").history("all").build() as queue:
        queue.send("plain")
        queue.send("keyed", key="k", unique="reject")
        queue.send("broken")
        handled = 0
        while handled < 3:  # a claim takes from one row
            handled += handle_some(queue)
        assert queue.redrive().redriven == 1
        assert queue.clear() == 1
        queue.configure(max_attempts=3)
    with administer(url, clock=CLOCK) as administration, opened(url) as session:
        assert administration.verify()
        with pytest.raises(Exception, match="no CREATE permission"):
            session.execute("CREATE TABLE jobs.other (it int PRIMARY KEY)")
        with pytest.raises(Exception, match="no DROP permission"):
            session.execute('DROP TABLE jobs."entries"')


def test_a_worker_sends_again_what_it_may_have_sent(granted: LocalCassandra, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "orders") as journal:
        journal.append({"order": 7})
    with MessageQueue.builder().store(url_of(granted, "worker")).name("orders").history("all").build() as queue:
        sent = [queue.replay(tmp_path / "orders").sent for _ in range(2)]
        assert (sent, queue.counts().total) == ([1, 0], 1)


def handle_some(queue: MessageQueue) -> int:
    with queue.receive(limit=3, wait="10s") as batch:
        for delivery in batch:
            delivery.reject("no use") if delivery.body == "broken" else delivery.ack()
    return len(batch)


def test_a_doctor_is_told_everything_and_changes_nothing(granted: LocalCassandra) -> None:
    found = health_check.examine(url_of(granted, "doctor"), clock=CLOCK)
    assert not [finding for finding in found if "unknown" in finding.fact]
    refuses_to_send(url_of(granted, "doctor"))


def test_an_analyst_looks_on_and_changes_nothing(granted: LocalCassandra) -> None:
    url = url_of(granted, "worker")
    with connect(url) as store:
        store.queue("seen", history="all").send("look", key="k")
    with connect(url_of(granted, "analyst")) as store:
        queue = store.queue("seen")
        [message] = queue.peek()
        assert queue.counts().total == 1
        assert queue.find("k")
        assert queue.explain(message.id).why
        assert [event.kind for event in queue.history()] == ["sent"]
        assert "seen" in store.queues()
    assert abs(time_at(Place(url_of(granted, "analyst"), "seen")) - CLOCK.now()) < PATIENCE
    refuses_to_send(url_of(granted, "analyst"))


def refuses_to_send(url: str) -> None:
    with connect(url) as store, pytest.raises(StoreError, match="no MODIFY permission"):
        store.queue("mail").send("not allowed")
