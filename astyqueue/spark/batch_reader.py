"""Batch reads of a queue: one partition for each row, or for each bucket of a day of history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from astyqueue.errors import BadSetting
from astyqueue.ids import moment
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import DeadFilter
from astyqueue.protocol.admin.browse import Walk
from astyqueue.protocol.admin.dead_letters import PAGE, dead_page
from astyqueue.protocol.history import LONGEST, HistorySlice, history_slices, read_history_slice
from astyqueue.protocol.layout.rows import Ring, time_shard_of
from astyqueue.protocol.steps import read
from astyqueue.spark.connections import Pace, ReadOnlyQueue, open_read_only
from astyqueue.spark.options import BatchReadOptions, Place
from astyqueue.spark.schemas import DEAD, ENTRIES, HISTORY, Record, Shaping, dead_record, found_record
from astyqueue.units import SECOND

#: Rows of one Arrow batch, and of one read of history.
_BATCH: Final = 4_000
#: Buckets of days that are probed in one read: a store has one time limit for each request, however many slices it has.
_PROBES: Final = 64
#: Microseconds after now up to which history is read by default: clocks of other machines may be ahead.
_AHEAD: Final = 3_600 * SECOND


class RowPartition(InputPartition):
    """One row of a queue."""

    def __init__(self, row: str) -> None:
        """`row` is its name in the store."""
        super().__init__(row)
        self.row = row


class PartPartition(InputPartition):
    """A slice of one row of history."""

    def __init__(self, part: HistorySlice) -> None:
        """`part` has the bounds of the slice."""
        super().__init__(tuple(part))
        self.part = part


class QueueReader(DataSourceReader):
    """Reads a table of a queue. There is no snapshot: each partition is read as it is when its task runs."""

    def __init__(self, options: BatchReadOptions, asked: StructType) -> None:
        """Read what the options select, with the columns `asked`."""
        self._options = options
        self._columns = asked

    def partitions(self) -> list[InputPartition]:
        """The rows or history slices that the options select; no other is read."""
        queue = open_read_only(self._options.place)
        if self._options.table == HISTORY:
            return [PartPartition(part) for part in _slices(queue, self._options)] or [_NOTHING]
        return [RowPartition(row) for row in _rows(queue.ring, self._options)] or [_NOTHING]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The contents of one row or history slice."""
        if isinstance(partition, PartPartition):
            return read_history(self._options.place, partition.part, asked=self._columns, rate=self._options.rate)
        if isinstance(partition, RowPartition):
            return self._read_row(partition.row)
        return iter(())

    def _read_row(self, row: str) -> Iterator[pa.RecordBatch]:
        shaping, pace = Shaping(self._columns), Pace(self._options.rate)
        pages = {ENTRIES: self._entries, DEAD: self._dead}[self._options.table]
        for records in _gathered(pages(open_read_only(self._options.place), row)):
            yield shaping.batch(records)
            pace.keep(len(records))

    def _entries(self, queue: ReadOnlyQueue, row: str) -> Iterator[list[Record]]:
        walk = Walk(queue.process, row, queue.ring.layout.priorities)
        while (page := queue.run(walk.page())) is not None:
            yield [found_record(found) for found in page if _within(self._options, found.id)]

    def _dead(self, queue: ReadOnlyQueue, row: str) -> Iterator[list[Record]]:
        where = DeadFilter(since=self._options.since, until=self._options.until)
        after: MessageId | None = None
        while True:
            page = queue.run(dead_page([row], queue.ring.layout.priorities, after=after, where=where, limit=PAGE))
            yield [dead_record(letter) for letter in page.letters]
            after = page.after
            if after is None:
                return


#: Spark wants a partition even where there is nothing to read.
_NOTHING: Final = InputPartition(None)


def read_history(
    place: Place, part: HistorySlice, *, asked: StructType, rate: float | None
) -> Iterator[pa.RecordBatch]:
    """The events of a history slice, at most `rate` a second."""
    shaping, pace, queue = Shaping(asked), Pace(rate), open_read_only(place)
    left: HistorySlice | None = part
    while left is not None:
        events, left = queue.run(read_history_slice(left, _BATCH))
        if events:
            yield shaping.events(events)
        pace.keep(len(events))


def _slices(queue: ReadOnlyQueue, options: BatchReadOptions) -> list[HistorySlice]:
    """The buckets of each selected day that are not empty; no event is kept for longer than `LONGEST`."""
    if options.rows:
        message = "option rows: history does not lie in the rows of a queue: select from it by since and until"
        raise BadSetting(message)
    now, kept = queue.process.now(), queue.settings.behaviour.history_kept_us
    since = now - kept if options.since is None else max(options.since, now - LONGEST)
    selected = history_slices(queue.ring, since, now + _AHEAD if options.until is None else options.until)
    there: list[HistorySlice] = []
    for first in range(0, len(selected), _PROBES):
        some = selected[first : first + _PROBES]
        found = queue.run(read(*[replace(part.slice(1), values=False) for part in some]))
        there += [part for part, columns in zip(some, found, strict=True) if columns]
    return there


def _gathered(pages: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """Pages joined to batches of at least _BATCH records; the last may have fewer."""
    batch: list[Record] = []
    for page in pages:
        batch += page
        if len(batch) >= _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _rows(ring: Ring, options: BatchReadOptions) -> list[str]:
    """The rows that may have selected messages: by their first due time; dead letters stay in the same row."""
    rows = ring.rows()
    if unknown := set(options.rows) - set(rows):
        message = f"option rows: queue {ring.queue!r} has no row {', '.join(sorted(unknown))}; its first is {rows[0]}"
        raise BadSetting(message)
    selected = [row for row in rows if not options.rows or row in options.rows]
    if options.table != ENTRIES or options.since is None or options.until is None:
        return selected
    shards = _time_shards(ring, options.since, options.until)
    return [row for row in selected if (shard := time_shard_of(row)) is None or shard in shards]


def _time_shards(ring: Ring, since: int, until: int) -> set[int]:
    """The time shards that messages due in this interval go to."""
    length, count = ring.layout.time_shard_us, ring.layout.time_shards
    first, last = since // length, max(since, until - 1) // length
    return {turn % count for turn in range(first, min(last, first + count) + 1)}


def _within(options: BatchReadOptions, id_: MessageId) -> bool:
    first_due = moment(id_.id)
    return (options.since is None or options.since <= first_due) and (
        options.until is None or first_due < options.until
    )
