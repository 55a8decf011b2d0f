from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from astyqueue import Message, connect
from astyqueue.clock import SystemClock, instant, microseconds
from astyqueue.errors import BadSetting
from astyqueue.model.event import Event, Kind
from astyqueue.protocol import steps
from astyqueue.protocol.history import DAY, record_events
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Steps
from astyqueue.spark import batch_reader
from astyqueue.spark.batch_reader import QueueReader, RowPartition
from astyqueue.spark.options import BatchReadOptions
from astyqueue.spark.schemas import schema_of
from astyqueue.store import Column, Slice
from astyqueue.units import SECOND
from tests.spark.frames import Frames, by
from tests.support.places import Place

pytestmark = pytest.mark.stores("sqlite", "cassandra")
NOW = SystemClock().now()


@pytest.mark.every_store
def test_a_message_is_read_with_all_that_was_sent(frames: Frames) -> None:
    queue = frames.queue(priorities=2)
    sent = queue.send({"to": ["ada", None]}, key="k", headers={"task": "mail"}, priority=1, delay="1h", expires="2h")
    row = frames.read("entries").collect()[0]
    found = queue.get(sent.id)
    assert (row.id, row.queue, row.row, row.priority) == (str(sent.id), "emails", sent.id.row, 1)
    assert (row.key, row.headers, json.loads(row.body)) == ("k", {"task": "mail"}, {"to": ["ada", None]})
    assert (row.standing, row.attempts, row.reason, row.problem) == ("delayed", 0, None, None)
    assert [row[name].replace(tzinfo=UTC) for name in ("due", "expires", "sent")] == [
        found.due,
        found.expires,
        found.sent,
    ]


def test_each_message_is_read_once_wherever_it_stands(frames: Frames) -> None:
    queue = frames.queue()
    queue.send_many([{"number": number} for number in range(6_000)])
    queue.send_many([Message({"number": 6_000 + number}, delay="1h") for number in range(50)])
    queue.receive(120)
    with queue.receive(30) as dying:
        for delivery in dying:
            delivery.reject("no such address")
    found = by(frames.read("entries").selectExpr("*", "get_json_object(body, '$.number') AS number"), "number")
    standings = [row.standing for row in found.values()]
    assert {standing: standings.count(standing) for standing in sorted(set(standings))} == {
        "dead": 30,
        "delayed": 50,
        "in_flight": 120,
        "waiting": 5_850,
    }
    assert {row.holder for row in found.values() if row.standing == "in_flight"} == {queue.core.process.name}
    assert {row.reason for row in found.values() if row.standing == "dead"} == {"no such address"}


@pytest.mark.every_store
def test_dead_letters_are_read_with_why_they_died(frames: Frames) -> None:
    queue = frames.queue()
    queue.send_many([{"number": number} for number in range(3)])
    with queue.receive(2) as dying:
        for delivery in dying:
            delivery.reject(f"bad number {delivery.attempt}")
    letters = {str(letter.id): letter for letter in queue.dead_letters()}
    rows = by(frames.read("dead"), "id")
    assert rows.keys() == letters.keys()
    for id_, row in rows.items():
        letter = letters[str(id_)]
        assert (row.kind, row.attempts, row.reason) == ("rejected", 1, "bad number 1")
        assert (row.died.replace(tzinfo=UTC), json.loads(row.body)) == (letter.at, letter.body)


