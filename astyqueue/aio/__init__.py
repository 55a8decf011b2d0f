"""The queue for asyncio: the names of `astyqueue`, with a coroutine for every call that uses the store.

- `queue`, `queue_admin`, `connection`, `delivery`, `schedules`: the twins of the classes for threads, written by
  `make aio`; never edit them by hand.
- `delivery_loop`, `spool`: what differs by more than `async` and `await`, written by hand.

They run the same steps as the queue for threads, so the two may share a store, a process and a queue. A task waits
without blocking its event loop; a store without coroutines is called in threads. Dispatchers and apps for asyncio are
in `astyqueue.dispatch` and `astyqueue.tasks.awaited`, and named here. docs/how-to/async-services.md shows a service,
docs/decisions/0038-the-classes-of-aio-are-generated.md how the twins are written.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.aio.connection import Connection, connect
from astyqueue.aio.delivery import Delivery, Received
from astyqueue.aio.queue import MessageQueue
from astyqueue.aio.schedules import Schedules
from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.dispatch.asyncio_dispatcher import Dispatcher
    from astyqueue.tasks.awaited.app import App
    from astyqueue.tasks.awaited.running_task import BatchedCall, current_delivery
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
    "BatchedCall": ".tasks.awaited.running_task",
    "Dispatcher": ".dispatch.asyncio_dispatcher",
    "Task": ".tasks.awaited.task",
    "current_delivery": ".tasks.awaited.running_task",
}

__getattr__ = lazy_imports(globals(), _HOMES)
