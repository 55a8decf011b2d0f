"""The queue for asyncio: the names of `astyqueue`, with a coroutine for every call that uses the store.

It runs the same steps as the queue for threads, so the two may share a store, a process and a queue. Its classes are
written from those for threads by `make aio`, all but the endless loop over deliveries.
"""

from astyqueue.aio.connection import Connection, connect
from astyqueue.aio.current_delivery import current_delivery
from astyqueue.aio.delivery import Delivery, Received
from astyqueue.aio.queue import MessageQueue
from astyqueue.aio.schedules import Schedules

__all__ = ["Connection", "Delivery", "MessageQueue", "Received", "Schedules", "connect", "current_delivery"]
