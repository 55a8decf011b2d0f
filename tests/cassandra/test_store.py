"""What the Cassandra store does beyond what every store promises, on real nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cassandra.cluster import Cluster, Session
from cassandra.policies import RetryPolicy

from astyqueue import MessageQueue, ids
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput, BadSetting, Closed, StoreCorrupt, StoreUnavailable, WrongSchema
from astyqueue.store import Batch, Column, Committed, Expectation, Name, Named, Put, Refused, Slice, Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra import CassandraStore
from astyqueue.stores.cassandra.admin import KeyspaceAdministration
from astyqueue.stores.cassandra.requests.queries import NAMES, PAGE
from astyqueue.stores.cassandra.schema.keyspace import Keyspace, replication
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra import Contacts
from astyqueue.units import SECOND
from tests.support.forks import beside_threads, in_a_fork

ROW = "row"
HEADER = Name(0, 0, ids.LEAST, 0)
LOCK = Name(0, 0, ids.first_at(0), 3)
CLOCK = SystemClock()
MEBIBYTE = 1 << 20
#: Tests wait at most this long for nodes to be found again, in microseconds.
PATIENCE = 60 * SECOND


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, clock=CLOCK)
    yield store
    store.close()


def only(store: Store, name: Name) -> Column | None:
    ((*columns,),) = store.read((Named(ROW, (name,)),), exact=True)
    return columns[0] if columns else None


def many(store: Store, count: int) -> tuple[Name, ...]:
    """`count` columns, sent in batches of a usual size."""
    names = tuple(Name(2, 0, id_, 1) for id_ in ids.IdSource(CLOCK).block(count))
    for start in range(0, count, 200):
        store.send(Batch(ROW, puts=tuple(Put(name, b"") for name in names[start : start + 200])))
    return names


def fails_as_unavailable(act: Callable[[], object], told: str) -> bool:
    try:
        act()
    except StoreUnavailable as error:
        return told in str(error)
    return False


def test_a_column_that_is_only_expected_keeps_its_write_time_and_its_time_to_live(
    store: Store, session: Session, keyspace: str
) -> None:
    store.commit(Batch(ROW, puts=(Put(HEADER, b"1", ttl=500),)), (Expectation(HEADER, None),))
    before = only(store, HEADER)
    expects = (Expectation(HEADER, b"1"), Expectation(LOCK, None))
    assert store.commit(Batch(ROW, puts=(Put(Name(2, 0, ids.LEAST, 1), b""),)), expects) == Committed()
    assert only(store, HEADER) == before
    assert only(store, LOCK) is None
    (left,) = session.execute(
        f'SELECT TTL(value) AS seconds FROM "{keyspace}"."entries" WHERE row = %s AND type = 0',  # noqa: S608 - our own keyspace
        (ROW,),
    )
    assert 0 < left.seconds <= 500


def test_a_commit_that_expects_nothing_is_a_commit(store: Store) -> None:
    store.send(Batch(ROW, puts=(Put(LOCK, b"sent", CLOCK.now() - 3600 * SECOND),)))
    assert store.commit(Batch(ROW, puts=(Put(HEADER, b"1"),), deletes=(LOCK,)), ()) == Committed()
    assert store.commit(Batch(ROW), ()) == Committed()
    assert (only(store, LOCK), only(store, HEADER) is None) == (None, False)


@pytest.mark.parametrize("exact", [False, True])
def test_more_columns_than_a_page_or_a_question_holds_are_read_whole(store: Store, *, exact: bool) -> None:
    names = many(store, PAGE + NAMES)
    middle = names[len(names) // 2].id
    asked = (Slice(ROW, 2, 0), Slice(ROW, 2), Slice(ROW, 2, after=middle, limit=PAGE), Named(ROW, names[::-1]))
    whole, of_type, later, named = ([column.name for column in columns] for columns in store.read(asked, exact=exact))
    assert whole == of_type == named == list(names)
    assert later == list(names[len(names) // 2 :])


def test_what_is_too_large_is_refused_and_changes_nothing(store: Store) -> None:
    with pytest.raises(BadInput, match="put less into one batch"):
        store.send(Batch(ROW, puts=(Put(HEADER, bytes(20 * MEBIBYTE)),)))
    with pytest.raises(BadInput, match="put less into one batch"):
        store.commit(Batch(ROW, puts=(Put(HEADER, bytes(20 * MEBIBYTE)),)), (Expectation(HEADER, None),))
    with pytest.raises(BadInput, match="send it in parts"):
        store.send(Batch(ROW, deletes=(HEADER,) * 70_000))
    assert only(store, HEADER) is None


@pytest.mark.usefixtures("url")
def test_a_session_that_is_handed_in_stays_open(session: Session, keyspace: str) -> None:
    lent = CassandraStore(session, keyspace)
    assert lent.commit(Batch(ROW, puts=(Put(HEADER, b"1"),)), (Expectation(HEADER, b"0"),)) == Refused({HEADER: None})
    lent.close()
    with pytest.raises(Closed):
        only(lent, HEADER)
    assert not session.is_shutdown


@pytest.mark.usefixtures("url")
def test_a_queue_lives_in_a_session_that_is_handed_in(session: Session, keyspace: str) -> None:
    own = session.cluster.connect(keyspace)
    with MessageQueue.builder().store(own).name("mail").build() as queue:
        queue.send("one")
        with queue.receive() as batch:
            assert [delivery.body for delivery in batch] == ["one"]
    assert not own.is_shutdown
    own.shutdown()


def test_a_session_without_a_keyspace_is_refused(session: Session) -> None:
    with pytest.raises(BadSetting, match=r"cluster\.connect\('name'\)"):
        MessageQueue.builder().store(session).name("mail").build()


@pytest.mark.filterwarnings("ignore:Legacy execution parameters:DeprecationWarning")
def test_a_session_that_takes_no_profiles_is_refused(cassandra: Contacts, keyspace: str) -> None:
    cluster = Cluster(
        list(cassandra.contact_points), cassandra.port, protocol_version=5, default_retry_policy=RetryPolicy()
    )
    with cluster, pytest.raises(BadSetting, match="execution_profiles instead"):
        CassandraStore(cluster.connect(), keyspace)


@beside_threads
def test_both_sides_of_a_fork_go_on(store: Store) -> None:
    assert in_a_fork(
        lambda: store.commit(Batch(ROW, puts=(Put(HEADER, b"child"),)), (Expectation(HEADER, None),)) == Committed()
    )
    assert store.commit(Batch(ROW, puts=(Put(HEADER, b"parent"),)), (Expectation(HEADER, b"child"),)) == Committed()


@beside_threads
@pytest.mark.usefixtures("url")
def test_a_session_that_is_handed_in_is_not_used_in_a_fork(session: Session, keyspace: str) -> None:
    lent = CassandraStore(session, keyspace)
    assert in_a_fork(lambda: fails_as_unavailable(lambda: only(lent, HEADER), "create the store after the fork"))
    assert only(lent, HEADER) is None
    lent.close()


def test_a_keyspace_or_table_that_is_not_there_says_how_to_make_it(cassandra: Contacts, session: Session) -> None:
    with pytest.raises(
        WrongSchema, match=r"'nobody_made_it' .*'astyqueue migrate --url cassandra://.../nobody_made_it'"
    ):
        open_store(cassandra.url("nobody_made_it"), clock=CLOCK)
    with pytest.raises(WrongSchema, match="astyqueue migrate --url"):
        CassandraStore(session, "system")


def test_a_keyspace_of_another_shape_is_reported_as_that(cassandra: Contacts, session: Session, keyspace: str) -> None:
    other = f"{keyspace}_other"
    session.execute(
        f"CREATE KEYSPACE \"{other}\" WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
        timeout=60,
    )
    session.execute(f'CREATE TABLE "{other}"."entries" (number int PRIMARY KEY)', timeout=60)
    try:
        with pytest.raises(StoreCorrupt, match=f"keyspace '{other}' differ from those of astyqueue"):
            open_store(cassandra.url(other), clock=CLOCK)
    finally:
        session.execute(f'DROP KEYSPACE "{other}"', timeout=60)


def test_making_the_schema_again_leaves_what_is_there(store: Store, session: Session, keyspace: str) -> None:
    store.send(Batch(ROW, puts=(Put(HEADER, b"1"),)))
    KeyspaceAdministration(session, Keyspace(keyspace, replication("1")), clock=CLOCK).migrate()
    assert only(store, HEADER) is not None


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("127.0.0.77:1,127.0.0.78:1/jobs", "127.0.0.77, 127.0.0.78 port 1"),
        ("nosuch.invalid/jobs", "resolves to an address"),
    ],
)
def test_nodes_that_cannot_be_reached_are_named_and_how_long_it_was_tried(asked: str, told: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"not connected after \d+\.\d s") as raised:
        open_store(f"cassandra://ada:secret@{asked}?tls=0", clock=CLOCK)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_data_centre_that_is_not_there_is_named(cassandra: Contacts) -> None:
    with pytest.raises(StoreUnavailable, match=r"data centre nowhere.*that they are in this data centre"):
        open_store(f"{cassandra.url('system')}?dc=nowhere", clock=CLOCK)


@pytest.mark.full
def test_a_cluster_that_went_away_is_found_again(node: LocalCassandra) -> None:
    with administer(node.url("away"), clock=CLOCK) as administration:
        administration.migrate()
    store = open_store(node.url("away"), clock=CLOCK)
    store.commit(Batch(ROW, puts=(Put(HEADER, b"1"),)), (Expectation(HEADER, None),))
    node.kill(1)
    assert fails_as_unavailable(lambda: only(store, HEADER), node.contact_points[0])
    assert fails_as_unavailable(lambda: store.commit(Batch(ROW), (Expectation(HEADER, b"1"),)), "Nothing was changed")
    node.restart(1)
    back = CLOCK.monotonic()
    while fails_as_unavailable(lambda: only(store, HEADER), "") and CLOCK.monotonic() < back + PATIENCE:
        pass  # each of these reads waits for a connection itself, two seconds at most
    assert CLOCK.monotonic() < back + PATIENCE
    assert store.commit(Batch(ROW), (Expectation(HEADER, b"1"),)) == Committed()
    store.close()
