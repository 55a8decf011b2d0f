"""The delivery that the running code handles, where that code was not given it, as in a task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from astyqueue.errors import NotFound
from astyqueue.queue.delivery.base_delivery import BaseDelivery

_running: Final[ContextVar[BaseDelivery]] = ContextVar("astyqueue.delivery")


def running_delivery() -> BaseDelivery:
    """The delivery that is being handled; NotFound where none is."""
    try:
        return _running.get()
    except LookupError as error:
        message = "no task runs for a message here: the task was called directly, or this is not the task's own thread"
        raise NotFound(message) from error


@contextmanager
def running(delivery: BaseDelivery) -> Iterator[None]:
    """Make this the current delivery inside the block."""
    token = _running.set(delivery)
    try:
        yield
    finally:
        _running.reset(token)
