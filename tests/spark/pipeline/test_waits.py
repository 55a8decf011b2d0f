"""How long messages waited, counted once for each, and how attempts ended that nobody told the end of."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, MESSAGES, SCHEDULES
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import Life
from tests.spark.pipeline.snapshots import HOUR, Store


@pytest.fixture
def store(spark: SparkSession, tmp_path: Path) -> Store:
    return Store(spark, tmp_path / "lake")


def waits(store: Store) -> list[tuple[str, int]]:
    """By task, how long messages waited, in seconds; the tables agree on that."""
    told = [
        [(row["task"], row["waited"] // SECOND) for row in store.rows(table, "waited is not null")]
        for table in (MESSAGES, ATTEMPTS)
    ]
    assert sorted(told[0]) == sorted(told[1])
    by_task = Counter(task for task, _ in told[0])
    assert {
        row["member"]: row["objective_of"] for row in store.rows(FACTS, "grain = 'task' and objective_of > 0")
    } == by_task
    assert store.figures().lengths()["wait"].number == len(told[0])
    return sorted(told[0])


def test_a_message_waits_once_however_often_it_is_given_back_or_driven_again(store: Store) -> None:
    back = (
        Life("a", task="back", schedule="digest")
        .claimed(1)
        .released(2)
        .claimed(100)
        .released(101)
        .claimed(200)
        .done(201)
    )
    again = Life("b", task="again").claimed(3).failed(4, dies=True).redriven(50).claimed(60).done(61)
    store.add(back, again)
    store.run(1_000)
    assert waits(store) == [("again", 3), ("back", 1)]
    [digest] = store.rows(SCHEDULES)
    assert (digest["started"], digest["within_1s"], digest["within_1m"], digest["start_max"]) == (1, 1, 1, SECOND)


def test_the_wait_of_a_message_whose_first_worker_died_lasts_until_another_began(store: Store) -> None:
    store.add(
        Life("a", task="killed").claimed(1).lapsed(300).claimed(300, "host2:9:cc").failed(301).claimed(400).done(401)
    )
    store.run(1_000)
    assert waits(store) == [("killed", 300)]
    [task] = store.rows(FACTS, "grain = 'task'")
    assert (task["objective_of"], task["objective_met"], task["wait_max"], task["expired"]) == (1, 0, 300 * SECOND, 1)


def test_a_message_that_began_days_ago_does_not_begin_again(store: Store) -> None:
    message = Life("a", task="slow").claimed(1).failed(2)
    other = Life("b", task="other").claimed(1).released(2)
    store.add(message, other)
    store.run(100)
    store.events = [
        *message.claimed(120 * HOUR).done(120 * HOUR + 1).events,
        *other.claimed(120 * HOUR).done(120 * HOUR + 1).events,
    ]
    store.run(121 * HOUR)
    assert waits(store) == [("other", 1), ("slow", 1)]


def outcomes(store: Store) -> list[tuple[int, str]]:
    return sorted((row["attempt"], row["outcome"]) for row in store.rows(ATTEMPTS))


def test_an_attempt_at_a_message_that_was_deleted_meanwhile_is_cancelled_and_not_expired(store: Store) -> None:
    store.add(
        Life("a").claimed(1).cancelled(5), Life("b", task="killed").claimed(1).claimed(30, "host2:9:cc").cancelled(50)
    )
    store.run(1_000)
    assert outcomes(store) == [(1, "cancelled"), (1, "expired"), (2, "cancelled")]
    [day] = store.rows(FACTS, "grain = 'queue'")
    assert (day["attempts"], day["expired"], day["cancelled"]) == (3, 1, 2)
    assert (store.figures().counts()["cancelled"], store.figures().counts()["expired"]) == (2, 1)
