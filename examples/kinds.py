"""Four kinds of handlers for one queue: in threads, on an event loop, in child processes, and for batches."""

from __future__ import annotations

import hashlib

from astyqueue import Delivery, Dispatcher, MessageQueue, aio

ORDERS = 20
table: list[object] = []
mailed: list[object] = []
called: list[object] = []


def mail(delivery: Delivery) -> None:
    """A plain function runs in a thread, which a mail server may keep waiting."""
    mailed.append(delivery.body)


async def call_back(delivery: aio.Delivery) -> None:
    """An `async def` function runs on the event loop, among up to a thousand; it is cancelled at its timeout."""
    await delivery.extend("1m")  # calls of its delivery are awaited
    called.append(delivery.body)


def sign(delivery: Delivery) -> None:
    """Computes in a child process, killed at its timeout: at the top level of a module, as the child imports it."""
    hashlib.pbkdf2_hmac("sha256", str(delivery.body).encode(), b"salt", 10_000)
    delivery.extend("1m")  # the parent carries this out


def insert(deliveries: list[Delivery]) -> None:
    """Gets the orders that come within 50 ms, up to ten: cheaper than one by one. Returning acks all of them."""
    table.extend(delivery.body for delivery in deliveries)


def main() -> None:
    """Send each order to each handler, and work until all are done."""
    queue = MessageQueue.builder().store("memory://").name("orders").lease("1m").build()
    for task in ("mail", "call_back", "sign", "insert"):
        queue.send_many(range(ORDERS), headers={"task": task})

    builder = Dispatcher.builder().threads(4).coroutines(100).processes(1).queue(queue)
    builder.handler(mail, task="mail")
    builder.handler(call_back, task="call_back", timeout="10s")
    builder.handler(sign, task="sign", kind="process", timeout="10s")
    builder.handler(insert, task="insert", batch=(10, "50ms"))
    with queue:
        builder.max_messages(4 * ORDERS).build().run()  # without max_messages it would wait for more
        print(f"mailed {len(mailed)}, called back {len(called)}, inserted {len(table)}, left {queue.counts().total}")


# The child processes import this file, and must not start a dispatcher of their own.
if __name__ == "__main__":
    main()
