from __future__ import annotations

import json
import math
import stat
from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import BadInput
from astyqueue.model.views import RedriveReport
from astyqueue.spark.redrive import RedriveByQuery
from tests.spark.frames import Frames

pytestmark = pytest.mark.stores("sqlite", "cassandra")


def bury(queue: MessageQueue, reasons: list[str]) -> dict[str, str]:
    """Dead letters with these reasons, by their ids."""
    queue.send_many([{"reason": reason} for reason in reasons], headers={"tenant": "acme"})
    while batch := queue.receive(len(reasons)):  # one row at a time
        for delivery in batch:
            assert isinstance(delivery.body, dict)
            delivery.reject(str(delivery.body["reason"]))
    return {str(letter.id): letter.reason for letter in queue.dead_letters(1_000)}


def test_a_dry_run_counts_and_shows_and_changes_nothing(frames: Frames) -> None:
    queue = frames.queue()
    bury(queue, ["timeout 1", "timeout 2", "no such address"])
    chosen = RedriveByQuery(
        frames.spark, frames.url, "emails", where="reason LIKE 'timeout%' AND headers['tenant'] = 'acme'"
    ).look()
    assert (chosen.total, chosen.kinds) == (2, {"rejected": 2})
    assert sorted(str(letter["reason"]) for letter in chosen.sample) == ["timeout 1", "timeout 2"]
    assert queue.counts().dead == 3


@pytest.mark.every_store
def test_what_a_query_chooses_is_put_back_in_place_and_recorded(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    ids = bury(queue, [f"timeout {number}" for number in range(120)] + ["no such address"])
    query = RedriveByQuery(frames.spark, frames.url, "emails", where="reason LIKE 'timeout%'")
    report = query.carry_out(tmp_path / "audit.jsonl", rate=2_000)
    assert (report.redriven, report.left) == (120, 0)
    waiting = queue.peek(200)
    assert {str(found.id) for found in waiting} == {id_ for id_, reason in ids.items() if reason != "no such address"}
    assert queue.counts().dead == 1
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert {line["where"] for line in lines} == {"reason LIKE 'timeout%'"}
    assert sum(len(line["ids"]) for line in lines if line["what"] == "redriving") == 120
    assert sum(line["put_back"] for line in lines if line["what"] == "redriven") == 120
    assert [event.kind.value for event in queue.history(message=waiting[0].id)].count("redriven") == 1


def test_a_redrive_that_is_cancelled_stops_between_two_commits(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    bury(queue, ["timeout"] * 30)
    done: list[RedriveReport] = []
    query = RedriveByQuery(frames.spark, frames.url, "emails", where="true")
    report = query.carry_out(tmp_path / "audit.jsonl", rate=100, progress=done.append, cancelled=lambda: bool(done))
    assert report.redriven == 10
    assert queue.counts().dead == 20


def test_a_redrive_at_an_infinite_rate_does_not_wait(frames: Frames, tmp_path: Path) -> None:
    queue = frames.queue()
    bury(queue, ["timeout"])
    query = RedriveByQuery(frames.spark, frames.url, "emails", where="true")
    assert query.carry_out(tmp_path / "audit.jsonl", rate=math.inf).redriven == 1


def test_a_condition_that_spark_does_not_understand_is_refused(frames: Frames) -> None:
    frames.queue()
    with pytest.raises(BadInput, match="their columns are id, queue"):
        RedriveByQuery(frames.spark, frames.url, "emails", where="colour = 'red'")
