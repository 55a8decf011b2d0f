"""What Spark imports by itself: a worker looks into every module of this kind of name for a `DefaultSource`.

An error in here would hide the data sources of all others too, so it imports nothing but the source.
"""

from astyqueue.spark.source import AstyqueueSource as DefaultSource

__all__ = ["DefaultSource"]
