"""A keyspace in two real data centres, of a node each: who is let in, and how its home is stored and moved."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.findings import Finding, Severity
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.connection.cluster import connect
from astyqueue.stores.url import locate
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import CannotRunHere
from astyqueue.testing.cassandra.fixtures import lacking
from tests.cassandra.runbooks import Operator

#: Two nodes take long to start. `test_schema` shows on one that a client is refused which works away from the home.
pytestmark = pytest.mark.full

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def two_centres(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[LocalCassandra]:
    """Node 1 is in dc1, node 2 in dc2."""
    folder = tmp_path_factory.mktemp("two")
    for number in (1, 2):
        home = folder / f"node{number}"
        home.mkdir()
        (home / "cassandra-rackdc.properties").write_text(f"dc=dc{number}\nrack=r1\n")
    with ExitStack() as held:
        try:
            cluster = held.enter_context(
                LocalCassandra(2, settings={"endpoint_snitch": "GossipingPropertyFileSnitch"}, directory=folder)
            )
        except CannotRunHere as error:
            lacking(pytestconfig, str(error))
        yield cluster


@pytest.fixture
def name() -> str:
    """A keyspace that is not there yet."""
    return f"jobs_{secrets.token_hex(4)}"


def url(cluster: LocalCassandra, keyspace: str, options: str = "", *, node: int = 1) -> str:
    return f"cassandra://{cluster.contact_points[node - 1]}/{keyspace}{options and '?'}{options}"


def migrated(place: str, *, home: str = "", move: bool = False, copies: str = "dc1:1,dc2:1") -> list[str]:
    with administer(place, clock=CLOCK, replication=copies, home=home, move_home=move) as looked_after:
        return looked_after.migrate()


def of_home(place: str) -> Finding:
    with administer(place, clock=CLOCK) as looked_after:
        [found] = [finding for finding in looked_after.verify() if finding.subject.startswith("home of")]
    return found


def works(place: str) -> bool:
    with MessageQueue.builder().store(place).name("mail").build() as queue:
        queue.send("one")
        with queue.receive() as batch:
            return [delivery.body for delivery in batch] == ["one"]


def test_only_clients_of_the_home_are_let_in(two_centres: LocalCassandra, name: str) -> None:
    told = migrated(url(two_centres, name, "dc=dc1"))
    assert told[-1].startswith(
        f"the home of keyspace {name} is data centre dc1, consistency=local_quorum, serial=local_serial"
    )
    assert works(url(two_centres, name, "dc=dc1"))
    refused = {
        url(
            two_centres, name, "dc=dc2", node=2
        ): "the home of keyspace .* is data centre dc1, and this client works in dc2.*Put dc=dc1",
        url(two_centres, name): "this client names none of them.*Put dc=dc1 into the URL",
        url(
            two_centres, name, "dc=dc1&serial=serial&consistency=quorum"
        ): "used with consistency=local_quorum&serial=local_serial",
    }
    for place, reason in refused.items():
        with pytest.raises(BadSetting, match=reason):
            open_store(place, clock=CLOCK)
        assert of_home(place).severity is Severity.PROBLEM
    assert of_home(url(two_centres, name, "dc=dc1")).severity is Severity.OK


def test_where_all_data_centres_decide_together_clients_of_each_are_let_in(
    two_centres: LocalCassandra, name: str
) -> None:
    everywhere = "serial=serial&consistency=quorum"
    assert "all data centres, consistency=quorum, serial=serial" in migrated(url(two_centres, name, everywhere))[-1]
    assert works(url(two_centres, name, everywhere))
    assert works(url(two_centres, name, f"dc=dc2&{everywhere}", node=2))
    with pytest.raises(BadSetting, match="used with consistency=quorum&serial=serial"):
        open_store(url(two_centres, name, "dc=dc1"), clock=CLOCK)


def test_which_is_the_home_of_a_keyspace_in_two_data_centres_has_to_be_said(
    two_centres: LocalCassandra, name: str
) -> None:
    with pytest.raises(BadSetting, match=r"--home dc1 or dc=dc1 in the URL; nothing was changed"):
        migrated(url(two_centres, name))
    with pytest.raises(BadSetting, match="name one of dc1, dc2"):
        migrated(url(two_centres, name), home="dc3")
    assert "data centre dc2" in migrated(url(two_centres, name), home="dc2")[-1]
    assert works(url(two_centres, name, "dc=dc2", node=2))


def test_a_data_centre_without_copies_is_reported(two_centres: LocalCassandra, name: str) -> None:
    migrated(url(two_centres, name, "dc=dc1"), copies="dc1:1")
    assert works(url(two_centres, name))
    with pytest.raises(
        BadSetting, match=r"no copies in data centre dc2: its copies are in dc1. Put dc=dc1 into the URL"
    ):
        open_store(url(two_centres, name, "dc=dc2", node=2), clock=CLOCK)
    assert of_home(url(two_centres, name, "dc=dc2", node=2)).severity is Severity.PROBLEM


def test_without_a_replication_the_copies_are_at_home(two_centres: LocalCassandra, name: str) -> None:
    migrated(url(two_centres, name), home="dc2", copies="")
    assert works(url(two_centres, name, "dc=dc2", node=2))


def test_a_keyspace_without_a_stored_home_works_where_a_data_centre_is_named_and_is_a_problem(
    two_centres: LocalCassandra, name: str
) -> None:
    migrated(url(two_centres, name, "dc=dc1"))
    session = connect(Address.of(locate(url(two_centres, "system"))), CLOCK)
    session.execute(f"DELETE FROM \"{name}\".schema_versions WHERE part = 'home'")  # noqa: S608 - our own keyspace
    session.cluster.shutdown()
    assert works(url(two_centres, name, "dc=dc1"))
    with pytest.raises(BadSetting, match="run 'astyqueue migrate --home NAME'"):
        open_store(url(two_centres, name), clock=CLOCK)
    found = of_home(url(two_centres, name, "dc=dc1"))
    assert (found.severity, found.fact) == (Severity.PROBLEM, "is not stored")


def test_a_session_that_is_handed_in_must_ask_at_home_too(two_centres: LocalCassandra, name: str) -> None:
    migrated(url(two_centres, name, "dc=dc1"))
    elsewhere = ExecutionProfile(DCAwareRoundRobinPolicy("dc2"))
    cluster = Cluster(
        [two_centres.contact_points[1]], execution_profiles={EXEC_PROFILE_DEFAULT: elsewhere}, protocol_version=5
    )
    with cluster, pytest.raises(BadSetting, match="this client works in dc2"):
        open_store(cluster.connect(name), clock=CLOCK)


def test_the_home_is_moved_only_when_that_is_asked_for_and_from_a_data_centre_that_is_left_alone(
    two_centres: LocalCassandra, name: str
) -> None:
    migrated(url(two_centres, name, "dc=dc1"))
    there = url(two_centres, name, "dc=dc2", node=2)
    assert migrated(there)[-1].startswith(f"left the home of keyspace {name} unchanged")
    with pytest.raises(BadSetting, match="stop every worker and sender first, then run this again with --move-home"):
        migrated(there, home="dc2")
    two_centres.kill(1)
    try:
        [moved] = migrated(there, home="dc2", move=True)
        assert moved.startswith(f"moved the home of keyspace {name} to data centre dc2")
        assert works(there)
    finally:
        two_centres.restart(1)
    two_centres.nodetool(1, "repair", "--full", name)
    with (
        closing(open_store(there, clock=CLOCK)),
        pytest.raises(BadSetting, match="is data centre dc2, and this client works in dc1"),
    ):
        open_store(url(two_centres, name, "dc=dc1"), clock=CLOCK)


def test_the_runbook_of_a_lost_data_centre_moves_the_home_there_and_back(
    two_centres: LocalCassandra, name: str, tmp_path: Path
) -> None:
    first, second = two_centres.contact_points
    operator = Operator(two_centres, name, tmp_path, {"h1,h2,h3": first, "h4,h5,h6": second})
    places = {"on every node of dc1": (1,), "on every node of dc2": (2,)}
    heading = "### A data centre is lost, and comes back"
    migrated(url(two_centres, name, "dc=dc1"))
    with MessageQueue.builder().store(url(two_centres, name, "dc=dc1")).name("emails").build() as queue:
        queue.send("before")
        assert taken(queue) == ["before"]
        queue.send("waiting")
    two_centres.kill(1)
    # dc2 has one copy here: there is nothing to repair, which nodetool calls an error, so this step is not tried.
    operator.follow(heading, places, {"nodetool repair --full --in-dc dc2 jobs": lambda _: None})
    with MessageQueue.builder().store(operator.environment["ASTYQUEUE_URL"]).name("emails").build() as queue:
        assert taken(queue) == ["waiting"]
        queue.send("sent without dc1")
    two_centres.restart(1)
    operator.follow("#### When it is back", places)
    operator.follow("#### To return to the old home", places)
    assert of_home(url(two_centres, name, "dc=dc1")).severity is Severity.OK
    with MessageQueue.builder().store(operator.environment["ASTYQUEUE_URL"]).name("emails").build() as queue:
        assert taken(queue) == ["sent without dc1"]


def taken(queue: MessageQueue) -> list[object]:
    """What is handed out, and acked."""
    with queue.receive(10, wait="30s") as batch:
        return [delivery.body for delivery in batch]
