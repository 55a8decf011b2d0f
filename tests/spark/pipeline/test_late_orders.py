"""Commands on messages of earlier days, and what the tables know of messages whose events do not tell it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from pyspark.sql import SparkSession

from astyqueue.spark.pipeline.batch import Span
from astyqueue.spark.pipeline.schemas import ATTEMPTS, FACTS, FAILURES, MESSAGES
from tests.spark.pipeline.histories import DAY, NOON, Life
from tests.spark.pipeline.snapshots import HOUR, Store, Tables

DELETED, REDRIVEN, SOON, ALL_LOST, BATCH = "deleted", "redriven", "soon", "all-lost", "batch"
QUEUES: Final = (DELETED, REDRIVEN, SOON, ALL_LOST, BATCH)
FIVE_DAYS: Final = 120 * HOUR

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The tables after runs on the third and on the sixth day, and one that reads the first again."""
    store = Store(spark, tmp_path_factory.mktemp("orders") / "lake")
    deleted = Life("a", queue=DELETED, tenant="acme", task="bill")
    dead = Life("a", queue=REDRIVEN, tenant="acme", task="bill").claimed(1).rejected(2, "no such address")
    failed = Life("a", queue=ALL_LOST).claimed(1).failed(2).events[2:]
    store.events += failed
    store.add(deleted, dead, Life("a", queue=SOON, tenant="acme", task="bill").cancelled(5))
    store.add(Life("first", queue=BATCH).claimed(1).done(2))
    store.run(48 * HOUR, queues=QUEUES)
    deleted.cancelled(FIVE_DAYS)
    dead.redriven(FIVE_DAYS)
    store.events += [deleted.events[-1], dead.events[-1]]
    store.add(Life("second", 3, queue=BATCH).sent_told(FIVE_DAYS))
    store.run(FIVE_DAYS + HOUR, queues=QUEUES)
    store.forget(ALL_LOST)
    store.events += [replace(event, lost=True) for event in failed]
    store.run(FIVE_DAYS + 2 * HOUR, Span(since=NOON - DAY // 2, until=NOON + DAY // 2), queues=QUEUES)
    return store.tables


def states(tables: Tables, queue: str) -> list[object]:
    return [row["state"] for row in tables.rows(MESSAGES, queue=queue)]


def test_a_message_that_is_deleted_days_after_it_was_sent_waits_no_longer(tables: Tables) -> None:
    assert states(tables, DELETED) == ["cancelled"]
    assert tables.figures(DELETED).counts()["waiting"] == 0


def test_a_dead_letter_that_is_redriven_days_after_it_was_sent_waits_again(tables: Tables) -> None:
    [row] = tables.rows(MESSAGES, queue=REDRIVEN)
    assert (row["state"], row["event"], row["task"], row["failure"]) == (
        "waiting",
        "redriven",
        "bill",
        "no such address",
    )


@pytest.mark.parametrize(("queue", "count"), [(SOON, "cancelled"), (DELETED, "cancelled"), (REDRIVEN, "redriven")])
def test_a_command_on_a_message_counts_for_its_task_and_its_tenant(tables: Tables, queue: str, count: str) -> None:
    for grain, member in (("task", "bill"), ("tenant", "acme")):
        found = tables.rows(FACTS, queue=queue, grain=grain, member=member)
        assert [row[count] for row in found if row[count]] == [1]


def test_a_message_that_was_sent_with_a_batch_of_earlier_days_stays_when_those_are_read_again(tables: Tables) -> None:
    assert sorted(map(str, states(tables, BATCH))) == ["done", "waiting"]


def test_a_day_on_which_nothing_happened_after_all_has_no_rows(tables: Tables) -> None:
    assert [tables.rows(table, queue=ALL_LOST) for table in (ATTEMPTS, FACTS, FAILURES, MESSAGES)] == [[]] * 4
