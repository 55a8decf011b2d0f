"""Queues and Spark: messages and their history as tables and streams, and rows sent as messages.

- `data_source`: the data source `astyqueue` for DataFrames: `batch_reader` reads messages, dead letters and history,
  `history_stream` follows the history, and `writer` sends the rows of a DataFrame or a stream.
- `schemas`, `row_mapping`: messages and events as rows, and rows as messages with ids that follow from them.
- `batch_sender`: sends in a task of Spark, in full commits and within a rate. `connections`: opens queues there.
- `options`: options as text, checked first. `errors`, `session`: errors in one sentence, and sessions of Spark.
- `file_import`, `redrive`: commands over the above. `pipeline`: tables and a report from the history.

The driver of Spark plans partitions, its workers open the store and run the same steps as any process, so a send that
Spark repeats is stored once. It needs the extra `spark`. Code that only reads the tables of the pipeline, such as its
report, is in here too and works without PySpark. docs/how-to/spark.md shows it in use.
"""

from importlib.util import find_spec

if find_spec("pyspark") is not None:
    from astyqueue.spark.data_source import AstyqueueSource
    from astyqueue.spark.session import register, session

__all__ = ["AstyqueueSource", "register", "session"]
