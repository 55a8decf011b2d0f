"""Spark imports this module by itself: a worker searches every module named `pyspark_*` for a `DefaultSource`.

An error in here would hide the data sources of all other packages too. So the module imports nothing but the source,
and has none where the import fails, as without pyarrow or with an older PySpark.
"""

try:
    from astyqueue.spark.data_source import AstyqueueSource as DefaultSource
except ImportError:
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
