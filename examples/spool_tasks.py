"""An app with a spool: a service sends tasks while the store is away, and a worker runs them once it is back."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from astyqueue import App


def ship(order: int) -> None:
    """Pretend to ship an order."""
    print("shipped order", order)


def bill(order: int) -> None:
    """Pretend to write a bill."""
    print("billed order", order)


class Shop:
    """What each process of the service and of its workers has; usually a module, and ASTYQUEUE_SPOOL has the folder."""

    def __init__(self, folder: str) -> None:
        """One folder has the spools of all queues; nothing is opened yet."""
        self.app = App(f"sqlite:///{folder}/store/shop.db", spool=f"{folder}/spool")
        self.ship = self.app.task(name="ship", queue="parcels")(ship)
        self.bill = self.app.task(name="bill", queue="bills")(bill)


def main() -> None:
    """Sell with the store there, and away; then run what was sent."""
    logging.getLogger("astyqueue.spool").setLevel(logging.ERROR)  # it logs each outage; this program shows one
    with tempfile.TemporaryDirectory() as folder:
        disk, away = Path(folder, "store"), Path(folder, "away")
        disk.mkdir()
        shop = Shop(folder)
        with shop.app:
            shop.ship.send(1)
            shop.bill.send(1)
        disk.rename(away)
        shop = Shop(folder)
        with shop.app:
            shop.ship.send(2)
            shop.bill.send(2)
            waiting = [shop.app.open(queue).spool.status().messages for queue in shop.app.queues]
            print("waiting on the disk:", waiting)
        away.rename(disk)
        shop = Shop(folder)
        with shop.app:
            for queue in shop.app.queues:
                shop.app.worker([queue], concurrency=1, max_messages=2).run()


if __name__ == "__main__":
    main()
