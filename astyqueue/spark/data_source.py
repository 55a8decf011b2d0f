"""The data source `astyqueue`: the messages of a queue as tables, its history as a stream, and a sink for rows."""

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
from astyqueue.spark.batch_reader import QueueReader
from astyqueue.spark.history_stream import HistoryStream
from astyqueue.spark.options import BatchReadOptions, StreamReadOptions, WriteOptions, table_of
from astyqueue.spark.schemas import HISTORY, checked, schema_of
from astyqueue.spark.writer import BatchSink, StreamSink


class AstyqueueSource(DataSource):
    """The format "astyqueue" of `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`.

    Its options say which queue.
    """

    @classmethod
    def name(cls) -> str:
        """The name to give to `format`."""
        return "astyqueue"

    def schema(self) -> StructType:
        """The columns of the table that the option `table` names."""
        return schema_of(table_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader of a table; BadSetting or BadInput if options or columns are wrong."""
        options = BatchReadOptions.of(self.options)
        return QueueReader(options, checked(options.table, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A streaming reader of history; BadSetting for other tables, whose rows go when messages are settled."""
        if table_of(self.options) != HISTORY:
            message = 'only history can be followed: .option("table", "history"), or read other tables with spark.read'
            raise BadSetting(message)
        return HistoryStream(StreamReadOptions.of(self.options), checked(HISTORY, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001 - Spark calls it so
        """A sink for a DataFrame; BadSetting if it is to overwrite."""
        _check_appends('.mode("append")', overwrite=overwrite)
        return BatchSink(WriteOptions.of(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001 - Spark calls it so
        """A sink for each batch of a stream; BadSetting if each batch has all rows, in the output mode "complete"."""
        _check_appends('.outputMode("append")', overwrite=overwrite)
        return StreamSink(WriteOptions.of(self.options, schema))


def _check_appends(remedy: str, *, overwrite: bool) -> None:
    if overwrite:
        message = f"rows are appended to a queue, which is never overwritten: {remedy}"
        raise BadSetting(message)
