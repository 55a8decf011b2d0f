from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from astyqueue import MessageQueue, connect
from astyqueue.clock import SystemClock, instant
from astyqueue.errors import BadSetting
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.sending.idempotent import begin_batch
from astyqueue.protocol.steps import commit, read
from astyqueue.queue.runtime import new_client
from astyqueue.spark.options import WriteOptions
from astyqueue.spark.session import configured
from astyqueue.spark.writer import BatchSink, StreamSink, Written
from astyqueue.store import Batch, Slice
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.spark.frames import Frames, drained
from tests.support.places import Place

pytestmark = pytest.mark.stores("sqlite", "cassandra")
COUNT = 1_000
HOUR = 3_600 * SECOND


def bodies(queue: MessageQueue) -> list[object]:
    return [found.body for found in queue.peek(10 * COUNT, include="all")]


def numbers(found: list[object]) -> list[int]:
    return sorted(body["id"] for body in found if isinstance(body, dict))


@pytest.mark.every_store
def test_each_row_is_a_message_with_its_columns_as_the_body(frames: Frames) -> None:
    queue = frames.queue()
    frames.send(frames.rows(COUNT))
    assert sorted(bodies(queue), key=str) == sorted(
        ({"id": number, "name": f"user-{number}"} for number in range(COUNT)), key=str
    )


def test_columns_say_how_a_row_is_sent(frames: Frames) -> None:
    queue = frames.queue(priorities=3)
    due = instant(SystemClock().now() + 3_600 * SECOND)
    frame = frames.spark.createDataFrame(
        [("a", '{"to": [1, null]}', due, "k-1", 2, {"task": "mail"}), ("b", '"text"', None, None, None, None)],
        "id STRING, text STRING, due TIMESTAMP, key STRING, priority INT, headers MAP<STRING, STRING>",
    )
    frames.send(
        frame,
        json_column="text",
        due_column="due",
        key_column="key",
        priority_column="priority",
        headers_column="headers",
    )
    found = {json.dumps(one.body): one for one in queue.peek(10, include="all")}
    one, other = found['{"to": [1, null]}'], found['"text"']
    assert (one.due, one.key, one.priority, dict(one.headers)) == (due, "k-1", 2, {"task": "mail"})
    assert (other.standing.value, other.key, other.priority, dict(other.headers)) == ("waiting", None, 0, {})
    assert [message.id for message in queue.find("k-1")] == [one.id]


def test_a_body_may_be_one_column_and_a_delay_another(frames: Frames) -> None:
    queue = frames.queue()
    frames.send(
        frames.rows(3).selectExpr("id", "named_struct('name', name, 'at', DATE'2026-11-21') AS who", "3600 AS later"),
        body_column="who",
        delay_column="later",
    )
    assert sorted(bodies(queue), key=str) == [{"name": f"user-{number}", "at": "2026-11-21"} for number in range(3)]
    assert queue.counts().delayed == 3


def test_rows_may_be_calls_of_a_task(frames: Frames) -> None:
    queue = frames.queue()
    frames.send(frames.rows(1), task="shop.mail.welcome")
    [found] = queue.peek(2)
    assert (found.body, dict(found.headers)) == (
        {"args": [], "kwargs": {"id": 0, "name": "user-0"}},
        {"task": "shop.mail.welcome"},
    )


