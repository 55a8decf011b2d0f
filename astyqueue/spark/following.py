"""Following the history of a queue: a stream that can be read again from wherever it was.

An offset says up to which moment all events were read, the same moment in every bucket of history: Spark takes the latest
event it has seen for the time of the whole stream, and drops what comes later than its watermark. Events land a little after
the moment they tell of, so the stream stays behind by a `lag`: what lies further back than that is taken to be all there.
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

from astyqueue.clock import SECOND
from astyqueue.errors import BadSetting
from astyqueue.ids import moment
from astyqueue.protocol.history import Part, parts
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import read_one
from astyqueue.spark.opening import Looking, looking, time_at
from astyqueue.spark.options import Following
from astyqueue.spark.reading import PartPartition, read_history
from astyqueue.spark.retention import HistoryGone, check_kept

_log: Final = logging.getLogger("astyqueue.spark")

#: As Spark keeps it in a checkpoint, in JSON.
Offset = dict[str, int | str | bool]

#: A stream on which nothing happens has a batch this often: each costs whatever reads the stream.
_QUIET: Final = 3_600 * SECOND
#: Ids of a bucket that are read together, at the least and the most; there are fewer kinds of events at one moment than the least.
_PAGE: Final = (64, 2_000)


@dataclass(frozen=True, slots=True)
class Position:
    """Up to which moment (microseconds) each bucket of a queue's history was read.

    All were read up to the same one, except in an offset that was written before that was so. `initial`: nothing was read yet,
    and this is where the stream begins. `first` is where the batch that ends here began, if it was the first one: Spark asks
    anew where a stream begins when it repeats that batch, and "an hour ago" is another moment then.
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
        """The position that was kept as this; BadSetting if it is of another queue, or of one with another layout."""
        buckets = ring.layout.concurrency_shards
        if "until" not in offset:
            known = sorted((int(bucket), int(until)) for bucket, until in offset.items())
            _check(ring, ring.queue, len(known))
            return cls(ring.queue, tuple(until for _, until in known))
        _check(ring, str(offset["queue"]), int(offset["buckets"]))
        first = int(offset["first"]) if "first" in offset else None
        return cls(ring.queue, (int(offset["until"]),) * buckets, "initial" in offset, first)

    def to(self, until: int) -> Position:
        """This far, and no bucket back."""
        return Position(self.queue, tuple(max(bound, until) for bound in self.bounds), first=self.least if self.initial else None)

    def offset(self) -> Offset:
        """What `of` reads."""
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
            f"{ring.layout.concurrency_shards}: it was dropped and created again, or the checkpoint is that of another stream. By it "
            'events would be read twice or not at all: begin with a new checkpoint, and .option("since", ...) says from where'
        )
        raise BadSetting(message)


class HistoryStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The events of a queue, each in one batch."""

    def __init__(self, following: Following, asked: StructType) -> None:
        """Follow as the options say, these columns."""
        self._following = following
        self._asked = asked
        self._until: int | None = None

    def initialOffset(self) -> Offset:
        """Where a stream begins that has no checkpoint yet."""
        ring = looking(self._following.place).ring
        return Position(ring.queue, (self._following.since,) * ring.layout.concurrency_shards, initial=True).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch is to have, if the options say."""
        return ReadAllAvailable() if self._following.most is None else ReadMaxRows(self._following.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end where history stands now."""
        self._until = self._horizon()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch may go from here; an offset never goes back. HistoryGone if what comes next is kept no longer."""
        until = self._horizon() if self._until is None else self._until
        queue = looking(self._following.place)
        position = Position.of(start, queue.ring)
        self._check_kept(queue, position, until + self._following.lag)
        if until <= position.least or not _worth_a_batch(queue, position, until):
            return start
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return position.to(until if most is None else _after(queue, position, most, until=until)).offset()

    def reportLatestOffset(self) -> Offset:
        """How far a stream could have read by now, whatever a batch is limited to: `latestOffset` in what a query tells of its progress."""
        ring = looking(self._following.place).ring
        return Position(ring.queue, (self._horizon(),) * ring.layout.concurrency_shards).offset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The stretches between two offsets, for each bucket one a day; the same whenever they are asked for."""
        ring = looking(self._following.place).ring
        begun, ended = Position.of(start, ring), Position.of(end, ring)
        if ended.first is not None:
            begun = replace(begun, bounds=(ended.first,) * len(begun.bounds))
        return [PartPartition(part) for part in _between(ring, begun, ended)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of one stretch."""
        if not isinstance(partition, PartPartition):
            return iter(())
        return read_history(self._following.place, partition.part, asked=self._asked, rate=self._following.rate)

    def commit(self, end: Offset) -> None:
        """Nothing: history goes by itself in time, not because somebody read it."""

    def stop(self) -> None:
        """Nothing to let go of."""

    def _horizon(self) -> int:
        return time_at(self._following.place) - self._following.lag

    def _check_kept(self, queue: Looking, position: Position, now: int) -> None:
        """See that the stream was not away for longer than history is kept; where it begins is for the options to say."""
        if position.initial:
            return
        try:
            check_kept(position.queue, read=position.least, now=now, kept=queue.settings.behaviour.history_kept_us)
        except HistoryGone as error:
            if self._following.complete:
                raise
            _log.warning("history gone queue=%s error=%s", position.queue, error)


def _worth_a_batch(queue: Looking, position: Position, until: int) -> bool:
    """Whether anything happened, or so long nothing that going on saves looking at all of it again, or it is not kept much longer."""
    if until - position.least >= min(_QUIET, queue.settings.behaviour.history_kept_us // 2):
        return True
    left = _between(queue.ring, position, position.to(until))
    return any(queue.run(read_one(replace(part.slice(1), values=False))) for part in left)


def _between(ring: Ring, start: Position, end: Position) -> Iterator[Part]:
    for bucket, (since, until) in enumerate(zip(start.bounds, end.bounds, strict=True)):
        yield from _of_bucket(ring, bucket, since, until)


def _of_bucket(ring: Ring, bucket: int, since: int, until: int) -> list[Part]:
    """The parts of one bucket; those of a day follow each other by their buckets."""
    return parts(ring, since, until)[bucket :: ring.layout.concurrency_shards] if since < until else []


def _after(queue: Looking, position: Position, most: int, *, until: int) -> int:
    """The moment up to which there are about so many events in all buckets together, all events of one moment included."""
    least, greatest = _PAGE
    page = min(greatest, max(least, most // len(position.bounds)))
    buckets = [_of_bucket(queue.ring, bucket, since, until) for bucket, since in enumerate(position.bounds)]
    moments = heapq.merge(*(_moments(queue, left, page) for left in buckets))
    last = next(islice(moments, most - 1, None), None)
    return until if last is None else min(until, last + 1)


def _moments(queue: Looking, left: Iterable[Part], page: int) -> Iterator[int]:
    """The moments of the events in these parts, in order, read page by page as they are asked for."""
    for each in left:
        part = each
        while len(columns := queue.run(read_one(replace(part.slice(page), values=False)))) == page:
            last = columns[-1].name.id  # some of its columns, one a kind, may be on the next page
            yield from (moment(column.name.id) for column in columns if column.name.id != last)
            part = part._replace(after=last)
        yield from (moment(column.name.id) for column in columns)
