"""Many queues, one pool of threads: weights, a limit, and a pattern for the queues of tenants."""

from __future__ import annotations

from collections import Counter

from astyqueue import Delivery, Dispatcher, connect

TENANTS = ("ada", "grace", "edsger", "barbara")
handled: Counter[str] = Counter()


def charge(delivery: Delivery) -> None:
    """Returning acks the message."""
    print(f"charged {delivery.body}")


def count(delivery: Delivery) -> None:
    """Pretend to send a mail, or to make a report."""
    handled[str(delivery.body)] += 1


def main() -> None:
    """Fill queues, and serve all of them with four threads until nothing is left."""
    with connect("sqlite:///many_queues.db") as store:
        high, low = store.queue("high"), store.queue("low")
        low.send_many(["report"] * 40)
        high.send("order 1")
        for tenant in TENANTS:
            store.queue(f"mail.{tenant}", lease="2m").send_many([f"mail of {tenant}"] * 10)

        builder = Dispatcher.builder().threads(4)
        # While several queues have messages, this one gets three turns for each of the others.
        builder.queue(high, weight=3).handler(charge)
        # At most two reports at a time: however many wait, two threads stay free for the rest.
        builder.queue(low, threads=2).handler(count)
        # All queues that match. Those that are created later join within five seconds, dropped ones leave.
        builder.queues("mail.*", store).handler(count)

        dispatcher = builder.max_messages(81).build()  # without max_messages it would wait for more
        dispatcher.run()
        for what, number in sorted(handled.items()):
            print(f"{number} x {what}")
        print(f"{len(dispatcher.queues)} queues by 4 threads")


if __name__ == "__main__":
    main()
