"""The delivery of the running task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from astyqueue.errors import NotFound
from astyqueue.queue.delivery.delivery import Delivery

_running: Final[ContextVar[Delivery]] = ContextVar("astyqueue.delivery")


def current_delivery() -> Delivery:
    """The delivery of the running task: its id, attempt, headers, `extend()` and so on.

    Works in `def` and `async def` tasks and in functions they call, in the same thread. NotFound where no task runs for
    a message, as in a task that was called directly.
    """
    try:
        return _running.get()
    except LookupError as error:
        message = "no task runs for a message here: the task was called directly, or this is not the task's own thread"
        raise NotFound(message) from error


@contextmanager
def running(delivery: Delivery) -> Iterator[None]:
    """Make this the current delivery inside the block."""
    token = _running.set(delivery)
    try:
        yield
    finally:
        _running.reset(token)
