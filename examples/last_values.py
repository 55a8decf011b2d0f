"""Kinds of queue: the last value of each key, a bound whose excess goes elsewhere, and an order by a header."""

from __future__ import annotations

from astyqueue import Connection, MessageQueue, connect


def received(queue: MessageQueue) -> list[object]:
    """The bodies of all messages, which are acked. Each receive takes from one row of a queue."""
    bodies: list[object] = []
    while deliveries := queue.receive(10):
        bodies += [delivery.body for delivery in deliveries]
        deliveries.ack()
    return bodies


def last_values(store: Connection) -> None:
    """Of each key the last message stays; one that a consumer has does not come back once there is a newer one."""
    prices = store.queue("prices", last_value=True)
    for price in (101, 102, 103):
        prices.send(price, key="ACME")
    [held] = prices.receive()
    prices.send(104, key="ACME")
    held.release()  # 103 is not delivered again
    print("prices:", received(prices))


def overflow(store: Connection) -> None:
    """What is too much for one queue goes to another."""
    later = store.queue("later")
    jobs = store.queue("jobs", max_messages=2, overflow="forward", overflow_to="later")
    for number in range(4):
        print(f"job {number} is in", jobs.send(number).id.queue)
    print("jobs:", sorted(map(str, received(jobs))), "later:", sorted(map(str, received(later))))


def sorted_by_header(store: Connection) -> None:
    """Classes of a header's values are delivered in their order."""
    sorting = {"priorities": 3, "sort_header": "plan", "sort_classes": "enterprise,team,free"}
    orders = store.queue("orders", placement="single", **sorting)  # in one row, so that the order is exact
    for plan in ("free", "enterprise", "team"):
        orders.send(plan, headers={"plan": plan})
    print("orders:", received(orders))


def main() -> None:
    """Use three queues of one file."""
    with connect("sqlite:///kinds_of_queue.db") as store:
        last_values(store)
        overflow(store)
        sorted_by_header(store)


if __name__ == "__main__":
    main()
