"""Functions as tasks: sending a call of one into a queue, and running what was sent."""

from __future__ import annotations

from astyqueue.tasks.app import App
from astyqueue.tasks.calls import Call
from astyqueue.tasks.current import current_delivery
from astyqueue.tasks.task import Sending, Task

__all__ = ["App", "Call", "Sending", "Task", "current_delivery"]
