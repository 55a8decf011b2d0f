"""The sink: the rows of a DataFrame or of a stream become messages, each once, however often Spark runs a task.

Ids come from the source, the batch and the id that a row brings along, never from where the row happened to be: a task that
is tried again may find its rows in another order, in other partitions, on another machine.
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

from astyqueue.clock import SECOND, instant
from astyqueue.errors import BadSetting
from astyqueue.protocol.source import begin, end
from astyqueue.spark.addressing import Addressing
from astyqueue.spark.opening import Pace, sending
from astyqueue.spark.outbox import Outbox
from astyqueue.spark.sinkoptions import Sinking

_log: Final = logging.getLogger("astyqueue.spark")

#: A query that runs again after less than this was interrupted, or is tried again.
_LONG_AGO: Final = 3_600 * SECOND
_ADVICE: Final = "(rows that are new to it count as sent at that moment: give each load a name of its own, unless it goes on with this one)"
#: What Spark calls, in a task, the stream that runs it, for all its restarts, and the batch that is at hand.
_STREAM: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
#: The batch of a DataFrame, which has no others.
_ONLY: Final = ""


@dataclass
class Written(WriterCommitMessage):
    """What one task did: of which source and batch, how many rows, and how many of them were not in the queue before."""

    source: str
    batch: str
    rows: int
    put: int


class BatchSink(DataSourceArrowWriter):
    """Sends a DataFrame."""

    def __init__(self, sinking: Sinking) -> None:
        """Send as the options say."""
        self._sinking = sinking

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return _written(self._sinking, iterator, source=self._sinking.query, batch=_ONLY)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's signature
        """Note that all of the query was sent, if it is to be sent once; else nothing, for the same query may send more."""
        if self._sinking.once:
            queue = sending(self._sinking.place, create=self._sinking.create)
            queue.run(end(queue=queue.name, source=self._sinking.query, batch=_ONLY))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing: what was sent stays sent; the same query sends the rest."""


class StreamSink(DataSourceStreamArrowWriter):
    """Sends each batch of a stream."""

    def __init__(self, sinking: Sinking) -> None:
        """Send as the options say; a stream has a name of its own, which a new checkpoint changes, so it takes no other."""
        if sinking.named:
            message = "a stream is told from others by its checkpoint: leave the options query and once out"
            raise BadSetting(message)
        self._sinking = sinking

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a batch."""
        return _written(self._sinking, iterator, source=_told(_STREAM), batch=_told(_BATCH))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Note that the batch was sent, so that it is not sent again even if what it sent is long gone."""
        sources = {(message.source, message.batch) for message in messages if isinstance(message, Written)}
        queue = sending(self._sinking.place, create=self._sinking.create)
        for source, batch in sources:
            queue.run(end(queue=queue.name, source=source, batch=batch, before=str(batchId - 1) if batchId else None))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing: the batch comes again, and sends what is missing."""


def _written(sinking: Sinking, iterator: Iterator[pa.RecordBatch], *, source: str, batch: str) -> Written:
    """Send the rows of a task, or see that the batch was sent before."""
    queue = sending(sinking.place, create=sinking.create)
    begun = queue.run(begin(queue.core.process, queue=queue.name, source=source, batch=batch))
    if begun.ended:
        return Written(source, batch, sum(rows.num_rows for rows in iterator), 0)
    _check_age(sinking, begun.moment, queue.core.process.now())
    addressing = Addressing(queue.settings, sinking, source=source, begun=begun)
    outbox = Outbox(queue, in_flight=sinking.in_flight, pace=Pace(sinking.rate), depth=sinking.depth)
    rows = outbox.send(chain.from_iterable(map(addressing.of, iterator)))
    return Written(source, batch, rows, outbox.put)


def _check_age(sinking: Sinking, begun: int, now: int) -> None:
    """Tell of a query that was begun long ago: rows that it did not have then count as sent then, and their delays from then."""
    if sinking.named and now - begun > _LONG_AGO:
        began = instant(begun)
        _log.warning("old query queue=%s query=%s begun=%s %s", sinking.place.queue, sinking.query, f"{began:%Y-%m-%dT%H:%M:%SZ}", _ADVICE)


def _told(name: str) -> str:
    """What Spark tells this task."""
    context = TaskContext.get()
    told = context.getLocalProperty(name) if context else None
    if told is None:
        message = f"Spark does not tell this task {name}, without which what it sends could be sent twice"
        raise BadSetting(message)
    return told
