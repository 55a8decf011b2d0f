"""What a running `async def` task works on: its delivery, or with `batch=` the calls that it gets a list of."""

from __future__ import annotations

from typing import TypeVar

from astyqueue.aio.delivery import Delivery
from astyqueue.errors import NotFound
from astyqueue.tasks.base_task import delivery_of_running_task
from astyqueue.tasks.batched_call import CallInBatch

T = TypeVar("T")
#: What an `async def` function gets a list of; calls of its delivery that settle are awaited.
BatchedCall = CallInBatch[T, Delivery]


def current_delivery() -> Delivery:
    """What the running `async def` task runs for: its id, attempt and so on; what settles it is awaited.

    NotFound where no such task runs for a message, and in one that handles batches.
    """
    delivery = delivery_of_running_task()
    if not isinstance(delivery, Delivery):
        message = "this task is not async: astyqueue.current_delivery() has its delivery"
        raise NotFound(message)
    return delivery
