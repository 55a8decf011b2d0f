"""What Cassandra does that the tables and the protocol have to reckon with, each shown on a real node.

Should one of these fail with a later Cassandra, then the rule that came of it may be looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from cassandra.cluster import ResultSet, Session
from cassandra.query import SimpleStatement

from astyqueue import ids
from astyqueue.clock import SystemClock
from astyqueue.protocol.layout.columns import STAMP_BACK
from astyqueue.store import Batch, Committed, Expectation, Name, Named, Put, Store
from astyqueue.stores import open_store
from astyqueue.units import SECOND

CLOCK = SystemClock()
ROW = "row"
HEADER = Name(0, 0, ids.LEAST, 0)
MESSAGE = Name(2, 0, ids.first_at(0), 1)
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DEAD = 2_000
TOMBSTONES = re.compile(r"and (?P<dead>\d+) tombstone cells")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = open_store(url, clock=CLOCK)
    yield store
    store.close()


@pytest.fixture
def told(session: Session, keyspace: str) -> Iterator[Session]:
    """A session in a keyspace for tables of these tests."""
    own = session.cluster.connect(keyspace)
    yield own
    own.shutdown()


def ask(told: Session, text: str, *values: object, trace: bool = False) -> ResultSet:
    return told.execute(SimpleStatement(text), values or None, trace=trace, timeout=60)


def walked(result: ResultSet) -> int:
    """How many dead cells the server read for this, by its own account."""
    events = result.get_query_trace(max_wait_sec=30).events
    return max(int(found["dead"]) for event in events if (found := TOMBSTONES.search(event.description)))


def sent_and_deleted_by_a_commit(store: Store, *, stamp: int) -> bool:
    """Whether a message sent with this write time is gone once a commit has deleted it."""
    store.send(Batch(ROW, puts=(Put(MESSAGE, b"sent", stamp),)))
    assert (
        store.commit(Batch(ROW, puts=(Put(HEADER, b"1"),), deletes=(MESSAGE,)), (Expectation(HEADER, None),))
        == Committed()
    )
    return store.read((Named(ROW, (MESSAGE,)),)) == [[]]


@pytest.mark.full
def test_a_condition_on_a_static_column_reads_every_dead_row_and_one_on_a_header_row_does_not(told: Session) -> None:
    ask(told, "CREATE TABLE walked (row int, id int, version int STATIC, value int, PRIMARY KEY (row, id))")
    for id_ in range(1, DEAD + 1):
        told.execute_async(SimpleStatement("INSERT INTO walked (row, id) VALUES (0, %s)"), (id_,)).result()
        told.execute_async(SimpleStatement("DELETE FROM walked WHERE row = 0 AND id = %s"), (id_,)).result()
    static = ask(told, "UPDATE walked SET version = 1 WHERE row = 0 IF version = null", trace=True)
    header = ask(told, "UPDATE walked SET value = 1 WHERE row = 0 AND id = 0 IF value = null", trace=True)
    assert static.one().applied
    assert header.one().applied
    assert walked(static) >= DEAD
    assert walked(header) == 0


def test_a_conditional_batch_replaces_a_stamp_without_a_word(told: Session) -> None:
    ask(told, "CREATE TABLE stamped (row int, id int, value int, PRIMARY KEY (row, id))")
    claimed = CLOCK.now() + HOUR
    ask(
        told,
        "BEGIN BATCH UPDATE stamped USING TIMESTAMP %s SET value = 1 WHERE row = 0 AND id = 1;"
        " UPDATE stamped SET value = 1 WHERE row = 0 AND id = 0 IF value = null; APPLY BATCH",
        claimed,
    )
    found = ask(told, "SELECT WRITETIME(value) AS written FROM stamped WHERE row = 0 AND id = 1").one()
    assert abs(found.written - CLOCK.now()) < 10 * MINUTE < abs(found.written - claimed)


def test_a_message_from_a_clock_ahead_outlives_the_commit_that_deletes_it(store: Store) -> None:
    assert not sent_and_deleted_by_a_commit(store, stamp=CLOCK.now() + 5 * SECOND)


@pytest.mark.parametrize("ahead", [0, 5 * SECOND, 50 * MINUTE])
def test_stamped_an_hour_back_it_does_not(store: Store, ahead: int) -> None:
    assert sent_and_deleted_by_a_commit(store, stamp=CLOCK.now() + ahead - STAMP_BACK)


def test_a_send_that_is_repeated_after_its_message_was_deleted_does_not_bring_it_back(store: Store) -> None:
    stamp = CLOCK.now() - STAMP_BACK
    assert sent_and_deleted_by_a_commit(store, stamp=stamp)
    store.send(Batch(ROW, puts=(Put(MESSAGE, b"sent", stamp),)))
    assert store.read((Named(ROW, (MESSAGE,)),)) == [[]]


def test_a_plain_delete_from_a_clock_ahead_makes_a_lock_that_two_can_take(told: Session) -> None:
    ask(told, "CREATE TABLE locks (row int PRIMARY KEY, owner text)")
    ask(told, "DELETE FROM locks USING TIMESTAMP %s WHERE row = 0", CLOCK.now() + HOUR)
    taken = [
        ask(told, "INSERT INTO locks (row, owner) VALUES (0, %s) IF NOT EXISTS", owner).one().applied
        for owner in ("ada", "bob")
    ]
    assert taken == [True, True]
