"""Messages that one node alone stored before it stood still, and which it brings to the others hours later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import WhiteListRoundRobinPolicy
from cassandra.query import SimpleStatement

from astyqueue import ids
from astyqueue.clock import instant
from astyqueue.findings import Severity
from astyqueue.model.envelope import encode_plain
from astyqueue.model.health import findings_of
from astyqueue.model.settings import Layout, Settings
from astyqueue.protocol.admin.health import read_health
from astyqueue.protocol.sending.insert import message_put
from astyqueue.protocol.steps import run
from astyqueue.queue.admin.inspection import rescan
from astyqueue.store import Name, Named, Store
from astyqueue.testing import LocalCassandra, TimeMachine
from astyqueue.units import SECOND
from tests.cassandra.test_store_ring import CLOCK, NOTICED, counted_up, jobs, opened, told
from tests.support.places import BEHIND
from tests.unit.queue.stepped_workers import Crew, Worker

__all__ = ["jobs"]

MINUTE = 60 * SECOND
RING = Layout(time_shards=30, concurrency_shards=1)


@contextmanager
def knowing_one_node(ring: LocalCassandra, node: int) -> Iterator[Session]:
    """A client that reaches no other node, and is content with what that one stores."""
    address = ring.contact_points[node - 1]
    policy = WhiteListRoundRobinPolicy([address])
    profile = ExecutionProfile(load_balancing_policy=policy, consistency_level=ConsistencyLevel.ONE, request_timeout=30)
    cluster = Cluster([address], port=ring.contacts.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        yield cluster.connect()
    finally:
        cluster.shutdown()


def pass_time(crew: Crew, worker: Worker, minutes: int) -> None:
    """Let time pass; every five minutes a message comes, so that what was sent before lies behind what was read."""
    for _ in range(0, minutes, 5):
        crew.pass_time(5 * MINUTE, step=MINUTE)
        worker.send(1)


def stranded(ring: LocalCassandra, store: Store, clock: TimeMachine, row: str) -> tuple[Name, Name]:
    """Two messages that one node stored while the others were dead: when they are back, it stands still."""
    moments = clock.now(), clock.now() + 1
    puts = [message_put(0, ids.at(moment), encode_plain(moment, b'"late"'), sent=moment) for moment in moments]
    columns = '("row", "type", "priority", "id", "state", "value") VALUES (%s, %s, %s, %s, %s, %s)'
    text = 'INSERT INTO "jobs"."entries" ' + columns + " USING TIMESTAMP %s"
    with knowing_one_node(ring, 1) as alone:
        ring.kill(2)  # a node that stands still keeps what was sent to it, and stores it once it goes on
        ring.kill(3)
        for name, value, stamp, _ in puts:
            alone.execute(text, (row, name.type, name.priority, ids.as_uuid(name.id), name.state, value, stamp))
        ring.stop(1)
    ring.restart(2, 3)
    counted_up(store, 1, until=CLOCK.monotonic() + NOTICED)
    return puts[0].name, puts[1].name


def arrives(ring: LocalCassandra, row: str, *names: Name) -> None:
    """Return once the messages are on every node.

    A read of all three nodes brings the messages to those that lack them, unless a hint did so first.
    """
    text = 'SELECT "id" FROM "jobs"."entries" WHERE "row" = %s AND "type" = %s AND "priority" = %s AND "id" = %s'
    asked = SimpleStatement(text, consistency_level=ConsistencyLevel.ALL)
    with told(ring, 2) as session:
        for name in names:
            assert list(session.execute(asked, (row, name.type, name.priority, ids.as_uuid(name.id)), timeout=60))


@pytest.mark.full
@pytest.mark.timeout(900)
def test_what_a_node_brings_hours_late_into_a_closed_row_is_delivered(ring: LocalCassandra, jobs: str) -> None:
    """One of the two by a rescan that goes no further back, the other by the workers, within half a day."""
    clock = TimeMachine()
    # Long enough before the end of a turn for all looks.
    clock.set((CLOCK.now() - BEHIND) // RING.time_shard_us * RING.time_shard_us)
    with opened(jobs) as store:
        crew = Crew(store, clock, RING)
        worker = crew.join(hands=100)
        pass_time(crew, worker, 15)
        row = worker.core.ring.row(clock.now(), 0)
        first, second = stranded(ring, store, clock, row)
        pass_time(crew, worker, 150)
        assert store.read((Named(row, (first, second)),)) == [[]]
        ring.cont(1)
        ring.settle()
        counted_up(store, 1, until=CLOCK.monotonic() + NOTICED)
        arrives(ring, row, first, second)
        pass_time(crew, worker, 15)
        assert not got(worker) & {first.id, second.id}
        findings = {
            found.subject: found
            for found in findings_of(run(read_health(worker.core.process, Settings(name="mail", layout=RING)), store))
        }
        late = findings["late messages of queue mail"]
        assert late.severity is Severity.WARNING
        assert late.fact.startswith("2 messages ")
        since = instant(ids.moment(second.id))
        assert run(rescan(worker.core, since), store).listed == 1
        pass_time(crew, worker, 10)
        assert got(worker) & {first.id, second.id} == {second.id}
        pass_time(crew, worker, 12 * 60 + 30)
        assert first.id in got(worker)


def got(worker: Worker) -> set[ids.Id]:
    """The messages that it was handed."""
    return {delivery.id for _, delivery in worker.got}
