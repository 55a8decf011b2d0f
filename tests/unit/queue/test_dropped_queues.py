"""Processes that have a queue open which another process drops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue import MessageQueue, connect
from astyqueue.errors import NotFound
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing import TimeMachine

SENDS: list[Callable[[MessageQueue], object]] = [
    lambda queue: queue.send("one"),
    lambda queue: queue.send_many(["several"]),
    lambda queue: queue.send("unique", key="k", unique="reject"),
]


@pytest.fixture
def mail(store: Store, clock: TimeMachine) -> QueueBuilder[MessageQueue]:
    return MessageQueue.builder().store(store).name("mail").clock(clock)


@pytest.mark.parametrize("send", SENDS, ids=["one", "many", "unique"])
def test_ten_seconds_after_a_drop_a_send_is_refused_until_the_queue_is_made_again(
    mail: QueueBuilder[MessageQueue], clock: TimeMachine, send: Callable[[MessageQueue], object]
) -> None:
    with mail.build() as producer, mail.build() as operator:
        send(producer)
        operator.drop()
        clock.advance("10s")
        for _ in range(3):
            with pytest.raises(NotFound, match="'mail' was dropped: create it again"):
                send(producer)
        with mail.build() as consumer:
            assert consumer.counts().total == 0
            send(producer)
            assert len(consumer.receive(10)) == 1


def test_an_ack_whose_follow_up_goes_to_a_dropped_queue_is_refused(
    clock: TimeMachine,
) -> None:
    with connect("memory://", clock=clock) as connection:
        orders, mail = connection.queue("orders"), connection.queue("mail")
        orders.send("order")
        [delivery] = orders.receive()
        with MessageQueue.builder().store(connection.store).name("mail").clock(clock).build() as operator:
            operator.drop()
        clock.advance("10s")
        delivery.then("bill", queue=mail)
        with pytest.raises(NotFound, match="'mail' was dropped"):
            delivery.ack()
        assert orders.counts().in_flight == 1