@pytest.mark.every_store
def test_a_query_that_runs_again_sends_what_is_missing(frames: Frames) -> None:
    queue = frames.queue()
    frames.send(frames.rows(COUNT // 2), query="nightly")
    assert len(drained(queue)) == COUNT // 2
    frames.send(frames.rows(COUNT, tasks=5), query="nightly")
    assert numbers(drained(queue)) == list(range(COUNT // 2, COUNT))
    frames.send(frames.rows(COUNT, tasks=1), query="nightly")
    assert drained(queue) == []


def written(queue: MessageQueue, url: str, count: int, **options: str) -> int:
    """What Spark has a sink do with a DataFrame in one task; how many messages were put."""
    told = {"url": url, "queue": queue.name, "id_column": "id", **options}
    sink = BatchSink(WriteOptions.of(told, StructType([StructField("id", LongType())])))
    done = sink.write(iter([pa.record_batch({"id": list(range(count))})]))
    sink.commit([done])
    assert isinstance(done, Written)
    return done.put


def forgotten(queue: MessageQueue) -> None:
    """As it is when the marks that settled messages leave are gone."""
    for row in queue.core.ring.rows():
        [marks] = queue.run(read(Slice(row, Type.REMOVED)))
        if marks:
            queue.run(commit(Batch(row, deletes=tuple(mark.name for mark in marks)), ()))


def test_a_query_that_was_sent_once_is_not_sent_again_however_long_after(place: Place) -> None:
    with connect(place.url) as connection:
        queue = connection.queue("emails", time_shards=2, concurrency_shards=2)
        assert written(queue, place.url, 20, query="welcome-7", once="true") == 20
        assert len(drained(queue)) == 20
        forgotten(queue)
        assert written(queue, place.url, 20, query="welcome-7", once="true") == 0
        assert written(queue, place.url, 20, query="welcome-8", once="true") == 20


def test_a_query_that_may_send_more_is_remembered_by_its_messages_only(place: Place) -> None:
    with connect(place.url) as connection:
        queue = connection.queue("emails", time_shards=2, concurrency_shards=2)
        assert (written(queue, place.url, 20, query="nightly"), written(queue, place.url, 30, query="nightly")) == (
            20,
            10,
        )
        drained(queue)
        forgotten(queue)
        assert written(queue, place.url, 20, query="nightly") == 20


def test_who_sends_more_under_a_name_of_long_ago_is_told_what_that_means(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    with connect(place.url) as connection:
        queue = connection.queue("emails", time_shards=2, concurrency_shards=2)
        yesterday = new_client(TimeMachine(instant(SystemClock().now() - 24 * HOUR)))
        queue.run(begin_batch(yesterday, queue="emails", source="nightly", batch=""))
        written(queue, place.url, 20, query="tonight")
        assert caplog.text == ""
        assert written(queue, place.url, 20, query="nightly") == 20
        assert "query_is_old queue=emails query=nightly" in caplog.text
        sent = [found.content.envelope.sent for found in queue.peek(40) if found.content.envelope]
        assert (len(sent), sent.count(yesterday.now())) == (40, 20)


def test_how_long_a_settled_row_is_remembered_is_a_setting_of_the_queue(place: Place) -> None:
    with connect(place.url) as connection:
        queue = connection.queue("emails", time_shards=1, concurrency_shards=1, deduplication="7d")
        written(queue, place.url, 1)
        [found] = queue.peek(1)
        assert found.content.envelope is not None
        assert found.content.envelope.repeatable == 7 * 86_400


def test_batches_that_are_sent_one_by_one_are_each_sent_once(frames: Frames, tmp_path: Path) -> None:
    queue, taken = frames.queue(), list[int]()
    frames.rows(COUNT // 10, tasks=1).write.parquet(str(tmp_path / "rows"))
    rows = frames.spark.readStream.schema(frames.rows(1).schema).parquet(str(tmp_path / "rows"))

    def send_twice(batch: DataFrame, number: int) -> None:
        for _ in range(2):
            frames.send(batch, query=f"welcome-{number}", once=True)
            taken.extend(numbers(drained(queue)))
            forgotten(queue)

    told = rows.writeStream.foreachBatch(send_twice).option("checkpointLocation", str(tmp_path / "checkpoint"))
    told.trigger(availableNow=True).start().awaitTermination()
    assert taken == list(range(COUNT // 10))


def test_another_query_sends_the_same_rows_anew(frames: Frames) -> None:
    queue = frames.queue()
    for _ in range(2):
        frames.send(frames.rows(10))
    assert queue.counts().waiting == 20


def failing_once(frame: DataFrame, marks: Path, some: Callable[[], bool]) -> DataFrame:
    """The same rows, but each task that hands them on fails once: in the middle, when `some` have been sent."""

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = pa.Table.from_batches(list(batches))
        mark = marks / str(rows.column("id")[0])
        first = not mark.exists()
        mark.touch()
        for start in range(0, rows.num_rows, 100):
            if first and start > rows.num_rows // 2:
                wait_for(some)
                message = "this task fails once"
                raise RuntimeError(message)
            yield from rows.slice(start, 100).to_batches()

    return frame.mapInArrow(hand_on, frame.schema)


def wait_for(some: Callable[[], bool]) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + 60 * SECOND
    while not some():
        assert clock.monotonic() < deadline
        Wakeup(clock).wait(clock.monotonic() + SECOND // 20)


def anything_in(url: str) -> Callable[[], bool]:
    def anything() -> bool:
        with connect(url) as connection:
            return bool(connection.queue("emails").peek(1, include="all"))

    return anything


def long_rows(frames: Frames) -> DataFrame:
    """So many and so long that some are sent before the half of a task's rows has been handed on."""
    return frames.rows(4 * COUNT, tasks=4).selectExpr("*", "repeat('x', 500) AS padding")


def test_a_task_that_failed_in_the_middle_is_tried_again_and_each_row_sent_once(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue(time_shards=1, concurrency_shards=1)
    marks = tmp_path / "marks"
    marks.mkdir()
    with configured(frames.spark, {"spark.sql.execution.arrow.maxRecordsPerBatch": "100"}):
        frames.send(failing_once(long_rows(frames), marks, anything_in(frames.url)))
    assert len(list(marks.iterdir())) == 4
    assert numbers(bodies(queue)) == list(range(4 * COUNT))


@pytest.mark.full
def test_each_row_is_delivered_once_while_tasks_fail_and_consumers_run(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue(time_shards=1, concurrency_shards=1)
    marks, handed_out = tmp_path / "marks", tmp_path / "handed out"
    marks.mkdir()
    seen: Counter[int] = Counter()
    ended = Event()

    def consume() -> None:
        while not ended.is_set():
            with queue.receive(50, wait="100ms") as batch:
                seen.update(numbers([delivery.body for delivery in batch]))
            if seen:
                handed_out.touch()

    consumers = [Thread(target=consume) for _ in range(2)]
    for consumer in consumers:
        consumer.start()
    frames.send(failing_once(long_rows(frames), marks, handed_out.exists))
    ended.set()
    for consumer in consumers:
        consumer.join()
    seen.update(numbers(drained(queue)))
    assert len(list(marks.iterdir())) == 4
    assert seen == dict.fromkeys(range(4 * COUNT), 1)


@pytest.mark.parametrize(("rows", "depth"), [pytest.param(COUNT, 300, marks=pytest.mark.full), (COUNT // 10, 30)])
def test_the_sink_waits_while_the_queue_is_full(frames: Frames, rows: int, depth: int) -> None:
    queue = frames.queue()
    waiting: list[int] = []
    seen: list[object] = []

    def consume() -> None:
        clock = SystemClock()
        deadline = clock.monotonic() + 120 * SECOND
        while len(seen) < rows and clock.monotonic() < deadline:
            waiting.append(queue.counts().waiting)
            with queue.receive(100, wait="100ms") as batch:
                seen.extend(delivery.body for delivery in batch)

    consumer = Thread(target=consume)
    consumer.start()
    frames.send(frames.rows(rows, tasks=1), max_depth=depth)
    consumer.join()
    assert numbers(seen) == list(range(rows))
    assert max(waiting) <= depth


def test_a_row_without_an_id_is_refused_by_name(frames: Frames) -> None:
    frames.queue()
    with pytest.raises(PythonException, match="a row has no id"):
        frames.send(frames.spark.createDataFrame([(None, "x")], "id STRING, name STRING"))


@pytest.mark.full
def test_a_row_that_cannot_be_a_message_is_named(frames: Frames) -> None:
    frames.queue()
    with pytest.raises(PythonException, match="the row with id 'r-7' cannot be sent: body is"):
        frames.send(frames.spark.createDataFrame([("r-7", "x" * 300_000)], "id STRING, name STRING"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"id_column": ""}, "needs the option 'id_column'"),
        ({"id_column": "name_"}, "there is no such column"),
        ({"due_column": "name"}, "is string and must be timestamp"),
        ({"body_column": "name", "json_column": "name"}, "give body_column or json_column, not both"),
        ({"max_in_flight": "0"}, "is not a whole number from 1 up"),
        ({"colour": "red"}, "has no option colour"),
        ({"once": "true"}, "name what is sent once"),
    ],
)
def test_what_cannot_be_sent_says_why_before_anything_is(frames: Frames, options: dict[str, str], told: str) -> None:
    queue = frames.queue()
    with pytest.raises(AnalysisException, match=told):
        frames.send(frames.rows(10), **options)
    assert queue.counts().total == 0


def test_a_queue_is_not_written_over(frames: Frames) -> None:
    told = {"url": frames.url, "queue": "emails", "id_column": "id"}
    with pytest.raises(AnalysisException, match="never overwritten"):
        frames.rows(1).write.format("astyqueue").mode("overwrite").options(**told).save()


@pytest.mark.full
def test_a_queue_is_made_only_if_that_is_asked(frames: Frames) -> None:
    with pytest.raises(PythonException, match="has no queue 'letters'"):
        frames.send(frames.rows(1), queue="letters")
    frames.send(frames.rows(1), queue="letters", create="true")
    assert frames.connection.queue("letters").counts().waiting == 1


def test_a_stream_takes_no_name_of_a_query_beside_that_in_its_checkpoint(place: Place) -> None:
    told = {"url": place.url, "queue": "emails", "id_column": "id", "query": "nightly"}
    with pytest.raises(BadSetting, match="identified by its checkpoint: leave out the options query and once"):
        StreamSink(WriteOptions.of(told, StructType([StructField("id", LongType())])))


def test_rows_of_a_stream_whose_batch_spark_does_not_name_are_not_sent(place: Place) -> None:
    told = {"url": place.url, "queue": "emails", "id_column": "id"}
    with connect(place.url) as connection:
        queue = connection.queue("emails")
        sink = StreamSink(WriteOptions.of(told, StructType([StructField("id", LongType())])))
        with pytest.raises(BadSetting, match=r"does not set the property sql\.streaming\.queryId .* nothing was sent"):
            sink.write(iter([pa.record_batch({"id": [1]})]))
        assert queue.counts().total == 0


def test_timestamps_are_sent_from_a_session_whose_time_zone_only_java_knows(frames: Frames) -> None:
    queue = frames.queue()
    due = instant(SystemClock().now() // SECOND * SECOND + HOUR)
    moment, text = f"TIMESTAMP'{due:%Y-%m-%d %H:%M:%S}Z'", f"{due:%Y-%m-%dT%H:%M:%SZ}"
    with configured(frames.spark, {"spark.sql.session.timeZone": "GMT+3"}):
        columns = (f"{moment} AS due", f"{moment} AS at", f"array(named_struct('at', {moment})) AS more")
        frames.send(frames.rows(1, tasks=1).selectExpr("id", *columns), due_column="due")
    [found] = queue.peek(2, include="all")
    assert (found.due, found.body) == (due, {"id": 0, "at": text, "more": [{"at": text}]})
