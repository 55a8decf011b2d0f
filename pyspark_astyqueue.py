"""What Spark imports by itself: a worker looks into every module of this kind of name for a `DefaultSource`.

An error in here would hide the data sources of all others too, so it imports nothing but the source, and where that cannot be
had, for want of pyarrow or beside an older PySpark, it has none.
"""

try:
    from astyqueue.spark.source import AstyqueueSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
