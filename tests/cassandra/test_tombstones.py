"""A node that gives up reads of few tombstones: rows in which much was settled are read all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue import ids
from astyqueue.clock import SECOND, SystemClock
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.model.message import encode_plain
from astyqueue.protocol.claim import Claim, claim
from astyqueue.protocol.columns import Type
from astyqueue.protocol.outcomes import ACK
from astyqueue.protocol.picking import Order
from astyqueue.protocol.process import Process
from astyqueue.protocol.send import message_put, send
from astyqueue.protocol.settle import Settlement, settle
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import run
from astyqueue.store import Batch, Slice, Store
from astyqueue.stores import open_store
from astyqueue.stores.administration import administer
from astyqueue.testing import LocalCassandra

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


def one_sent(store: Store, process: Process) -> Id:
    id_ = process.id_at(CLOCK.now())
    put = message_put(0, id_, encode_plain(CLOCK.now(), b"1"), sent=CLOCK.now())
    run(send(process, Batch(ROW, (put,))), store)
    return id_


def taken(store: Store, process: Process, sight: Sight, lease: int) -> Claim:
    [claimed] = run(claim(process, sight, Order(1, lease, 5)), store).claims
    return claimed


def test_one_long_lease_beside_many_that_ended_stops_neither_newcomers_nor_settles(store: Store) -> None:
    """Each of them later than the one before by seconds, as in a row that is claimed from for an hour."""
    holder, worker, newcomer = (Process(name, CLOCK.now) for name in ("holder", "worker", "newcomer"))
    held = one_sent(store, holder)
    long = taken(store, holder, Sight(ROW, 1), HOUR)
    sight = Sight(ROW, 1)
    for number in range(MANY):
        one_sent(store, worker)
        short = taken(store, worker, sight, HOUR + (number + 1) * 3 * SECOND)
        for worked in run(settle(worker, ROW, Settlement(short.timer, {short.held[0].entry.id: ACK})), store).done:
            sight.settled(worked)
    with pytest.raises(SliceTooLong):
        store.read((Slice(ROW, Type.TIMER, 0, after=ids.first_at(long.timer.due)),))
    sent = one_sent(store, newcomer)
    found = taken(store, newcomer, Sight(ROW, 1), HOUR)
    assert [one.entry.id for one in found.held] == [sent]
    settled = run(settle(holder, ROW, Settlement(long.timer, {held: ACK, sent: ACK})), store)
    assert [name.id for worked in settled.done for name in worked.acked] == [held]
