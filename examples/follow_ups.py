"""Steps of an order: each is sent when the one before is acked, and not when an attempt at it fails."""

from __future__ import annotations

import os
import threading

from astyqueue import Delivery, Dispatcher, Retry, connect


def main() -> None:
    """Take an order, charge for it at the second attempt, and see the parcel and the mail off."""
    done, seen = threading.Barrier(3), list[str]()
    with connect(os.environ.get("ASTYQUEUE_URL", "memory://")) as connection:
        orders, mail = connection.queue("orders"), connection.queue("mail")

        def step(delivery: Delivery) -> None:
            match delivery.body:
                case {"charge": title}:
                    delivery.then({"ship": title})
                    delivery.then(f"thank you for {title}", queue=mail)
                    if delivery.attempt == 1:
                        raise Retry("50ms")  # the bank does not answer: nothing is sent
                    seen.append(f"charged for {title} at attempt {delivery.attempt}")
                case {"ship": title}:
                    seen.append(f"shipped {title}")
                    done.wait(30)

        def post(delivery: Delivery) -> None:
            seen.append(f"mailed: {delivery.body}")
            done.wait(30)

        orders.send({"charge": "a novel"})
        with (
            Dispatcher.builder().queue(orders).handler(step).build(),
            Dispatcher.builder().queue(mail).handler(post).build(),
        ):
            done.wait(30)
        print(*sorted(seen), sep="\n")
        print(f"left: {orders.counts().total + mail.counts().total}")


if __name__ == "__main__":
    main()
