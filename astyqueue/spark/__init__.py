"""Queues and Spark: messages and their history as tables and streams, and rows sent as messages. Needs the extra `spark`."""

from astyqueue.spark.session import register, session
from astyqueue.spark.source import AstyqueueSource

__all__ = ["AstyqueueSource", "register", "session"]
