"""The delivery of the running `async def` task."""

from __future__ import annotations

from astyqueue.aio.delivery import Delivery
from astyqueue.errors import NotFound
from astyqueue.queue.delivery.base_delivery import running_delivery


def current_delivery() -> Delivery:
    """What the running `async def` task runs for: its id, attempt and so on; what settles it is awaited.

    NotFound where no such task runs for a message.
    """
    delivery = running_delivery()
    if not isinstance(delivery, Delivery):
        message = "this task is not async: astyqueue.current_delivery() has its delivery"
        raise NotFound(message)
    return delivery
