"""What the pipeline reads of a history of which one node has missed a part, on three real nodes."""

from __future__ import annotations

import pytest

from astyqueue import connect
from astyqueue.clock import SystemClock
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record_events
from astyqueue.spark.batch_reader import QueueReader
from astyqueue.spark.options import Reading
from astyqueue.spark.pipeline.batch import stretch_options
from astyqueue.spark.schemas import HISTORY, schema_of
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND

CLOCK = SystemClock()
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
    assert [read(history, now) for _ in range(READS)] == [EVENTS] * READS
    ring.restart(3)
    ring.kill(2)
    assert [read(history, now) for _ in range(READS)] == [EVENTS] * READS


def read(url: str, now: int) -> int:
    """How many events the pipeline's reader finds, asked as Spark asks it."""
    options = stretch_options(url, "calls", since=now - SECOND, until=now + SECOND)
    reader = QueueReader(Reading.of(options), schema_of(HISTORY))
    found = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return sum(kind == "done" for batch in found for kind in batch.column("kind").to_pylist())
