"""The data source `astyqueue`: queues as tables, as a stream of what happened, and as a place to send rows to."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from astyqueue.errors import BadSetting
from astyqueue.spark.following import HistoryStream
from astyqueue.spark.options import Following, Reading, table_of
from astyqueue.spark.reading import QueueReader
from astyqueue.spark.sink import BatchSink, StreamSink
from astyqueue.spark.sinkoptions import Sinking
from astyqueue.spark.tables import HISTORY, checked, schema_of


class AstyqueueSource(DataSource):
    """`spark.read.format("astyqueue")`, `spark.readStream…`, `df.write…` and `df.writeStream…`; options say which queue."""

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return "astyqueue"

    def schema(self) -> StructType:
        """The columns of the table that is asked for."""
        return schema_of(table_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a table at once."""
        reading = Reading.of(self.options)
        return QueueReader(reading, checked(reading.table, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Reads history as it comes; queues themselves are no stream, for what is in them goes away."""
        if table_of(self.options) != HISTORY:
            message = 'only history can be followed, for messages go away: .option("table", "history"), or read the others at once'
            raise BadSetting(message)
        return HistoryStream(Following.of(self.options), checked(HISTORY, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark calls it so
        """Sends rows to a queue."""
        if overwrite:
            message = 'a queue is sent to, never written over: .mode("append")'
            raise BadSetting(message)
        return BatchSink(Sinking.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, FBT001 - Spark calls it so
        """Sends the rows of each batch to a queue."""
        return StreamSink(Sinking.of(self.options, schema))
