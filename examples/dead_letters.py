"""What a handler decides: try again, later, never. Then the program looks at what died, and redrives it."""

from __future__ import annotations

from astyqueue import Delivery, Dispatcher, MessageQueue, Reject, Retry, Snooze, connect

stock: dict[str, int] = {}
snoozed: set[str] = set()


def ship(delivery: Delivery) -> None:
    """Pretend to ship an order."""
    match delivery.body:
        case {"article": "novel"} if delivery.attempt == 1:
            raise Retry("0.1s", reason="the printer is busy")
        case {"article": "seeds"} if "seeds" not in snoozed:
            snoozed.add("seeds")
            raise Snooze("0.1s")  # it costs no attempt
        case {"article": str(article)} if article in ("novel", "seeds") or stock.get(article):
            print(f"shipped {article} at attempt {delivery.attempt}")
        case {"article": article}:
            raise Reject(f"no {article} in stock")  # trying again would not help


def main() -> None:
    """Ship what can be shipped, look at what died, fill the stock, and redrive."""
    with connect("sqlite:///dead_letters.db") as store:
        orders = store.queue("orders", lease="1m", max_attempts=3)
        orders.send({"article": "novel"})
        serve(orders, deliveries=2)
        orders.send({"article": "seeds"})
        serve(orders, deliveries=2)
        orders.send({"article": "lamp"}, key="order:7")
        serve(orders, deliveries=1)

        for letter in orders.dead_letters(kind="rejected"):
            print(f"{letter.key} died at attempt {letter.attempts}: {letter.reason}")
        stock["lamp"] = 1
        print(f"redriven: {orders.redrive(reason='in stock').redriven}")
        serve(orders, deliveries=1)
        print(f"left: {orders.counts().total}")


def serve(orders: MessageQueue, deliveries: int) -> None:
    """Handle this number of deliveries; without `max_messages` it would wait for more."""
    Dispatcher.builder().threads(1).queue(orders).handler(ship).max_messages(deliveries).build().run()


if __name__ == "__main__":
    main()
