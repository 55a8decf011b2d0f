"""Functions as tasks: sending a call of one into a queue, and running what was sent."""

from astyqueue.tasks.app import App
from astyqueue.tasks.current import current_delivery

__all__ = ["App", "current_delivery"]
