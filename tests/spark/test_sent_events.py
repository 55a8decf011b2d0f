"""What the history tells of messages that Spark sends: that each was sent, once, whatever became of the task that sent it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.model.event import Kind
from astyqueue.protocol.source import begin
from astyqueue.protocol.steps import Request, Send
from astyqueue.spark.addressing import Addressing
from astyqueue.spark.opening import Pace
from astyqueue.spark.outbox import Outbox
from astyqueue.spark.sinkoptions import Sinking
from astyqueue.store import HISTORY
from astyqueue.testing.faults import Faulty
from tests.places import Place
from tests.spark.frames import QUEUE, Frames, drained

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
        sink.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    assert told(queue) == dict.fromkeys([str(found.id) for found in queue.peek(2 * _COUNT)], 1)
    assert sum(told(queue).values()) == _COUNT


class Forgetful(Faulty):
    """Takes messages, but no history as long as it is `away`."""

    away = True

    def perform(self, request: Request) -> object:
        if self.away and isinstance(request, Send) and request.batch.table == HISTORY:
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


def send(queue: MessageQueue) -> int:
    """As a task of Spark does, with the same rows each time; how many were not there."""
    sinking = Sinking.of({"url": "sqlite:///elsewhere.db", "queue": QUEUE, "id_column": "id"}, StructType([StructField("id", LongType())]))
    begun = queue.run(begin(queue.core.process, queue=QUEUE, source="nightly", batch=""))
    outbox = Outbox(queue, in_flight=1, pace=Pace(None))
    outbox.send(Addressing(queue.settings, sinking, source="nightly", begun=begun).of(pa.record_batch({"id": list(range(_COUNT))})))
    return outbox.put
