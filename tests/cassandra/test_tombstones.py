"""A node that gives up reads of few tombstones: rows in which much was settled are read all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue import ids
from astyqueue.clock import SystemClock
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.model.envelope import encode_plain
from astyqueue.protocol.claiming.claim import Claim, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, run
from astyqueue.store import Batch, Slice, Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from astyqueue.units import SECOND

CLOCK = SystemClock()
ROW = "mail:0:0"
HOUR = 3_600 * SECOND
#: Twice as many as the node puts up with.
MANY = 800


@pytest.fixture
def store(strict_node: LocalCassandra) -> Iterator[Store]:
    url = strict_node.url("tombstones")
    with administer(url, clock=CLOCK) as looked_after:
        looked_after.migrate()
    store = open_store(url, clock=CLOCK)
    yield store
    store.close()


def one_sent(store: Store, process: Client) -> Id:
    id_ = process.id_at(CLOCK.now())
    put = message_put(0, id_, encode_plain(CLOCK.now(), b"1"), sent=CLOCK.now())
    run(send(process, Batch(ROW, (put,))), store)
    return id_


def taken(store: Store, process: Client, snapshot: RowSnapshot, lease: int) -> Claim:
    [claimed] = run(claim(process, snapshot, ClaimRequest(1, lease, 5)), store).claims
    return claimed


@pytest.mark.full
def test_one_long_lease_beside_many_that_ended_stops_neither_new_processes_nor_settles(store: Store) -> None:
    """Each of them later than the one before by seconds, as in a row that is claimed from for an hour."""
    holder, worker, newcomer = (Client(name, CLOCK.now) for name in ("holder", "worker", "newcomer"))
    held = one_sent(store, holder)
    long = taken(store, holder, RowSnapshot(ROW, 1), HOUR)
    snapshot = RowSnapshot(ROW, 1)
    for number in range(MANY):
        one_sent(store, worker)
        short = taken(store, worker, snapshot, HOUR + (number + 1) * 3 * SECOND)
        for settle_plan in run(
            settle(worker, ROW, SettleRequest(short.timer, {short.held[0].entry.id: ACK})), store
        ).done:
            snapshot.settled(settle_plan.timer_change)
    with pytest.raises(SliceTooLong):
        store.read((Slice(ROW, Type.TIMER, 0, after=ids.first_at(long.timer.due)),))
    sent = one_sent(store, newcomer)
    found = taken(store, newcomer, RowSnapshot(ROW, 1), HOUR)
    assert [one.entry.id for one in found.held] == [sent]
    settled = run(settle(holder, ROW, SettleRequest(long.timer, {held: ACK, sent: ACK})), store)
    assert [name.id for settle_plan in settled.done for name in settle_plan.acked] == [held]
