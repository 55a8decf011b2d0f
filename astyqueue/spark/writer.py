"""The sink: the rows of a DataFrame or of a stream become messages, each once, even if Spark runs a task several times.

Ids are made of the source, the batch and the row's own id, never of the row's position: a retried task may find its
rows in another order, in other partitions, on another machine.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from astyqueue.clock import instant
from astyqueue.errors import BadSetting
from astyqueue.protocol.sending.idempotent import begin_batch, end_batch
from astyqueue.spark.batch_sender import Outbox
from astyqueue.spark.connections import Pace, open_for_sending
from astyqueue.spark.options import WriteOptions
from astyqueue.spark.row_mapping import Addressing
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND

_log: Final = logging.getLogger("astyqueue.spark")

#: A query that runs again within this time is taken for a retry, and not warned about.
_LONG_AGO: Final = 3_600 * SECOND
_ADVICE: Final = "rows new to this query count as sent when it began: name a new query, unless this load continues it"
#: Spark's local properties of a task of a stream: the id of the query, which survives restarts, and that of the batch.
_STREAM: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
#: The id of the only batch of a DataFrame.
_ONLY: Final = ""


@dataclass
class Written(WriterCommitMessage):
    """The result of one task: source, batch, the number of rows, and how many were not in the queue before (`put`)."""

    source: str
    batch: str
    rows: int
    put: int


class BatchSink(DataSourceArrowWriter):
    """Sends a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        """Send as the options say."""
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return _written(self._options, iterator, source=self._options.query, batch=_ONLY)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """With `once`, record that all of the query was sent; else do nothing, because the same query may send more."""
        if self._options.once:
            queue = open_for_sending(self._options.place, create=self._options.create)
            queue.run(end_batch(queue.core.process, queue=queue.name, source=self._options.query, batch=_ONLY))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: messages that were sent stay sent, and the same query, run again, sends the rest."""


class StreamSink(DataSourceStreamArrowWriter):
    """Sends each batch of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        """Send as the options say. BadSetting for `query` and `once`: the checkpoint identifies a stream."""
        if options.named:
            message = "a stream is identified by its checkpoint: leave out the options query and once"
            raise BadSetting(message)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a batch."""
        return _written(self._options, iterator, source=_property(_STREAM), batch=_property(_BATCH))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Record that the batch was sent, so that it is not sent again even when its messages are long gone."""
        sources = {(message.source, message.batch) for message in messages if isinstance(message, Written)}
        queue = open_for_sending(self._options.place, create=self._options.create)
        for source, batch in sources:
            queue.run(
                end_batch(
                    queue.core.process,
                    queue=queue.name,
                    source=source,
                    batch=batch,
                    before=str(batchId - 1) if batchId else None,
                )
            )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: Spark runs the batch again, which sends the missing messages."""


def _written(options: WriteOptions, iterator: Iterator[pa.RecordBatch], *, source: str, batch: str) -> Written:
    """Send the rows of a task, unless the batch was sent before."""
    queue = open_for_sending(options.place, create=options.create)
    begun = queue.run(begin_batch(queue.core.process, queue=queue.name, source=source, batch=batch))
    if begun.ended:
        return Written(source, batch, sum(rows.num_rows for rows in iterator), 0)
    _check_age(options, begun.moment, queue.core.process.now())
    addressing = Addressing(queue.settings, options, source=source, begun=begun)
    outbox = Outbox(queue, in_flight=options.in_flight, pace=Pace(options.rate), depth=options.depth)
    rows = outbox.send(chain.from_iterable(map(addressing.of, iterator)))
    return Written(source, batch, rows, outbox.put)


def _check_age(options: WriteOptions, begun: int, now: int) -> None:
    """Warn about a query that began long ago: rows new to it count as sent at that moment, and delays from it."""
    if options.named and now - begun > _LONG_AGO:
        began = instant(begun)
        log_event(
            _log,
            logging.WARNING,
            "query_is_old",
            queue=options.place.queue,
            query=options.query,
            begun=f"{began:%Y-%m-%dT%H:%M:%SZ}",
            remedy=_ADVICE,
        )


def _property(name: str) -> str:
    """A local property of the Spark job that this task belongs to."""
    context = TaskContext.get()
    value = context.getLocalProperty(name) if context else None
    if value is None:
        message = f"Spark does not set the property {name} for this task; rows could be sent twice, so nothing was sent"
        raise BadSetting(message)
    return value
