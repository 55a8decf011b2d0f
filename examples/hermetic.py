"""One program for three queue services: a test gets one in memory, this machine a file, production Amazon SQS."""

from __future__ import annotations

import tempfile

from astyqueue.queue_service import FileQueueService, MemoryQueueService, QueueService
from astyqueue.testing import TimeMachine


class Shop:
    """Code that knows queues, and not which flavour they are."""

    def __init__(self, queues: QueueService) -> None:
        """`queues` is injected by what starts the program."""
        self._queues = queues
        queues.create("orders", visibility="1m")

    def order(self, title: str) -> None:
        """Take an order."""
        self._queues.push("orders", title)

    def ship(self, *, fails: bool = False) -> str:
        """Ship the next order; one that failed is shipped a minute later."""
        message = self._queues.pull("orders")
        if message is None:
            return "nothing to ship"
        if fails:
            return f"failed to ship {message.body}"
        self._queues.delete("orders", message.receipt)
        return f"shipped {message.body} at attempt {message.receive_count}"


def try_out(queues: QueueService, clock: TimeMachine) -> None:
    """Ship an order that fails once; no real time passes."""
    shop = Shop(queues)
    shop.order("a book")
    print(shop.ship(fails=True))
    print(shop.ship())
    clock.advance("1m")
    print(shop.ship())


def main() -> None:
    """Run the same code on two flavours. The third is `SQSQueueService()`."""
    clock = TimeMachine()
    with MemoryQueueService(clock=clock) as queues:
        try_out(queues, clock)
    with tempfile.TemporaryDirectory() as directory, FileQueueService(directory, clock=clock) as queues:
        try_out(queues, clock)


if __name__ == "__main__":
    main()
