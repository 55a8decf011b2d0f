"""The history of messages that Spark sends: each was sent once, whatever became of the task that sent it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from astyqueue import MessageQueue, connect
from astyqueue.clock import SystemClock, instant
from astyqueue.errors import StoreUnavailable
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record_events
from astyqueue.protocol.sending.idempotent import BatchRecord, begin_batch
from astyqueue.protocol.steps import Request, Send
from astyqueue.spark.batch_sender import Outbox
from astyqueue.spark.connections import Pace
from astyqueue.spark.history_stream import HistoryStream, Offset
from astyqueue.spark.options import StreamReadOptions, WriteOptions
from astyqueue.spark.row_mapping import Addressing
from astyqueue.spark.schemas import HISTORY, schema_of
from astyqueue.store import HISTORY as HISTORY_TABLE
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from tests.spark.frames import QUEUE, Frames, drained
from tests.support.places import Place

pytestmark = pytest.mark.stores("sqlite", "cassandra")
_COUNT: Final = 40


def told(queue: MessageQueue) -> Counter[str]:
    """How often the history tells of each message that it was sent."""
    return Counter(str(event.message) for event in queue.history(limit=10 * _COUNT) if event.kind is Kind.SENT)


def test_each_row_has_one_event_also_when_its_query_runs_again(frames: Frames) -> None:
    queue = frames.queue(history="all")
    frames.send(frames.rows(_COUNT // 2), query="nightly")
    sent = {str(found.id) for found in queue.peek(_COUNT)}
    assert told(queue) == dict.fromkeys(sent, 1)
    assert len(drained(queue)) == _COUNT // 2
    frames.send(frames.rows(_COUNT, tasks=3), query="nightly")
    sent |= {str(found.id) for found in queue.peek(_COUNT)}
    assert len(sent) == _COUNT
    assert told(queue) == dict.fromkeys(sent, 1)


def test_a_batch_of_a_stream_is_told_of_once(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue(history="all")
    frames.rows(_COUNT, tasks=1).write.parquet(str(tmp_path / "rows"))
    rows = frames.spark.readStream.schema(frames.rows(1).schema).parquet(str(tmp_path / "rows"))
    sink = rows.writeStream.format("astyqueue").options(url=frames.url, queue=QUEUE, id_column="id")
    for _ in range(2):
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()
    assert told(queue) == dict.fromkeys([str(found.id) for found in queue.peek(2 * _COUNT)], 1)
    assert sum(told(queue).values()) == _COUNT


class Forgetful(Faulty):
    """Takes messages, but no history as long as it is `away`."""

    away = True

    def perform(self, request: Request) -> object:
        if self.away and isinstance(request, Send) and request.batch.table == HISTORY_TABLE:
            message = "no history is taken now"
            raise StoreUnavailable(message)
        return super().perform(request)


def test_what_was_put_before_its_task_died_is_told_of_by_the_next(place: Place) -> None:
    store = Forgetful(place.store(SystemClock()))
    with MessageQueue.builder().store(store).name(QUEUE).history("all").build() as queue:
        with pytest.raises(StoreUnavailable):
            send(queue)
        assert (queue.counts().waiting, told(queue)) == (_COUNT, {})
        store.away = False
        assert send(queue) == 0
        assert told(queue) == dict.fromkeys([str(found.id) for found in queue.peek(_COUNT)], 1)
        assert sum(told(queue).values()) == _COUNT


HOUR: Final = 3_600 * SECOND


def test_a_load_that_takes_hours_is_seen_by_those_who_read_on_from_a_moment_ago(place: Place) -> None:
    with connect(place.url) as connection:
        queue = connection.queue(QUEUE, history="all", time_shards=1, concurrency_shards=2)
        now = SystemClock().now()
        assert send(queue, begun=now - 5 * HOUR) == _COUNT
        stream = HistoryStream(
            StreamReadOptions.of({"url": place.url, "queue": QUEUE, "lag": "0s"}), schema_of(HISTORY)
        )
        start: Offset = {"until": now, "queue": QUEUE, "buckets": 2}
        end = stream.latestOffset(start, ReadAllAvailable())
        found = [batch for partition in stream.partitions(start, end) for batch in stream.read(partition)]
        assert sum(batch.num_rows for batch in found) == _COUNT
        assert {moment for batch in found for moment in batch.column("sent").to_pylist()} == {instant(now - 5 * HOUR)}


def test_a_load_that_comes_again_the_next_day_is_told_of_once(place: Place) -> None:
    with connect(place.url) as connection:
        queue = connection.queue(QUEUE, history="all", time_shards=1, concurrency_shards=2)
        begun = SystemClock().now() - 25 * HOUR
        assert (send(queue, begun=begun), send(queue, begun=begun)) == (_COUNT, 0)
        assert told(queue) == dict.fromkeys([str(found.id) for found in queue.peek(_COUNT)], 1)
        [one] = queue.peek(1)
        drained(queue)
        assert send(queue, begun=begun) == 0
        assert [event.kind for event in queue.history(one.id) if event.kind is Kind.SENT] == [Kind.SENT]


def test_what_an_older_version_told_of_at_the_moment_of_its_batch_is_not_told_of_again(place: Place) -> None:
    with connect(place.url) as connection:
        queue = connection.queue(QUEUE, history="all", time_shards=1, concurrency_shards=2)
        begun = SystemClock().now() - HOUR
        queue.configure(history="none")
        send(queue, begun=begun)
        queue.configure(history="all")
        ids = [found.id for found in queue.peek(_COUNT)]
        queue.run(
            record_events(
                queue.core.ring, [Event(begun, Kind.SENT, QUEUE, id_, sent=begun, due=begun) for id_ in ids], 10**13
            )
        )
        assert send(queue, begun=begun) == 0
        assert told(queue) == dict.fromkeys(map(str, ids), 1)


def send(queue: MessageQueue, begun: int | None = None) -> int:
    """As a task of Spark does, with the same rows each time; how many were not there."""
    sinking = WriteOptions.of(
        {"url": "sqlite:///elsewhere.db", "queue": QUEUE, "id_column": "id"},
        StructType([StructField("id", LongType())]),
    )
    batch = (
        queue.run(begin_batch(queue.core.process, queue=QUEUE, source="nightly", batch=""))
        if begun is None
        else BatchRecord(begun, ended=False)
    )
    outbox = Outbox(queue, in_flight=1, pace=Pace(None))
    outbox.send(
        Addressing(queue.settings, sinking, source="nightly", begun=batch).of(
            pa.record_batch({"id": list(range(_COUNT))})
        )
    )
    return outbox.put
