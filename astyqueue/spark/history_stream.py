"""Following the history of a queue: a stream that can be read again from any of its offsets.

An offset is the moment up to which all events were read, the same in every bucket of history: Spark takes the latest
event that it has seen for the time of the whole stream, and drops events that are behind its watermark. Events are
written a little after their own moment, so the stream stays behind by a `lag`: history older than that is taken to be
complete.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from astyqueue.errors import BadSetting
from astyqueue.ids import moment
from astyqueue.protocol.history import LONGEST, HistorySlice, history_slices
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import read_one
from astyqueue.spark.batch_reader import PartPartition, read_history
from astyqueue.spark.connections import ReadOnlyQueue, open_read_only, time_at
from astyqueue.spark.errors import HistoryGone, check_kept
from astyqueue.spark.options import StreamReadOptions
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND

_log: Final = logging.getLogger("astyqueue.spark")

#: The form in which Spark keeps a position in a checkpoint, as JSON.
Offset = dict[str, int | str | bool]

#: A stream without events has a batch this often: each batch, even an empty one, makes the whole query run.
_QUIET: Final = 3_600 * SECOND
#: Ids of a bucket in one read, least and most; the least is more than there are kinds of events, of which one id may
#: have all.
_PAGE: Final = (64, 2_000)


@dataclass(frozen=True, slots=True)
class Position:
    """The moment (microseconds) up to which each bucket of a queue's history was read.

    It is the same for all buckets, except in offsets of early versions. `initial`: nothing was read yet, and the stream
    begins here. `first` is the start of the batch that ends here, if it was the first one: Spark calls `initialOffset`
    again when it repeats that batch, and "an hour ago" is another moment then.
    """

    queue: str
    bounds: tuple[int, ...]
    initial: bool = False
    first: int | None = None

    @property
    def least(self) -> int:
        """The moment before which everything was read."""
        return min(self.bounds)

    @classmethod
    def of(cls, offset: Offset, ring: Ring) -> Position:
        """The position of an offset; BadSetting if it is of another queue, or of one with another layout."""
        buckets = ring.layout.concurrency_shards
        if "until" not in offset:
            known = sorted((int(bucket), int(until)) for bucket, until in offset.items())
            _check(ring, ring.queue, len(known))
            return cls(ring.queue, tuple(until for _, until in known))
        _check(ring, str(offset["queue"]), int(offset["buckets"]))
        first = int(offset["first"]) if "first" in offset else None
        return cls(ring.queue, (int(offset["until"]),) * buckets, "initial" in offset, first)

    def to(self, until: int) -> Position:
        """The position at `until`; a bucket that is further stays where it is."""
        return Position(
            self.queue, tuple(max(bound, until) for bound in self.bounds), first=self.least if self.initial else None
        )

    def offset(self) -> Offset:
        """The offset, as `of` reads it."""
        if self.least != max(self.bounds):
            return {str(bucket): bound for bucket, bound in enumerate(self.bounds)}
        offset: Offset = {"until": self.least, "queue": self.queue, "buckets": len(self.bounds)}
        if self.initial:
            offset["initial"] = True
        if self.first is not None:
            offset["first"] = self.first
        return offset


def _check(ring: Ring, queue: str, buckets: int) -> None:
    if (queue, buckets) != (ring.queue, ring.layout.concurrency_shards):
        message = (
            f"this checkpoint is of queue {queue!r} with {buckets} concurrency shards, and queue {ring.queue!r} has "
            f"{ring.layout.concurrency_shards}: it was dropped and created again, or the checkpoint is that of another "
            "stream. With it events would be read twice or not at all: begin with a new checkpoint, and "
            'set the start with .option("since", ...)'
        )
        raise BadSetting(message)


class HistoryStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The events of a queue, each in one batch."""

    def __init__(self, options: StreamReadOptions, asked: StructType) -> None:
        """Follow as the options say, with the columns `asked`."""
        self._options = options
        self._columns = asked
        self._until: int | None = None

    def initialOffset(self) -> Offset:
        """The begin of a stream that has no checkpoint yet: the clock of this machine may be ahead of the store's."""
        ring = open_read_only(self._options.place).ring
        begin = self._options.begin(time_at(self._options.place))
        return Position(ring.queue, (begin,) * ring.layout.concurrency_shards, initial=True).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of a batch: the option `rows_per_batch`, or all events that are there."""
        return ReadAllAvailable() if self._options.most is None else ReadMaxRows(self._options.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end at the current end of history, less the lag."""
        self._until = self._horizon()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the batch that begins at `start`, never before it. HistoryGone if unread events have expired.

        The first batch may be empty: it puts the start of the stream into the checkpoint. Without it a stream that is
        stopped before there are events would begin at another moment when it is started again.
        """
        until = self._horizon() if self._until is None else self._until
        queue = open_read_only(self._options.place)
        position = Position.of(start, queue.ring)
        self._check_kept(queue, position, until + self._options.lag)
        if position.initial and until <= position.least:
            return position.to(position.least).offset()
        if until <= position.least or not _worth_a_batch(queue, position, until):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return position.to(until if most is None else _after(queue, position, most, until=until)).offset()

    def reportLatestOffset(self) -> Offset:
        """The end of history that can be read now, without a batch's limit: `latestOffset` in a query's progress."""
        ring = open_read_only(self._options.place).ring
        return Position(ring.queue, (self._horizon(),) * ring.layout.concurrency_shards).offset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The history slices between two offsets, one for each bucket and day; always the same for the same offsets."""
        ring = open_read_only(self._options.place).ring
        begun, ended = Position.of(start, ring), Position.of(end, ring)
        if ended.first is not None:
            begun = replace(begun, bounds=(ended.first,) * len(begun.bounds))
        return [PartPartition(part) for part in _between(ring, begun, ended)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one history slice."""
        if not isinstance(partition, PartPartition):
            return iter(())
        return read_history(self._options.place, partition.part, asked=self._columns, rate=self._options.rate)

    def commit(self, end: Offset) -> None:
        """Do nothing: history expires with time, not because a stream has read it."""

    def stop(self) -> None:
        """Do nothing: there is nothing to release."""

    def _horizon(self) -> int:
        return time_at(self._options.place) - self._options.lag

    def _check_kept(self, queue: ReadOnlyQueue, position: Position, now: int) -> None:
        """HistoryGone if unread events have expired; not checked at the start of a stream, which the options choose."""
        if position.initial:
            return
        try:
            check_kept(position.queue, read=position.least, now=now, kept=queue.settings.behaviour.history_kept_us)
        except HistoryGone as error:
            if self._options.complete:
                raise
            log_event(_log, logging.WARNING, "history_gone", queue=position.queue, error=error)


def _worth_a_batch(queue: ReadOnlyQueue, position: Position, until: int) -> bool:
    """Whether there are events, it is the first batch, or the time without any is long enough to move on.

    Moving on saves reading the same empty slices again, and keeps the position from falling behind the kept history.
    """
    if position.initial or until - position.least >= min(_QUIET, queue.settings.behaviour.history_kept_us // 2):
        return True
    left = _between(queue.ring, position, position.to(until))
    return any(queue.run(read_one(replace(part.slice(1), values=False))) for part in left)


def _between(ring: Ring, start: Position, end: Position) -> Iterator[HistorySlice]:
    for bucket, (since, until) in enumerate(zip(start.bounds, end.bounds, strict=True)):
        yield from _of_bucket(ring, bucket, since, until)


def _of_bucket(ring: Ring, bucket: int, since: int, until: int) -> list[HistorySlice]:
    """The slices of one bucket: `history_slices` has, day by day, one for each bucket in order.

    A stream may begin in 1970: days whose events have expired, whatever the queue's setting, are left out.
    """
    kept = max(since, until - LONGEST)
    return history_slices(ring, kept, until)[bucket :: ring.layout.concurrency_shards] if since < until else []


def _after(queue: ReadOnlyQueue, position: Position, most: int, *, until: int) -> int:
    """The moment up to which all buckets together have about `most` events; events of one moment are not split."""
    least, greatest = _PAGE
    page = min(greatest, max(least, most // len(position.bounds)))
    buckets = [_of_bucket(queue.ring, bucket, since, until) for bucket, since in enumerate(position.bounds)]
    moments = heapq.merge(*(_moments(queue, left, page) for left in buckets))
    last = next(islice(moments, most - 1, None), None)
    return until if last is None else min(until, last + 1)


def _moments(queue: ReadOnlyQueue, left: Iterable[HistorySlice], page: int) -> Iterator[int]:
    """The moments of the events in these slices, in order, read lazily and page by page."""
    for each in left:
        part = each
        while len(columns := queue.run(read_one(replace(part.slice(page), values=False)))) == page:
            last = columns[-1].name.id  # others of its columns, one for each kind, may be on the next page
            yield from (moment(column.name.id) for column in columns if column.name.id != last)
            part = part._replace(after=last)
        yield from (moment(column.name.id) for column in columns)
