"""A message queue, task runner and scheduler that loses no work: in a SQLite file, in memory, or on Cassandra.

    queue = astyqueue.connect("sqlite:///mail.db").queue("emails")
    queue.send({"to": "ada@example.org"}, delay="10m")
    with queue.receive(limit=10, wait="20s") as batch:
        ...

`connect` and `MessageQueue` are for messages, `Dispatcher` runs handlers for them, `App` makes tasks of functions.
`astyqueue.aio` has the same for asyncio, `astyqueue.triggers` and `astyqueue.schedules` what recurs, and
`astyqueue.errors` what is raised. docs/index.md lists all pages, docs/architecture.md the packages.

Names are imported when they are first used, so that a command that only prints its help starts quickly.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.dispatch import Dispatcher
    from astyqueue.dispatch.handlers.middleware import BatchMiddleware
    from astyqueue.errors import AstyqueueError, KeyTaken, LeaseLost, Reject, Retry, Snooze, Vetoed
    from astyqueue.model.envelope import MessageId
    from astyqueue.model.message import Message
    from astyqueue.observe import Observer
    from astyqueue.queue.connection import Connection, connect
    from astyqueue.queue.delivery.base_delivery import BaseDelivery
    from astyqueue.queue.delivery.delivery import Delivery, Received
    from astyqueue.queue.hooks import Hook
    from astyqueue.queue.queue import MessageQueue
    from astyqueue.spool import SpoolOptions
    from astyqueue.tasks import App, BatchedCall, current_delivery

__all__ = [
    "App",
    "AstyqueueError",
    "BaseDelivery",
    "BatchMiddleware",
    "BatchedCall",
    "Connection",
    "Delivery",
    "Dispatcher",
    "Hook",
    "KeyTaken",
    "LeaseLost",
    "Message",
    "MessageId",
    "MessageQueue",
    "Observer",
    "Received",
    "Reject",
    "Retry",
    "Snooze",
    "SpoolOptions",
    "Vetoed",
    "connect",
    "current_delivery",
]

#: Names that this module uses itself and that are not public.
_INSIDE: Final = {"Final", "TYPE_CHECKING", "lazy_imports"}
_HOMES: Final = {
    "App": "tasks",
    "AstyqueueError": "errors",
    "BaseDelivery": "queue.delivery.base_delivery",
    "BatchMiddleware": "dispatch.handlers.middleware",
    "BatchedCall": "tasks",
    "Connection": "queue.connection",
    "Delivery": "queue.delivery.delivery",
    "Dispatcher": "dispatch",
    "Hook": "queue.hooks",
    "KeyTaken": "errors",
    "LeaseLost": "errors",
    "Message": "model.message",
    "MessageId": "model.envelope",
    "MessageQueue": "queue.queue",
    "Observer": "observe",
    "Received": "queue.delivery.delivery",
    "Reject": "errors",
    "Retry": "errors",
    "Snooze": "errors",
    "SpoolOptions": "spool",
    "Vetoed": "errors",
    "connect": "queue.connection",
    "current_delivery": "tasks",
}


def __dir__() -> list[str]:
    """The public names, also those not imported yet, for completion in a shell."""
    return sorted({*globals(), *__all__} - _INSIDE)


__getattr__ = lazy_imports(globals(), _HOMES)
