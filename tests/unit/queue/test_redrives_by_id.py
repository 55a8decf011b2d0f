"""Dead letters that are put back by their ids: at most at a rate, until it is cancelled, and with progress."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from astyqueue import MessageQueue
from astyqueue.errors import NotFound
from astyqueue.model.envelope import MessageId
from astyqueue.model.views import RedriveReport
from astyqueue.queue.builder import QueueBuilder
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW


@pytest.fixture
def queue(builder: QueueBuilder[MessageQueue]) -> Iterator[MessageQueue]:
    with builder.options(**ONE_ROW).build() as opened:
        yield opened


def letters(queue: MessageQueue, count: int) -> list[MessageId]:
    """Make so many dead letters; their ids."""
    queue.send_many(range(count))
    for delivery in queue.receive(count):
        delivery.reject("no")
    return [letter.id for letter in queue.dead_letters(count)]


def test_no_more_are_put_back_in_a_second_than_the_rate_says(queue: MessageQueue, clock: TimeMachine) -> None:
    ids, begun, moments = letters(queue, 3), clock.monotonic(), list[int]()

    def progress(_: RedriveReport) -> None:
        moments.append(clock.monotonic() - begun)

    with ThreadPoolExecutor(1) as threads:
        redrive = threads.submit(queue.redrive, ids, rate=1, progress=progress)
        for _ in range(20):
            clock.when_waiting(1)
            clock.advance("100ms")
        assert redrive.result(timeout=10) == RedriveReport(redriven=3)
    assert moments == [0, SECOND, 2 * SECOND]


def test_a_redrive_that_is_cancelled_after_a_commit_does_no_other(queue: MessageQueue) -> None:
    ids, reports = letters(queue, 3), list[RedriveReport]()
    report = queue.redrive(ids, rate=10, progress=reports.append, cancelled=lambda: bool(reports))
    assert reports == [report] == [RedriveReport(redriven=1)]
    assert (queue.counts().waiting, queue.counts().dead) == (1, 2)
    assert queue.redrive(ids[1:], cancelled=lambda: True).redriven == 0


def test_a_redrive_that_is_cancelled_looks_for_no_further_letter(queue: MessageQueue) -> None:
    [put_back] = letters(queue, 1)
    queue.redrive(put_back)
    assert queue.redrive(put_back, cancelled=lambda: True) == RedriveReport()


def test_progress_is_reported_after_each_hundred(queue: MessageQueue) -> None:
    ids, reports = letters(queue, 101), list[RedriveReport]()
    assert queue.redrive(ids, dry_run=True, progress=reports.append).redriven == 101
    assert queue.redrive(ids, progress=reports.append).redriven == 101
    assert [(report.redriven, report.dry_run) for report in reports] == [
        (100, True),
        (101, True),
        (100, False),
        (101, False),
    ]


def test_an_id_that_is_given_twice_counts_once(queue: MessageQueue) -> None:
    [id_] = letters(queue, 1)
    assert queue.redrive([id_, str(id_)], rate=10, dry_run=True).redriven == 1
    assert queue.redrive([id_, str(id_)], rate=10).redriven == 1


def test_none_is_put_back_if_one_is_not_a_dead_letter(queue: MessageQueue) -> None:
    ids = letters(queue, 3)
    queue.redrive(ids[2])
    with pytest.raises(NotFound, match="is not a dead letter"):
        queue.redrive(ids, rate=10)
    assert queue.counts().dead == 2


def test_an_empty_choice_puts_back_none(queue: MessageQueue) -> None:
    letters(queue, 3)
    assert queue.redrive([]) == RedriveReport()
    assert queue.redrive(id_ for id_ in list[str]()) == RedriveReport()
    assert queue.counts().dead == 3
