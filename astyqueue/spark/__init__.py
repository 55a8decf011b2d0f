"""Queues and Spark: messages and their history as tables and streams, and rows sent as messages.

It needs the extra `spark`. Code that only reads the tables of the pipeline, such as its report, is in here too and
works without PySpark.
"""

from importlib.util import find_spec

if find_spec("pyspark") is not None:
    from astyqueue.spark.data_source import AstyqueueSource
    from astyqueue.spark.session import register, session

__all__ = ["AstyqueueSource", "register", "session"]
