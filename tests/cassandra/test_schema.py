"""Making the tables of a keyspace and looking whether they are right, on real nodes."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting, WrongSchema
from astyqueue.findings import Severity, worst
from astyqueue.queue.connection import connect
from astyqueue.stores.admin import Administration, administer
from astyqueue.stores.cassandra import admin
from astyqueue.stores.cassandra.schema.keyspace import Keyspace, replication
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import Contacts

CLOCK = SystemClock()
DIFFERENCES = {
    "gc_grace_seconds = 60": ("gc_grace_seconds is 60 and should be 86400", Severity.PROBLEM),
    "default_time_to_live = 600": ("default_time_to_live is 600 and should be 0", Severity.PROBLEM),
    "compaction = {'class': 'SizeTieredCompactionStrategy'}": (
        "compaction is {'class': 'SizeTieredCompactionStrategy'}",
        Severity.WARNING,
    ),
}


@pytest.fixture
def fresh(session: Session) -> Iterator[str]:
    """The name of a keyspace that is not there."""
    name = f"astyqueue_test_{secrets.token_hex(4)}"
    yield name
    session.execute(f'DROP KEYSPACE IF EXISTS "{name}"', timeout=60)


@pytest.fixture
def looked_after(cassandra: Contacts, fresh: str) -> Iterator[Administration]:
    with administer(cassandra.url(fresh), clock=CLOCK) as administration:
        yield administration


@pytest.mark.usefixtures("session")
def test_from_nothing_to_a_queue(cassandra: Contacts, fresh: str, looked_after: Administration) -> None:
    assert not looked_after.ready()
    with pytest.raises(WrongSchema, match=f"'astyqueue migrate --url cassandra://.../{fresh}'"):
        connect(cassandra.url(fresh))
    done = looked_after.migrate()
    assert [sentence.split()[:2] for sentence in done] == [
        ["made", "keyspace"],
        *[["made", "version"]] * 2,
        ["the", "home"],
    ]
    assert looked_after.ready()
    assert {finding.severity for finding in looked_after.verify()} == {Severity.OK}
    with connect(cassandra.url(fresh)) as store:
        store.queue("emails").send("hello")
        assert store.queue("emails").counts().waiting == 1


def test_migrating_again_changes_nothing_and_says_so(looked_after: Administration) -> None:
    looked_after.migrate()
    assert [sentence.split(":")[0] for sentence in looked_after.migrate()] == ["nothing to do"]


def test_what_was_dropped_is_made_again(session: Session, fresh: str, looked_after: Administration) -> None:
    looked_after.migrate()
    session.execute(f'DROP TABLE "{fresh}"."entries"', timeout=60)
    assert "does not exist" in {finding.fact for finding in looked_after.verify()}
    assert ["made version 1" in sentence for sentence in looked_after.migrate()] == [True]
    session.execute(f'DROP KEYSPACE "{fresh}"', timeout=60)
    assert len(looked_after.migrate()) == 4
    assert worst(looked_after.verify()) is Severity.OK


def test_a_keyspace_that_is_there_keeps_its_replication_and_is_told_to_differ(
    cassandra: Contacts, session: Session, fresh: str
) -> None:
    session.execute(
        f"CREATE KEYSPACE \"{fresh}\" WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
        timeout=60,
    )
    with administer(cassandra.url(fresh), clock=CLOCK, replication="1") as asked:
        told = asked.migrate()
        assert told[0].startswith(f"left keyspace {fresh} unchanged; to change it: stop all workers and senders")
        assert f'ALTER KEYSPACE "{fresh}" WITH replication' in told[0]
        assert asked.verify()[0].severity is Severity.WARNING
    with administer(cassandra.url(fresh), clock=CLOCK) as unasked:
        assert worst(unasked.verify()) is Severity.OK


@pytest.mark.parametrize("change", DIFFERENCES)
def test_each_table_option_that_differs_is_reported_and_its_remedy_mends_it(
    session: Session, fresh: str, looked_after: Administration, change: str
) -> None:
    looked_after.migrate()
    session.execute(f'ALTER TABLE "{fresh}"."entries" WITH {change}', timeout=60)
    [finding] = [finding for finding in looked_after.verify() if finding.severity]
    fact, severity = DIFFERENCES[change]
    assert finding.fact.startswith(fact)
    assert finding.severity is severity
    session.execute(finding.remedy, timeout=60)
    assert worst(looked_after.verify()) is Severity.OK


def test_a_column_that_somebody_added_is_reported_and_its_remedy_mends_it(
    session: Session, fresh: str, looked_after: Administration
) -> None:
    looked_after.migrate()
    session.execute(f'ALTER TABLE "{fresh}"."entries" ADD version int STATIC', timeout=60)
    [finding] = [finding for finding in looked_after.verify() if finding.severity]
    assert (finding.fact.split(" that ")[0], finding.severity) == (
        "has an unknown column version (int, static)",
        Severity.WARNING,
    )
    session.execute(finding.remedy, timeout=60)
    assert worst(looked_after.verify()) is Severity.OK


def test_a_keyspace_of_an_earlier_release_goes_on_and_is_noted_until_its_home_is_stored(
    session: Session, fresh: str, cassandra: Contacts, looked_after: Administration
) -> None:
    looked_after.migrate()
    session.execute(f"DELETE FROM \"{fresh}\".schema_versions WHERE part = 'home'", timeout=60)  # noqa: S608 - our own keyspace
    with connect(cassandra.url(fresh)) as store:
        store.queue("emails").send("hello")
    [finding] = [finding for finding in looked_after.verify() if finding.severity]
    assert (finding.severity, finding.fact) == (Severity.NOTE, "is not stored")
    assert [sentence.split(" is ")[0] for sentence in looked_after.migrate()] == [f"the home of keyspace {fresh}"]
    assert worst(looked_after.verify()) is Severity.OK


def test_a_client_that_works_elsewhere_than_at_the_stored_home_is_refused(
    session: Session, fresh: str, cassandra: Contacts, looked_after: Administration
) -> None:
    looked_after.migrate()
    text = f"UPDATE \"{fresh}\".schema_versions SET file = 'elsewhere' WHERE part = 'home' AND version = 0"  # noqa: S608 - our own keyspace
    session.execute(text, timeout=60)
    with pytest.raises(BadSetting, match="is data centre elsewhere, and this client works in datacenter1"):
        connect(cassandra.url(fresh))
    [finding] = [finding for finding in looked_after.verify() if finding.severity]
    assert (finding.severity, finding.subject) == (Severity.PROBLEM, f"home of keyspace {fresh}")


def test_tables_of_a_newer_astyqueue_are_left_alone(session: Session, fresh: str, looked_after: Administration) -> None:
    looked_after.migrate()
    session.execute(
        f"INSERT INTO \"{fresh}\".schema_versions (part, version, file) VALUES ('schema', 99, '0099_later')",  # noqa: S608 - our own keyspace
        timeout=60,
    )
    assert worst(looked_after.verify()) is Severity.PROBLEM
    with pytest.raises(
        WrongSchema,
        match="has version 99 of the tables, and this astyqueue knows version 2; nothing was changed: upgrade",
    ):
        looked_after.migrate()


def test_what_is_printed_makes_the_same_when_it_is_run_by_hand(
    session: Session, fresh: str, cassandra: Contacts
) -> None:
    with administer(f"{cassandra.url(fresh)}?dc=datacenter1", clock=CLOCK, replication="1") as asked:
        made, _, *inside = asked.statements()
        session.execute(made, timeout=60)
        for text in inside:
            named = text.replace("EXISTS ", f'EXISTS "{fresh}".').replace("INTO ", f'INTO "{fresh}".')
            session.execute(named, timeout=60)
        assert worst(asked.verify()) is Severity.OK
        assert asked.migrate()[0].startswith("nothing to do")


def test_printing_needs_no_server() -> None:
    with administer("cassandra://nosuch.invalid/jobs?dc=west", clock=CLOCK) as asked:
        assert "'west': '3'" in asked.statements()[0]


def test_a_node_that_has_not_heard_of_a_new_table_yet_is_asked_again(
    session: Session, fresh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, refused = session.execute, set[str]()

    def execute(statement: SimpleStatement | str, *values: object, **options: object) -> object:
        text = statement.query_string if isinstance(statement, SimpleStatement) else ""
        if "schema_versions" not in text or text.startswith("CREATE") or text in refused:
            return ask(statement, *values, **options)
        refused.add(text)
        return ask(SimpleStatement(text.replace("schema_versions", "not_heard_of"), keyspace=fresh), *values, **options)

    with admin.KeyspaceAdministration(session, Keyspace(fresh, replication("1")), clock=CLOCK) as looked_after:
        with monkeypatch.context() as patched:
            patched.setattr(session, "execute", execute)
            looked_after.migrate()
        assert worst(looked_after.verify()) is Severity.OK
    assert {text.split()[0] for text in refused} == {"INSERT", "SELECT", "UPDATE", "DELETE"}


@pytest.mark.full
def test_several_that_migrate_at_once_through_different_nodes_make_one_table(ring: LocalCassandra) -> None:
    told: list[list[str]] = []
    nodes = [*ring.contact_points, *ring.contact_points]
    start = threading.Barrier(len(nodes))

    def migrate(node: str) -> None:
        profile = ExecutionProfile(WhiteListRoundRobinPolicy([node]))
        patient = {"connect_timeout": 60, "control_connection_timeout": 60}
        with Cluster(
            [node], execution_profiles={EXEC_PROFILE_DEFAULT: profile}, protocol_version=5, **patient
        ) as cluster:
            session = cluster.connect()
            start.wait(timeout=60)
            told.append(admin.KeyspaceAdministration(session, Keyspace("together"), clock=CLOCK).migrate())

    threads = [threading.Thread(target=migrate, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(told) == len(nodes)
    assert sum("made version 1" in sentence for sentences in told for sentence in sentences) == 1
    with administer(ring.url("together"), clock=CLOCK) as looked_after:
        assert worst(looked_after.verify()) is Severity.OK
        assert "datacenter1 3" in looked_after.verify()[0].fact
    assert not any("ID mismatch" in ring.log(node) for node in (1, 2, 3))
