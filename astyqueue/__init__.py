"""A queue that cannot lose work: messages, tasks and schedules in one SQLite file, in memory, or on Cassandra."""

from astyqueue.errors import AstyqueueError, LeaseLost, Reject, Retry, Snooze, Vetoed
from astyqueue.model.outgoing import Message
from astyqueue.queue.connection import Connection, connect
from astyqueue.queue.delivery import Delivery, Received
from astyqueue.queue.hooks import Hook
from astyqueue.queue.queue import MessageQueue

__all__ = [
    "AstyqueueError",
    "Connection",
    "Delivery",
    "Hook",
    "LeaseLost",
    "Message",
    "MessageQueue",
    "Received",
    "Reject",
    "Retry",
    "Snooze",
    "Vetoed",
    "connect",
]
