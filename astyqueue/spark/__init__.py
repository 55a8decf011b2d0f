"""Queues and Spark: messages and their history as tables and streams, and rows sent as messages. Needs the extra `spark`.

What only reads the tables of the pipeline, like its report, is in here too and works without PySpark.
"""

from importlib.util import find_spec

if find_spec("pyspark") is not None:
    from astyqueue.spark.session import register, session
    from astyqueue.spark.source import AstyqueueSource

__all__ = ["AstyqueueSource", "register", "session"]
