"""Events that are told in another order than that in which they came about."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from astyqueue.spark.pipeline.enrich import marked
from astyqueue.spark.pipeline.messages import joined, messages
from astyqueue.spark.pipeline.transforms import attempts
from tests.spark.pipeline.histories import Life, frame


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