@pytest.mark.every_store
def test_history_is_read_as_it_was_written(frames: Frames) -> None:
    queue = frames.queue()
    id_ = queue.send("hello").id
    days = [
        Event(NOW - days * 86_400 * SECOND, Kind.DONE, "emails", id_, attempt=1, sent=NOW - 10**12) for days in range(3)
    ]
    queue.run(record_events(Ring("emails", queue.settings.layout), days, 10**13))
    rows = frames.read("history").orderBy("at").collect()
    told = [event.flat() for event in sorted(days, key=lambda one: one.at)]
    assert [(row.kind, row.message, row.took, row.lost) for row in rows] == [
        (one["kind"], one["message"], one["took"], one["lost"]) for one in told
    ]
    assert [row.at.replace(tzinfo=UTC) for row in rows] == [instant(int(str(one["at"]))) for one in told]
    some = frames.read("history", since="36h", until=instant(NOW).isoformat())
    assert some.count() == 1


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of slices in each read that looks for days with events."""
    asked: list[int] = []

    def counting(*wanted: Slice) -> Steps[list[list[Column]]]:
        asked.append(len(wanted))
        return steps.read(*wanted)

    monkeypatch.setattr(batch_reader, "read", counting)
    return asked


def test_no_day_is_looked_into_whose_history_cannot_be_kept_any_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(monkeypatch)
    with connect(place.url) as connection:
        queue = connection.queue("emails", concurrency_shards=1)
        [begin, end] = [Event(NOW - age, Kind.FAILED, "emails", queue.send("x").id) for age in (399 * DAY, 60 * SECOND)]
        queue.run(record_events(queue.core.ring, [begin, end], 10**13))
    options = {"url": place.url, "queue": "emails", "table": "history", "since": "1970-01-01T00:00:00Z"}
    for until in ({}, {"until": instant(NOW + 300 * DAY).isoformat()}):
        asked.clear()
        assert len(QueueReader(BatchReadOptions.of(options | until), schema_of("history")).partitions()) == 2
        assert sum(asked) <= 402 + 301


def test_the_days_of_a_long_history_are_looked_into_a_few_at_a_time(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(monkeypatch)
    with connect(place.url) as connection:
        queue = connection.queue("emails", concurrency_shards=8)
        events = [Event(NOW - days * DAY, Kind.FAILED, "emails", queue.send("x").id) for days in (0, 9, 29)]
        queue.run(record_events(queue.core.ring, events, 10**13))
    reader = QueueReader(
        BatchReadOptions.of({"url": place.url, "queue": "emails", "table": "history", "since": "30d"}),
        schema_of("history"),
    )
    found = [one for partition in reader.partitions() for batch in reader.read(partition) for one in batch.to_pylist()]
    assert len(found) == 3
    assert sum(asked) >= 30 * 8
    assert max(asked) <= 64


def test_only_what_was_due_in_a_stretch_of_time_is_read(frames: Frames) -> None:
    queue = frames.queue(time_shards=8)
    queue.send_many([Message(hours, at=instant(NOW + hours * 3_600 * SECOND)) for hours in range(1, 6)])
    since, until = (instant(NOW + hours * 3_600 * SECOND).isoformat() for hours in (2, 4))
    within = frames.read("entries", since=since, until=until)
    assert sorted(row.body for row in within.collect()) == ["2", "3"]
    assert within.rdd.getNumPartitions() < frames.read("entries").rdd.getNumPartitions()


def rows_read(place: Place, **options: str) -> list[str]:
    """The rows that a read of `entries` has a task for."""
    given = {"url": place.url, "queue": "emails", **options}
    found = QueueReader(BatchReadOptions.of(given), schema_of("entries")).partitions()
    return [one.row for one in found if isinstance(one, RowPartition)]


@pytest.mark.parametrize(
    ("since", "until", "shards"),
    [
        ("08:00:00", "09:00:00", [0]),
        ("08:00:00", "09:00:00.000001", [0, 1]),
        ("08:59:59.999999", "09:00:00.000001", [0, 1]),
        ("09:00:00", "10:30:00", [1, 2]),
        ("11:30:00", "12:30:00", [0, 3]),
        ("10:00:00", "13:00:00", [0, 2, 3]),
        ("09:00:00", "13:00:00", [0, 1, 2, 3]),
        ("09:30:00", "23:30:00", [0, 1, 2, 3]),
    ],
)
def test_only_the_time_shards_that_hold_a_stretch_of_time_are_read(
    place: Place, since: str, until: str, shards: list[int]
) -> None:
    """Of four shards of an hour each, the one of eight o'clock is the first."""
    with connect(place.url) as connection:
        queue = connection.queue("emails", time_shards=4, concurrency_shards=2)
    assert queue.core.ring.time_shard(microseconds(datetime(2026, 11, 21, 8, tzinfo=UTC))) == 0
    first, last = (f"2026-11-21T{moment}Z" for moment in (since, until))
    assert rows_read(place, since=first, until=last) == [
        f"emails:{shard}:{number}" for shard in (*shards, "home") for number in (0, 1)
    ]
    assert rows_read(place, since=first, until=last, rows="emails:0:1, emails:2:1") == [
        f"emails:{shard}:1" for shard in shards if shard in {0, 2}
    ]
    assert rows_read(place, since=first) == rows_read(place, until=last) == queue.core.ring.rows()


def test_only_the_rows_that_were_asked_for_are_read(frames: Frames) -> None:
    queue = frames.queue(concurrency_shards=4, time_shards=1)
    queue.send_many([Message(number, key=f"key-{number}") for number in range(40)])
    row = f"{queue.name}:0:2"
    found = frames.read("entries", rows=row)
    assert found.rdd.getNumPartitions() == 1
    assert {one.row for one in found.collect()} == {row}
    assert found.count() == queue.counts().rows[row].total


def test_some_columns_are_enough(frames: Frames) -> None:
    frames.queue().send("hello")
    read = (
        frames.spark.read.format("astyqueue")
        .schema("body STRING, due TIMESTAMP")
        .options(url=frames.url, queue="emails")
        .load()
    )
    assert [row.body for row in read.collect()] == ['"hello"']


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"tabel": "dead"}, "has no option tabel"),
        ({"table": "deads"}, "is not one of entries, dead, history"),
        ({"rows": "emails:99:99"}, "has no row emails:99:99"),
        ({"since": "yesterday"}, "is not a moment"),
        ({"rate": "-1"}, "greater than zero"),
        ({"queue": "letters"}, "has no queue 'letters'"),
        ({"url": "memory://there"}, "in the memory of this process"),
    ],
)
def test_what_cannot_be_read_says_why(frames: Frames, options: dict[str, str], told: str) -> None:
    frames.queue().send("hello")
    given = {"url": frames.url, "queue": "emails"} | options
    with pytest.raises(AnalysisException, match=told):
        frames.spark.read.format("astyqueue").options(**given).load().collect()


def test_rows_of_a_queue_do_not_select_history(place: Place) -> None:
    with connect(place.url) as connection:
        row = connection.queue("emails").core.ring.rows()[0]
    reading = BatchReadOptions.of({"url": place.url, "queue": "emails", "table": "history", "rows": row})
    with pytest.raises(BadSetting, match="option rows: history does not lie in the rows of a queue"):
        QueueReader(reading, schema_of("history")).partitions()


def test_the_guide_lists_the_columns_of_each_table() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/spark.md").read_text()
    [told] = [line for line in page.splitlines() if line.startswith("| `history` | `queue`")]
    assert told.split("|")[2].replace("`", "").split() == schema_of("history").names
