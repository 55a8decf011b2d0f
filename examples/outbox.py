"""An outbox: messages that are sent if, and only if, a transaction of the program's own database was committed.

For queues whose store cannot be part of that transaction; on one SQLite file `queue.transaction()` does it without.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing

from astyqueue import Delivery, MessageQueue

_SCHEMA = """
CREATE TABLE orders (title TEXT NOT NULL);
CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
CREATE TABLE parcels (number INTEGER PRIMARY KEY, title TEXT NOT NULL);
"""


def order(database: sqlite3.Connection, title: str) -> None:
    """Take an order and write down what is to be sent for it: both, or neither."""
    with database:
        database.execute("INSERT INTO orders VALUES (?)", (title,))
        database.execute("INSERT INTO outbox (body) VALUES (?)", (title,))


def relay(database: sqlite3.Connection, queue: MessageQueue, *, dies: bool = False) -> None:
    """Send what is in the outbox, oldest first. One relay runs at a time, in a process of its own."""
    for number, body in database.execute("SELECT number, body FROM outbox ORDER BY number LIMIT 1000").fetchall():
        # While the message waits, sending it again changes nothing; afterwards the consumer knows its number.
        queue.send(body, key=f"outbox {number}", headers={"number": str(number)}, unique="keep")
        if not dies:
            with database:
                database.execute("DELETE FROM outbox WHERE number = ?", (number,))


def pack(database: sqlite3.Connection, delivery: Delivery) -> None:
    """Pack the parcel of an order, once however often its message comes."""
    with database:
        row = int(delivery.headers["number"]), delivery.body
        new = database.execute("INSERT OR IGNORE INTO parcels VALUES (?, ?)", row).rowcount
    print(f"packed {delivery.body}" if new else f"{delivery.body} was packed before")
    delivery.ack()


def main() -> None:
    """Order a book; the relay dies after its first send, and sends again."""
    parcels = MessageQueue.builder().store(os.environ.get("ASTYQUEUE_URL", "memory://")).name("parcels")
    with closing(sqlite3.connect(":memory:")) as database, parcels.build() as queue:
        database.executescript(_SCHEMA)
        order(database, "a novel")
        for dies in (True, False):
            relay(database, queue, dies=dies)
            pack(database, queue.receive(wait="5s")[0])


if __name__ == "__main__":
    main()
