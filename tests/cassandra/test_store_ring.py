"""What the store and Cassandra do when nodes of a ring are frozen, killed or have been away, on three real nodes.

The last ones are why the tables and the protocol are as they are: each shows what goes wrong otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from astyqueue import ids
from astyqueue.clock import SystemClock
from astyqueue.errors import OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record_events
from astyqueue.queue.connection import connect
from astyqueue.spark.batch_reader import QueueReader
from astyqueue.spark.options import BatchReadOptions
from astyqueue.spark.pipeline.batch import stretch_options
from astyqueue.spark.schemas import HISTORY, schema_of
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put, Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.async_adapter import as_async
from astyqueue.stores.cassandra import Address, CassandraStore
from astyqueue.stores.cassandra.connection import cluster
from astyqueue.testing import LocalCassandra
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from tests.stores.conformance.test_stores import CalledFromThreads

CLOCK = SystemClock()
ROW = "row"
HEADER = Name(0, 0, ids.LEAST, 0)
ROUNDS = 60
#: A heartbeat every three seconds, three more without an answer, and what was under way.
NOTICED = 10 * SECOND
#: Seconds, or somewhat more, within which a node knows that another one was killed.
DETECTED = 60
#: Requests beyond one in ten that may go to a further node.
SAVED_UP = 20


@pytest.fixture
def jobs(ring: LocalCassandra) -> str:
    """The URL of a keyspace with three copies of everything."""
    with administer(ring.url("jobs"), clock=CLOCK, replication="3") as administration:
        administration.migrate()
    return ring.url("jobs")


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url, clock=CLOCK)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def told(ring: LocalCassandra, node: int) -> Iterator[Session]:
    """A session to which one node is known to answer."""
    session = cluster.connect(Address((ring.contact_points[node - 1],), "system", ring.contacts.port), CLOCK)
    try:
        yield session
    finally:
        session.cluster.shutdown()


def counted_up(store: Store, rounds: int, *, until: MonotonicUs = BEGINNING) -> list[StoreError]:
    """Raise the number in a row's header `rounds` times, or until a moment; returns the errors on the way.

    The header is read before each commit, for the outcome of the one before may be unknown.
    """
    errors: list[StoreError] = []
    done = 0
    while done < rounds or CLOCK.monotonic() < until:
        try:
            known = value(store)
            outcome = store.commit(
                Batch(ROW, puts=(Put(HEADER, str(int(known or 0) + 1).encode()),)), (Expectation(HEADER, known),)
            )
            done += outcome == Committed()
        except StoreError as error:
            errors.append(error)
    return errors


def value(store: Store) -> bytes | None:
    ((*columns,),) = store.read((Named(ROW, (HEADER,)),), exact=True)
    return columns[0].value if columns else None


@pytest.mark.full
@pytest.mark.parametrize("awaited", [False, True], ids=["threads", "tasks"])
@pytest.mark.parametrize("fault", ["stop", "kill"])
def test_a_store_goes_on_without_one_node_and_soon_without_errors(
    ring: LocalCassandra, jobs: str, fault: str, *, awaited: bool
) -> None:
    with opened(jobs) as blocking:
        store = CalledFromThreads(as_async(blocking)) if awaited else blocking
        assert counted_up(store, ROUNDS) == []
        getattr(ring, fault)(2)
        counted_up(store, 0, until=CLOCK.monotonic() + NOTICED)
        assert counted_up(store, ROUNDS) == []
        if fault == "stop":
            ring.cont(2)
        before = int(value(store) or 0)
        assert counted_up(store, ROUNDS) == []
        assert int(value(store) or 0) == before + ROUNDS
        assert isinstance(blocking, CassandraStore)
        asked, asked_again = blocking.counters
        assert asked_again <= asked // 10 + SAVED_UP
        store.close()


@pytest.mark.full
def test_levels_of_the_url_count(ring: LocalCassandra, jobs: str) -> None:
    put = Batch(ROW, puts=(Put(Name(1, 0, ids.LEAST, 0), b""),))
    careful_jobs = f"{ring.url('careful')}?consistency=all&serial=serial&dc=datacenter1"
    with administer(careful_jobs, clock=CLOCK, replication="3") as administration:
        administration.migrate()
    with opened(jobs) as store, opened(careful_jobs) as careful:
        careful.send(put)
        assert counted_up(careful, 1) == []
        ring.kill(3)
        store.send(put)
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            careful.send(put)
        ring.kill(2)
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            store.send(put)


@pytest.mark.full
@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("grace", "back"), [(0, 10), (86_400, 0)])
def test_what_was_deleted_while_a_node_was_away_is_back_unless_its_tombstones_are_still_there(
    ring: LocalCassandra, grace: int, back: int
) -> None:
    with told(ring, 1) as session:

        def ask(text: str, *values: int, level: int = ConsistencyLevel.ALL) -> list[object]:
            return list(session.execute(SimpleStatement(text, consistency_level=level), values or None, timeout=60))

        ask("CREATE TABLE IF NOT EXISTS jobs.deleted (row int, id int, PRIMARY KEY (row, id))")
        ask(f"ALTER TABLE jobs.deleted WITH gc_grace_seconds = {grace}")
        for number in range(10):
            ask("INSERT INTO jobs.deleted (row, id) VALUES (%s, %s)", grace, number)
        ring.kill(3)
        for number in range(10):
            ask("DELETE FROM jobs.deleted WHERE row = %s AND id = %s", grace, number, level=ConsistencyLevel.QUORUM)
        for node in (1, 2):
            ring.nodetool(node, "flush", "jobs", "deleted")
            ring.nodetool(node, "compact", "jobs", "deleted")
        ring.nodetool(1, "truncatehints")
        ring.nodetool(2, "truncatehints")
        ring.restart(3)
        assert len(ask("SELECT id FROM jobs.deleted WHERE row = %s", grace)) == back


EVENTS = 50
#: Of three copies any one would answer: this many reads in a row would not all find a complete one.
READS = 30


@pytest.fixture
def history(ring: LocalCassandra) -> str:
    """The URL of a keyspace with three copies of everything."""
    with administer(ring.url("history"), clock=CLOCK, replication="3") as administration:
        administration.migrate()
    return ring.url("history")


@pytest.mark.full
def test_the_pipeline_reads_what_a_node_missed_while_it_was_away(ring: LocalCassandra, history: str) -> None:
    now = CLOCK.now()
    with connect(history) as connection:
        queue = connection.queue("calls", time_shards=1, concurrency_shards=1, history="all")
        id_ = queue.send("hello").id
        ring.kill(3)
        events = [Event(now, Kind.DONE, "calls", id_, attempt=number) for number in range(EVENTS)]
        queue.run(record_events(queue.core.ring, events, 10**13))
    for node in (1, 2):  # which would deliver to the third what it missed
        ring.nodetool(node, "truncatehints")
        assert sees_down(ring, node, 3)
    assert [read(history, now) for _ in range(READS)] == [EVENTS] * READS
    ring.restart(3)
    ring.kill(2)
    assert sees_down(ring, 1, 2)
    assert sees_down(ring, 3, 2)
    assert [read(history, now) for _ in range(READS)] == [EVENTS] * READS


def sees_down(ring: LocalCassandra, node: int, away: int) -> bool:
    """Ask a node, once a second, until it knows that another is down, and has requests through it wait for others."""
    return any(f"DN  {ring.contact_points[away - 1]}" in ring.nodetool(node, "status") for _ in range(DETECTED))


def read(url: str, now: int) -> int:
    """How many events the pipeline's reader finds, asked as Spark asks it."""
    options = stretch_options(url, "calls", since=now - SECOND, until=now + SECOND)
    reader = QueueReader(BatchReadOptions.of(options), schema_of(HISTORY))
    found = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return sum(kind == "done" for batch in found for kind in batch.column("kind").to_pylist())
