"""The queue for asyncio: the names of `astyqueue`, with a coroutine for every call that uses the store.

It runs the same steps as the queue for threads, so the two may share a store, a process and a queue. Its classes are
written from those for threads by `make aio`, all but the endless loop over deliveries and the dispatcher.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.aio.connection import Connection, connect
from astyqueue.aio.current_delivery import current_delivery
from astyqueue.aio.delivery import Delivery, Received
from astyqueue.aio.queue import MessageQueue
from astyqueue.aio.schedules import Schedules
from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.dispatch.awaited import Dispatcher
    from astyqueue.tasks.awaited.app import App
    from astyqueue.tasks.awaited.batched_call import BatchedCall
    from astyqueue.tasks.awaited.task import Task

__all__ = [
    "App",
    "BatchedCall",
    "Connection",
    "Delivery",
    "Dispatcher",
    "MessageQueue",
    "Received",
    "Schedules",
    "Task",
    "connect",
    "current_delivery",
]

#: Names whose modules import this package.
_HOMES: Final = {
    "App": ".tasks.awaited.app",
    "BatchedCall": ".tasks.awaited.batched_call",
    "Dispatcher": ".dispatch.awaited",
    "Task": ".tasks.awaited.task",
}

__getattr__ = lazy_imports(globals(), _HOMES)
