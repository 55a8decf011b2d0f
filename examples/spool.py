"""A spool: a web service sends, and is even restarted, while the store of its queue is away; nothing is lost."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from astyqueue import MessageQueue


def main() -> None:
    """Send orders with the store there, away, and back."""
    logging.getLogger("astyqueue.spool").setLevel(logging.ERROR)  # it logs each outage; this program shows one
    with tempfile.TemporaryDirectory() as folder:
        disk, away = Path(folder, "store"), Path(folder, "away")
        disk.mkdir()
        with orders(folder) as queue:
            print("sent", queue.send("order 1").id.queue)
            print("forwarded:", queue.spool.drain("30s"))
        disk.rename(away)
        with orders(folder) as queue:
            queue.send_many(f"order {number}" for number in range(2, 5))
            print("waiting on the disk:", queue.spool.status().messages)
        away.rename(disk)
        with orders(folder) as queue:
            print("forwarded:", queue.spool.drain("30s"))
            print("in the queue:", [delivery.body for delivery in queue.receive(10)])


def orders(folder: str) -> MessageQueue:
    """The queue, as a web service builds it when it starts: without a connection, once the spool knows the queue."""
    store = f"sqlite:///{folder}/store/orders.db"
    return MessageQueue.builder().store(store).name("orders").spool(f"{folder}/spool").build()


if __name__ == "__main__":
    main()
