"""Functions as tasks: sends calls of them to a queue, and runs them in workers."""

from __future__ import annotations

from astyqueue.tasks.app import App
from astyqueue.tasks.base_task import current_delivery
from astyqueue.tasks.batched_call import BatchedCall
from astyqueue.tasks.signature import Call
from astyqueue.tasks.task import Sending, Task

__all__ = ["App", "BatchedCall", "Call", "Sending", "Task", "current_delivery"]
