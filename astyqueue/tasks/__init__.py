"""Functions as tasks: sends calls of them to a queue, and runs them in workers."""

from __future__ import annotations

from astyqueue.tasks.app import App
from astyqueue.tasks.signature import Call
from astyqueue.tasks.task import Sending, Task, current_delivery

__all__ = ["App", "Call", "Sending", "Task", "current_delivery"]
