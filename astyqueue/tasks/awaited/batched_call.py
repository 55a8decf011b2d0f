"""A call of an `async def` task that handles batches."""

from __future__ import annotations

from typing import TypeVar

from astyqueue.aio.delivery import Delivery
from astyqueue.tasks.batched_call import CallInBatch

T = TypeVar("T")
#: What an `async def` function gets a list of; calls of its delivery that settle are awaited.
BatchedCall = CallInBatch[T, Delivery]
