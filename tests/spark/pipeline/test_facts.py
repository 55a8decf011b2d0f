"""Small histories, and what they come to, computed by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from astyqueue.model.event import Kind
from astyqueue.spark.pipeline.enrich import marked
from astyqueue.spark.pipeline.messages import joined, messages, with_messages
from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, FAILURES, MESSAGES, SCHEDULES
from astyqueue.spark.pipeline.slo import Objectives
from astyqueue.spark.pipeline.transforms import approximate_percentiles, attempts, facts, failures, schedules
from tests.spark.pipeline.histories import QUEUE, Life, fired, frame, told

SECOND = 1_000_000
NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    """Messages that fare in every way there is."""
    some = told(
        Life("quick", tenant="acme").claimed(1).done(3),
        Life("twice", 1, tenant="acme").claimed(2).failed(3).claimed(66).done(67),
        Life("doomed", 2, task="report")
        .claimed(4)
        .failed(5, "KeyError: 'a'")
        .claimed(7, "host2:9:cc")
        .failed(8, "KeyError: 'b'", dies=True),
        Life("killed", 3).claimed(4).lapsed(10).claimed(11, "host2:9:cc").done(12),
        Life("no good", 4).claimed(14).rejected(15, "no such address"),
        Life("put off", 5).claimed(6).released(7).claimed(8).done(9),
        Life("in hand", 6).claimed(7),
        Life("gone", 7).cancelled(8),
        Life("double", 8, row="emails:0:1").claimed(9).done(10).claimed(40).done(41),
        Life("late receipt", 9).claimed(10).done(11, lost=True),
    )
    occurrences = [
        event
        for occurrence in (fired(60.5, 60), fired(122, 120))
        for event in (occurrence, replace(occurrence, kind=Kind.SENT, key=None, slot=None))
    ]
    known = marked(frame(spark, [*some, *occurrences]))
    return with_messages(known, messages(known)).persist()


def rows(frame: DataFrame, *columns: str) -> dict[object, Row]:
    """Rows by what stands in these columns."""
    return {
        row[columns[0]] if len(columns) == 1 else tuple(row[name] for name in columns): row for row in frame.collect()
    }


@pytest.fixture(scope="module")
def found(events: DataFrame) -> dict[object, Row]:
    return rows(facts(events, Objectives.read(["wait<=2s"])), "grain", "member")


def test_a_day_has_counts_of_events_and_of_attempts_by_their_ends(found: dict[object, Row]) -> None:
    day = found["queue", QUEUE]
    assert {name: day[name] for name in ("sent", "done", "dead", "retried", "released", "redriven", "cancelled")} == {
        "sent": 12,
        "done": 5,
        "dead": 2,
        "retried": 2,
        "released": 1,
        "redriven": 0,
        "cancelled": 1,
    }
    assert (day["attempts"], day["failed"], day["expired"], day["day"]) == (12, 3, 1, date(2026, 3, 14))


def test_percentiles_lie_between_the_two_nearest_values(found: dict[object, Row]) -> None:
    day = found["queue", QUEUE]
    # Handlers first began after 1 1 2 8 10 1 1 seconds; the first worker of one was killed, and one was released and
    # began again.
    assert (day["wait_p50"], day["wait_max"]) == (1 * SECOND, 10 * SECOND)
    assert day["wait_p95"] == pytest.approx((8 + 0.7 * 2) * SECOND)
    assert (day["run_p50"], day["run_max"], day["ran"]) == (1 * SECOND, 2 * SECOND, 12 * SECOND)
    assert (day["end_p50"], day["end_max"]) == (9 * SECOND, 66 * SECOND)


def test_an_objective_is_met_by_those_that_are_no_longer_than_it_says(found: dict[object, Row]) -> None:
    day = found["queue", QUEUE]
    assert (day["objective"], day["objective_of"], day["objective_met"]) == ("wait<=2s", 7, 5)


def test_a_queue_with_an_objective_of_its_own_is_judged_by_that(spark: SparkSession) -> None:
    some = told(*(Life("slow", queue=queue).claimed(3).done(10) for queue in (QUEUE, "letters", "calls")))
    levels = Objectives.read(["wait<=2s", "letters:end<=10s", "calls:run<=6s"])
    of_queues = facts(marked(frame(spark, some)), levels).where("grain = 'queue'").collect()
    judged = {row["queue"]: (row["objective"], row["objective_of"], row["objective_met"]) for row in of_queues}
    assert judged == {QUEUE: ("wait<=2s", 1, 0), "letters": ("end<=10s", 1, 1), "calls": ("run<=6s", 1, 0)}


def test_each_minute_machine_tenant_task_and_row_has_its_own(found: dict[object, Row]) -> None:
    minute = found["minute", "2026-03-14T12:01Z"]
    assert minute["began"].timestamp() == (NOON + timedelta(minutes=1)).timestamp()  # Spark hands out local time
    assert (minute["sent"], minute["done"]) == (1, 1)
    assert (found["host", "host2"]["done"], found["host", "host2"]["dead"], found["host", "web1"]["sent"]) == (1, 1, 10)
    assert (found["tenant", "acme"]["ran"], found["tenant", "acme"]["done"]) == (4 * SECOND, 2)
    assert (found["task", "report"]["dead"], found["task", "report"]["failed"]) == (1, 2)
    of_rows = [(row["member"], row["sent"]) for row in found.values() if row["grain"] == "row"]
    assert sorted(of_rows) == [("emails:0:0", 9), ("emails:0:1", 1), ("emails:home:0", 2)]


def test_approximate_percentiles_of_few_values_are_values_that_occur(events: DataFrame) -> None:
    found = rows(facts(events, Objectives(), approximate_percentiles), "grain", "member")
    assert found["queue", QUEUE]["wait_p95"] == 10 * SECOND


def test_each_message_is_one_row_with_its_last_state(events: DataFrame) -> None:
    found = messages(events).collect()
    states = sorted((row["state"], row["attempts"], (row["took"] or 0) // SECOND) for row in found)
    # In the order of sending: the late receipt was claimed, and nothing after that came about.
    assert states == [
        ("cancelled", 0, 0),
        ("dead", 1, 11),
        ("dead", 2, 6),
        ("done", 1, 3),
        ("done", 1, 4),
        ("done", 2, 9),
        ("done", 2, 33),
        ("done", 2, 66),
        ("in flight", 1, 0),
        ("in flight", 1, 0),
        ("waiting", 0, 0),
        ("waiting", 0, 0),
    ]


@pytest.mark.full
def test_rows_of_one_message_merge_to_the_same_in_any_order(events: DataFrame) -> None:
    early, late = events.where("at < '2026-03-14 12:00:10'"), events.where("at >= '2026-03-14 12:00:10'")
    whole = sorted(map(str, messages(events).collect()))
    again = messages(early).unionByName(messages(late)).unionByName(messages(late))
    assert sorted(map(str, joined(again).collect())) == whole


def test_an_attempt_has_the_outcome_of_its_end_and_is_expired_or_open_without_one(events: DataFrame) -> None:
    found = Counter(
        (row["outcome"], row["attempt"], row["ran"] and row["ran"] // SECOND) for row in attempts(events).collect()
    )
    assert found == {
        ("done", 1, 2): 1,
        ("done", 1, 1): 2,
        ("done", 2, 1): 3,
        ("failed", 1, 1): 2,
        ("failed", 2, 1): 1,
        ("dead", 1, 1): 1,
        ("released", 1, 1): 1,
        ("expired", 1, None): 1,
        ("open", 1, None): 2,
    }


def test_failures_of_one_cause_are_one_row(events: DataFrame) -> None:
    found = rows(failures(events), "task", "failure")
    report = found["report", "KeyError: <quoted>"]
    assert (report["times"], report["messages"], report["dead"], report["hosts"], report["example"]) == (
        2,
        1,
        1,
        2,
        "KeyError: 'b'",
    )
    assert (found["welcome", "no such address"]["times"], found["welcome", "no such address"]["dead"]) == (1, 1)
    assert found["welcome", "its lease ran out"]["dead"] == 0


def test_a_schedule_is_late_by_what_lies_between_an_occurrence_and_its_firing(events: DataFrame) -> None:
    [digest] = schedules(events).collect()
    assert (digest["schedule"], digest["fired"], digest["late_p50"], digest["late_max"]) == (
        "digest",
        2,
        1.25 * SECOND,
        2 * SECOND,
    )
    assert digest["started"] == 0


def test_tables_have_the_columns_that_are_declared(events: DataFrame) -> None:
    made = {
        ATTEMPTS: attempts(events),
        MESSAGES: messages(events),
        FACTS: facts(events, Objectives()),
        FAILURES: failures(events),
        SCHEDULES: schedules(events),
    }
    for table, frame_ in made.items():
        assert table.checked(frame_, "here").columns == table.schema.names


@pytest.mark.full
def test_a_claim_that_is_told_after_its_end_has_ended(spark: SparkSession) -> None:
    quick = Life("a").claimed(1).done(1.1)
    [sent, claimed, done] = quick.events
    late = replace(claimed, at=done.at + 1_000)
    known = marked(frame(spark, [sent, done, late]))
    assert [row["outcome"] for row in attempts(known).collect()] == ["done"]
    assert [row["state"] for row in messages(known).collect()] == ["done"]
    # One run has read the end, the next one the claim, which then seems to be open.
    torn = messages(marked(frame(spark, [sent, done]))).unionByName(messages(marked(frame(spark, [sent, late]))))
    assert [row["state"] for row in joined(torn).collect()] == ["done"]


@pytest.mark.full
def test_a_lease_that_ran_out_is_told_after_the_message_was_claimed_again_and_done(spark: SparkSession) -> None:
    life = Life("a").claimed(1).released(1)  # the release is not told: its worker is dead
    life.events.pop()
    life.claimed(5, "host2:9:cc").done(5.1)
    lapse = Life("a").claimed(1).lapsed(5.2).events[-1]
    known = marked(frame(spark, [*life.events, lapse]))
    found = {row["outcome"]: row for row in attempts(known).collect()}
    assert sorted(found) == ["done", "expired"]
    assert (found["expired"]["host"], found["done"]["host"]) == ("host1", "host2")
    assert [row["state"] for row in messages(known).collect()] == ["done"]


def test_a_message_that_is_claimed_at_once_is_in_flight(spark: SparkSession) -> None:
    lives = [Life("sent"), Life("released").claimed(1).released(2), Life("failed").claimed(1).failed(2)]
    waiting = [row["state"] for row in messages(marked(frame(spark, told(*lives)))).collect()]
    for life, at in zip(lives, (0.1, 2.1, 2.1), strict=True):
        life.claimed(at, "host2:9:cc")
    claimed = [row["state"] for row in messages(marked(frame(spark, told(*lives)))).collect()]
    assert (waiting, claimed) == (["waiting"] * 3, ["in flight"] * 3)


def test_an_event_of_a_kind_that_is_not_known_does_not_change_the_state(spark: SparkSession) -> None:
    life = Life("a").claimed(1).done(2)
    newer = replace(life.events[-1], at=life.events[-1].at + SECOND, kind=Kind.UNKNOWN, raw="99 {}")
    [row] = messages(marked(frame(spark, [*life.events, newer]))).collect()
    assert (row["state"], row["event"]) == ("done", "done")
