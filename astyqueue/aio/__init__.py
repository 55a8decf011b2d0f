"""The same queue, awaited: the names of `astyqueue`, and what talks to a store is a coroutine.

It runs the very steps that threads run, so the two may share a store, a process and a queue.
"""

from astyqueue.aio.connection import Connection, connect
from astyqueue.aio.delivery import Delivery, Received
from astyqueue.aio.queue import MessageQueue
from astyqueue.aio.schedules import Schedules

__all__ = ["Connection", "Delivery", "MessageQueue", "Received", "Schedules", "connect"]
