from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record_events
from astyqueue.units import SECOND
from tests.spark.frames import Frames

pytestmark = pytest.mark.stores("sqlite", "cassandra")
COUNT = 300


def tell(queue: MessageQueue, ages: range, *, since: int) -> None:
    """Events so many minutes before a moment."""
    id_ = queue.send("hello").id
    events = [Event(since - minutes * 60 * SECOND, Kind.DONE, queue.name, id_, attempt=minutes) for minutes in ages]
    queue.run(record_events(queue.core.ring, events, 10**13))


def run(frames: Frames, folder: Path, **options: object) -> list[int]:
    """Follow all there is now; the rows of each batch that had any, and what was read stands in the folder."""
    follow = frames.follow(since="30d", **options).where("kind = 'done'")
    writing = (
        follow.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "out"))
    )
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def read(frames: Frames, folder: Path) -> list[int]:
    return sorted(row.attempt for row in frames.spark.read.parquet(str(folder / "out")).collect())


def test_a_stream_reads_each_event_once_and_goes_on_from_its_checkpoint(frames: Frames, tmp_path: Path) -> None:
    queue, now = frames.queue(), SystemClock().now()
    tell(queue, range(10, COUNT), since=now)
    assert sum(run(frames, tmp_path)) >= COUNT - 10
    assert read(frames, tmp_path) == list(range(10, COUNT))
    assert run(frames, tmp_path) == []
    begun = SystemClock().now()
    tell(queue, range(1), since=begun)
    run(frames, tmp_path)
    assert read(frames, tmp_path) == [0, *range(10, COUNT)]


@pytest.mark.full
def test_batches_are_as_great_as_was_asked(frames: Frames, tmp_path: Path) -> None:
    tell(frames.queue(concurrency_shards=1), range(10, 10 + COUNT), since=SystemClock().now())
    sizes = run(frames, tmp_path, rows_per_batch=100)
    assert sizes[:3] == [100, 100, 100]
    assert read(frames, tmp_path) == list(range(10, 10 + COUNT))


@pytest.mark.full
def test_what_is_younger_than_the_lag_waits(frames: Frames, tmp_path: Path) -> None:
    tell(frames.queue(), range(5, 15), since=SystemClock().now())
    run(frames, tmp_path, lag="10m")
    assert read(frames, tmp_path) == list(range(10, 15))


@pytest.mark.full
def test_only_history_can_be_followed(frames: Frames, tmp_path: Path) -> None:
    frames.queue()
    writing = (
        frames.follow(table="entries")
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
    )
    query = writing.start()
    with pytest.raises(StreamingQueryException, match="only history can be followed"):
        query.awaitTermination()
