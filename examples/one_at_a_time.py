"""One consumer at a time: a second one stands by, and goes on where the first one left."""

from __future__ import annotations

from astyqueue import MessageQueue, connect


def show(title: str, queue: MessageQueue) -> None:
    """Print how many processes are active, and how many stand by; here both are clients of one process."""
    found = queue.permits()
    print(f"{title}: {len(found.active)} active, {len(found.standby)} on stand-by")


def main() -> None:
    """Receive from two clients of one queue; each could be a process on another machine."""
    with connect("sqlite:///one_at_a_time.db") as store:
        # A dead process is replaced within the lease of its permit and a second, one that leaves within a second.
        first = store.queue("ledger", max_active_processes=1, permit_lease="5s")
        second = store.queue("ledger")
        first.send_many(["entry 1", "entry 2", "entry 3"])

        for delivery in first.receive(limit=2):
            print(f"first: {delivery.body}")
            delivery.ack()
        print(f"second: {len(second.receive(wait='1s'))} deliveries, as if the queue were empty")
        show("while the first is open", second)

        first.close()
        [delivery] = second.receive(wait="5s")
        print(f"second: {delivery.body}")
        delivery.ack()
        show("after the first was closed", second)
        second.close()  # closing the connection alone would let its permit run out


if __name__ == "__main__":
    main()
