"""How long messages waited, counted once for each, and how attempts ended that nobody told the end of."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from pyspark.sql import SparkSession

from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, MESSAGES, SCHEDULES
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import Life
from tests.spark.pipeline.snapshots import HOUR, Store, Tables

REPEATED, KILLED, SLOW, DELETED = "repeated", "killed", "slow", "deleted"
QUEUES: Final = (REPEATED, KILLED, SLOW, DELETED)


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """What two runs make of the messages of all tests here, five days apart."""
    store = Store(spark, tmp_path_factory.mktemp("waits") / "lake")
    back = Life("a", task="back", schedule="digest", queue=REPEATED).claimed(1).released(2).claimed(100).released(101)
    again = Life("b", task="again", queue=REPEATED).claimed(3).failed(4, dies=True).redriven(50).claimed(60).done(61)
    store.add(back.claimed(200).done(201), again)
    killed = Life("a", task="killed", queue=KILLED).claimed(1).lapsed(300).claimed(300, "host2:9:cc").failed(301)
    store.add(killed.claimed(400).done(401))
    killed_too = Life("b", task="killed", queue=DELETED).claimed(1).claimed(30, "host2:9:cc").cancelled(50)
    store.add(Life("a", queue=DELETED).claimed(1).cancelled(5), killed_too)
    slow = Life("a", task="slow", queue=SLOW).claimed(1).failed(2)
    other = Life("b", task="other", queue=SLOW).claimed(1).released(2)
    store.add(slow, other)
    store.run(1_000, queues=QUEUES)
    store.forget(SLOW)
    store.add(slow.claimed(120 * HOUR).done(120 * HOUR + 1), other.claimed(120 * HOUR).done(120 * HOUR + 1))
    store.run(121 * HOUR, queues=QUEUES)
    return store.tables


def waits(tables: Tables, queue: str) -> list[tuple[str, int]]:
    """By task, how long messages waited, in seconds; the tables agree on that."""
    in_messages, in_attempts = (
        sorted(
            (str(row["task"]), waited // SECOND)
            for row in tables.rows(table, queue=queue)
            if isinstance(waited := row["waited"], int)
        )
        for table in (MESSAGES, ATTEMPTS)
    )
    assert in_messages == in_attempts
    of_tasks = tables.rows(FACTS, queue=queue, grain="task")
    by_task = {row["member"]: row["objective_of"] for row in of_tasks if row["objective_of"]}
    assert by_task == Counter(task for task, _ in in_messages)
    assert tables.figures(queue).lengths()["wait"].number == len(in_messages)
    return in_messages


@pytest.mark.full
def test_a_message_waits_once_however_often_it_is_released_or_redriven(tables: Tables) -> None:
    assert waits(tables, REPEATED) == [("again", 3), ("back", 1)]
    [digest] = tables.rows(SCHEDULES, queue=REPEATED)
    assert (digest["started"], digest["within_1s"], digest["within_1m"], digest["start_max"]) == (1, 1, 1, SECOND)


@pytest.mark.full
def test_the_wait_of_a_message_whose_first_worker_died_lasts_until_another_began(tables: Tables) -> None:
    assert waits(tables, KILLED) == [("killed", 300)]
    [task] = tables.rows(FACTS, queue=KILLED, grain="task")
    assert (task["objective_of"], task["objective_met"], task["wait_max"], task["expired"]) == (1, 0, 300 * SECOND, 1)


@pytest.mark.full
def test_a_message_that_began_days_ago_does_not_begin_again(tables: Tables) -> None:
    assert waits(tables, SLOW) == [("other", 1), ("slow", 1)]


@pytest.mark.full
def test_an_attempt_at_a_message_that_was_deleted_meanwhile_is_cancelled_and_not_expired(tables: Tables) -> None:
    outcomes = sorted((row["attempt"], row["outcome"]) for row in tables.rows(ATTEMPTS, queue=DELETED))
    assert outcomes == [(1, "cancelled"), (1, "expired"), (2, "cancelled")]
    [day] = tables.rows(FACTS, queue=DELETED, grain="queue")
    assert (day["attempts"], day["expired"], day["cancelled"]) == (3, 1, 2)
    counts = tables.figures(DELETED).counts()
    assert (counts["cancelled"], counts["expired"]) == (2, 1)
