"""Orders that are followed by messages in two queues."""

from __future__ import annotations

from astyqueue import Connection, MessageQueue
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from tests.support.places import ONE_ROW

SEVERAL_ROWS = {"time_shards": 1, "concurrency_shards": 4}


class Shop:
    """Orders, each followed by a bill in the same queue and by a mail in another."""

    def __init__(self, store: Store, clock: TimeMachine, layout: dict[str, int] = ONE_ROW) -> None:
        self.connection = Connection(store, clock)
        self.orders = self.connection.queue("orders", lease="30s", **layout)
        self.mail = self.connection.queue("mail", lease="30s", **ONE_ROW)

    def begin(self) -> Delivery:
        """An order in hand, with its follow-ups."""
        [delivery] = self.orders.receive()
        return self.followed(delivery)

    def followed(self, delivery: Delivery) -> Delivery:
        delivery.then("a bill", key="bill")
        delivery.then("a mail", queue=self.mail)
        return delivery

    def state(self) -> tuple[list[object], list[object]]:
        return bodies(self.orders), bodies(self.mail)


State = tuple[list[object], list[object]]
BEFORE: State = (["an order"], [])
AFTER: State = (["a bill"], ["a mail"])


def bodies(queue: MessageQueue) -> list[object]:
    return [found.body for found in queue.peek(100, "all")]
