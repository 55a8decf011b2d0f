"""Processes that have a queue open which another process drops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue import MessageQueue, connect
from astyqueue.errors import NotFound
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.store import Store
from astyqueue.tasks import App
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every, Triggers
from tests.support.places import Place

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


@pytest.mark.every_store
def test_a_queue_that_is_made_again_has_the_schedules_of_the_code_that_runs_then(
    place: Place, clock: TimeMachine
) -> None:
    def started(every: str) -> App:
        app = App(place.url, name="shop", clock=clock)
        app.every(every, name="tick")(lambda: None)
        app.reconcile(app.open())
        return app

    with started("1m") as old, started("2m"):
        old.open().drop()
    with started("1m") as again:
        assert [(one.name, Triggers().read(one.trigger)) for one in Schedules(again.open()).all()] == [
            ("tick", Every("1m"))
        ]


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
