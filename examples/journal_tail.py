"""A journal: one thread appends orders, a reader follows them with a durable cursor, and a replay reads them again."""

from __future__ import annotations

import tempfile
import threading

from astyqueue.journal import Journal

ORDERS = 6


def main() -> None:
    """Follow orders while they arrive, stop half way, and go on from the cursor as after a restart."""
    with tempfile.TemporaryDirectory() as folder:
        with Journal.open(folder, durability="batch") as journal:
            arriving = threading.Thread(target=take_orders, args=(journal,))
            arriving.start()
            follow(journal, count=ORDERS // 2)
            arriving.join()
        with Journal.open(folder) as journal:
            print("opened again")
            follow(journal, count=ORDERS - ORDERS // 2)
            replayed = [record.value["order"] for record in journal.read(since="1h")]
            print(f"orders of the last hour: {replayed}")


def take_orders(journal: Journal[dict[str, int]]) -> None:
    """Append orders; they are on the disk when `sync` returns."""
    for number in range(1, ORDERS + 1):
        journal.append({"order": number})
    journal.sync()


def follow(journal: Journal[dict[str, int]], count: int) -> None:
    """Work on the next orders behind the cursor, each committed once it is done."""
    shipping = journal.cursor("shipping")
    with journal.read(cursor=shipping, follow=True) as records:
        for _, record in zip(range(count), records, strict=False):
            print(f"shipped order {record.value['order']}")
            shipping.commit(record)


if __name__ == "__main__":
    main()
