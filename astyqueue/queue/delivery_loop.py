"""The endless loop over deliveries, for threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import NamedTuple

from astyqueue.errors import Closed
from astyqueue.queue.consuming.renewal import RenewalThread
from astyqueue.queue.delivery.delivery import Delivery, Received


class Later(NamedTuple):
    """Acks that no thread waits for: `ack` buffers one, `flush` commits all that are buffered."""

    ack: Callable[[Delivery], None]
    flush: Callable[[], None]


def delivery_loop(
    receive: Callable[[], Received], keeper: RenewalThread, later: Later | None
) -> Generator[Delivery, None, None]:
    """Deliveries one after the other, each acked before the next unless it was settled, until the queue is closed.

    `receive` waits for the next ones; `keeper` renews leases meanwhile. Without `later`, each ack is committed before
    the next delivery is returned.
    """
    with keeper, contextlib.suppress(Closed):
        try:
            while True:
                yield from _in_turn(receive(), later)
        finally:
            if later:  # this may be the last thread in the queue: no other would commit the buffered acks
                later.flush()


def _in_turn(received: Received, later: Later | None) -> Generator[Delivery, None, None]:
    with received:
        for delivery in received:
            yield delivery
            if later is None:
                received.ack_if_unsettled(delivery)
            elif not delivery.settled:
                later.ack(delivery)
