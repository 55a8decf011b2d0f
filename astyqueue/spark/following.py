"""Following the history of a queue: a stream that can be read again from wherever it was.

An offset says for each bucket of history up to which moment its events were read. Events land a little after the moment
they tell of, so the stream stays behind by a `lag`: what lies further back than that is taken to be all there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from astyqueue.clock import SECOND
from astyqueue.ids import moment
from astyqueue.protocol.history import Part, parts
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.spark.opening import Looking, looking, time_at
from astyqueue.spark.options import Following
from astyqueue.spark.reading import PartPartition, read_history

#: For each bucket, by its number as text: the moment (microseconds) before which all was read.
Offset = dict[str, int]

#: A stream on which nothing happens has a batch this often: each costs whatever reads the stream.
_QUIET: Final = 3_600 * SECOND


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
        return {str(bucket): self._following.since for bucket in range(ring.layout.concurrency_shards)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much a batch is to have, if the options say."""
        return ReadAllAvailable() if self._following.most is None else ReadMaxRows(self._following.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end where history stands now."""
        self._until = self._horizon()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch may go from here; an offset never goes back."""
        until = self._horizon() if self._until is None else self._until
        queue = looking(self._following.place)
        if not _worth_a_batch(queue, start, until):
            return start
        if not isinstance(limit, ReadMaxRows):
            return {bucket: max(since, until) for bucket, since in start.items()}
        share = max(1, limit.max_rows // len(start))
        return {
            bucket: queue.run(_after(_of_bucket(queue.ring, int(bucket), (since, until)), share, until=max(since, until)))
            for bucket, since in start.items()
        }

    def reportLatestOffset(self) -> Offset | None:
        """Nothing: Spark knows what the last batch told it."""
        return None

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """The stretches between two offsets, for each bucket one a day; the same whenever they are asked for."""
        ring = looking(self._following.place).ring
        return [PartPartition(part) for part in _between(ring, start, end)]

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


def _worth_a_batch(queue: Looking, start: Offset, until: int) -> bool:
    """Whether anything happened, or so long nothing that going on saves looking at all of it again."""
    if until - min(start.values()) >= _QUIET:
        return True
    return any(
        queue.run(read_one(replace(part.slice(1), values=False))) for part in _between(queue.ring, start, dict.fromkeys(start, until))
    )


def _between(ring: Ring, start: Mapping[str, int], end: Mapping[str, int]) -> Iterator[Part]:
    for bucket, until in end.items():
        yield from _of_bucket(ring, int(bucket), (start[bucket], until))


def _of_bucket(ring: Ring, bucket: int, stretch: tuple[int, int]) -> list[Part]:
    """The parts of one bucket; those of a day follow each other by their buckets."""
    since, until = stretch
    return parts(ring, since, until)[bucket :: ring.layout.concurrency_shards] if since < until else []


def _after(parts_left: list[Part], most: int, *, until: int) -> Steps[int]:
    """The moment up to which there are about so many events in these parts, all of one moment together."""
    for part in parts_left:
        columns = yield from read_one(replace(part.slice(most), values=False))
        if len(columns) == most:
            return min(until, moment(columns[-1].name.id) + 1)
        most -= len(columns)
    return until
