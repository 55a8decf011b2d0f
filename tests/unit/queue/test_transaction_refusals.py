"""What a transaction refuses leaves nothing behind, and the rest can be committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue import MessageQueue, connect
from astyqueue.errors import BadInput, NotFound
from astyqueue.testing import TimeMachine


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


def test_a_queue_of_another_connection_is_refused_although_it_is_in_the_same_file(url: str) -> None:
    with connect(url) as connection, MessageQueue.builder().store(url).name("bills").build() as bills:
        orders = connection.queue("orders")
        with orders.transaction() as tx:
            tx.send("apples")
            with pytest.raises(BadInput, match="queue 'bills' was opened on its own"):
                tx.of(bills)
        assert (orders.counts().total, bills.counts().total) == (1, 0)


def test_an_ack_whose_follow_up_goes_to_a_dropped_queue_is_refused_and_may_be_left_out(
    url: str, clock: TimeMachine
) -> None:
    with connect(url, clock=clock) as connection:
        orders, mail = connection.queue("orders"), connection.queue("mail")
        orders.send_many(["apples", "pears"])
        apples, pears = orders.receive(2)
        with MessageQueue.builder().store(url).name("mail").clock(clock).build() as operator:
            operator.drop()
        clock.advance("10s")
        apples.then("a bill", queue=mail)
        apples.then("a note")
        with orders.transaction() as tx:
            tx.send("cherries")
            with pytest.raises(NotFound, match="'mail' was dropped"):
                tx.ack(apples, pears)
            tx.ack(pears)
        assert (apples.settled, pears.settled, orders.stats.acked) == (None, "acked", 1)
        assert sorted(str(found.body) for found in orders.peek(10, "all")) == ["apples", "cherries"]
        apples.fail("no mail")
        assert orders.counts().backing_off == 1
