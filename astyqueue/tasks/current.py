"""The delivery that a task is being run for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from astyqueue.errors import NotFound
from astyqueue.queue.delivery import Delivery

_running: Final[ContextVar[Delivery]] = ContextVar("astyqueue.delivery")


def current_delivery() -> Delivery:
    """The delivery that the running task was called for: its id, attempt, headers, `extend()` and so on.

    Works in `def` and `async def` tasks and in what they call, in the same thread. Where no task runs for a message, as
    in a task that was called directly, it raises NotFound.
    """
    try:
        return _running.get()
    except LookupError as error:
        message = "no message is being worked on here: the task was called directly, or this is another thread than the task's own"
        raise NotFound(message) from error


@contextmanager
def running(delivery: Delivery) -> Iterator[None]:
    """Let this be the current delivery meanwhile."""
    token = _running.set(delivery)
    try:
        yield
    finally:
        _running.reset(token)
