"""A message's own trigger, and what the recipe that this queue descends from tested of repeating messages."""

from __future__ import annotations

from datetime import timedelta

import pytest

from astyqueue.errors import BadInput, NotFound, ScheduleTaken
from astyqueue.model.envelope import MessageId
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Schedules
from astyqueue.store import Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every, Once
from tests.support.places import ONE_ROW, Place


@pytest.fixture
def queue(place: Place, clock: TimeMachine) -> MessageQueue:
    return (
        MessageQueue.builder()
        .store(place.store(clock))
        .clock(clock)
        .name("mail")
        .options(lease="1s", max_attempts=50, **ONE_ROW)
        .build()
    )


def run_once(queue: MessageQueue) -> int:
    with queue.receive(limit=10) as batch:
        return len(batch)


def left(queue: MessageQueue) -> set[int]:
    """The types of columns in the row of schedules, but for its header."""
    return {kind for kind in range(1, 7) for found in queue.store.read((Slice("mail:home:0", kind),)) if found}


def test_a_trigger_comes_with_a_body_that_is_as_long_as_its_queue_allows(clock: TimeMachine) -> None:
    queue = MessageQueue.builder().name("mail").store(MemoryStore(clock)).clock(clock).options(body_bytes=1).build()
    queue.send(1, trigger=Every("1h"))
    with pytest.raises(BadInput, match="2 bytes"):
        queue.send(10, trigger=Every("1h"))


@pytest.mark.every_store
def test_a_message_comes_again_at_each_occurrence(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello", trigger=Every("1h", count=3), key="greeting")
    assert queue.get(sent.id).body == "hello"
    runs = []
    for _ in range(5):
        runs.append(run_once(queue))
        clock.advance("1h")
    assert runs == [1, 1, 1, 0, 0]
    assert left(queue) == set()


def test_a_message_that_begins_later_has_its_id_at_once(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello", trigger=Every("1h", delay="1h"))
    with pytest.raises(NotFound):
        queue.get(sent.id)
    clock.advance("1h")
    with queue.receive() as [delivery]:
        assert delivery.message_id == sent.id


def test_the_key_of_a_message_with_a_trigger_is_its_own(queue: MessageQueue) -> None:
    queue.send("hello", trigger=Every("1h"), key="greeting")
    with pytest.raises(ScheduleTaken, match=r"another key; .* by queue.stop\('greeting'\), or send with unique=$"):
        queue.send("hello", trigger=Every("1h"), key="greeting")
    assert queue.send("hello", trigger=Every("1h"), key="greeting", unique="replace").new
    assert queue.stop("greeting")
    assert queue.send("hello", trigger=Every("1h"), key="greeting").new


def test_a_trigger_without_an_occurrence_sends_nothing(queue: MessageQueue, clock: TimeMachine) -> None:
    passed = clock.instant - timedelta(hours=1)
    for trigger, told in (
        (Once(passed), r"never be delivered: .*T.*Z has passed: give a later moment"),
        (Every("1h", start=passed, end=passed), r"until its end, .*T.*Z: give a later end"),
        (Every("1h", start=passed, count=1), r"give another one than Every\("),
    ):
        with pytest.raises(BadInput, match=told):
            queue.send("hello", trigger=trigger)
    assert Schedules(queue).all() == []


@pytest.mark.parametrize("by", ["key", "first id", "present id"])
@pytest.mark.every_store
def test_stopping_it_in_the_middle_of_a_run_stops_it_for_good(queue: MessageQueue, clock: TimeMachine, by: str) -> None:
    first = queue.send("hello", trigger=Every("1h"), key="greeting").id
    assert run_once(queue) == 1
    clock.advance("1h")
    [delivery] = queue.receive()
    present: MessageId = delivery.message_id
    assert queue.stop("greeting") if by == "key" else queue.delete(first if by == "first id" else present)
    clock.advance("10h")
    assert run_once(queue) == 0
    assert left(queue) == set()
    assert not queue.stop("greeting")


def test_a_run_that_failed_is_tried_again_before_the_next(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("hello", trigger=Every("1m", count=2))
    [delivery] = queue.receive()
    clock.advance("5m")
    with queue.receive(limit=10) as [again]:
        assert again.message_id == delivery.message_id
    clock.advance("1s")
    assert run_once(queue) == 1
    clock.advance("1s")
    assert run_once(queue) == 0


def test_the_recipe_s_repeating_message(queue: MessageQueue, clock: TimeMachine) -> None:
    """A unique key, one second to finish, again every second for ever; read late, acked twice, never two at a time."""
    queue.send("again", trigger=Every("1s"), key="unique")
    with pytest.raises(ScheduleTaken):
        queue.send("again", trigger=Every("1s"), key="unique")
    assert queue.counts().total == 1
    [first] = queue.receive(limit=10)
    clock.advance("2s")
    [second] = queue.receive(limit=10)
    assert second.message_id == first.message_id
    second.ack()
    clock.advance("1s")
    [third] = queue.receive(limit=10)
    third.ack()
    clock.advance("2s")
    [left_alone] = queue.receive(limit=10)
    for _ in range(10):
        clock.advance("2s")
        assert run_once(queue) == 1
    assert left_alone.attempt == 1
    clock.advance("2s")
    assert run_once(queue) == 1
    assert queue.counts().total == 0
    assert len(Schedules(queue).all()) == 1


def test_the_recipe_s_repeating_message_is_deleted_by_its_id(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("again", trigger=Every("3s", count=10), key="part 3")
    assert queue.get(sent.id)
    assert queue.counts().total == 1
    assert queue.delete(sent.id)
    assert queue.counts().total == 0
    clock.advance("1m")
    assert run_once(queue) == 0


@pytest.mark.parametrize("late", [False, True])
def test_the_recipe_s_five_runs_are_five(queue: MessageQueue, clock: TimeMachine, late: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Also when one of them ran out of time: none is lost and none is doubled, and nothing stays behind."""
    queue.send("again", trigger=Every("3s", count=5), key="five")
    runs = 0
    if late:
        queue.receive()
        clock.advance("2s")
    for _ in range(10):
        runs += run_once(queue)
        clock.advance("3s")
    assert runs == 5
    assert queue.counts().total == 0
    assert left(queue) == set()


@pytest.mark.parametrize(
    ("misfire", "overlap", "occurrences"),
    [(None, None, [0, 1, 2, 3, 4]), ("latest", None, [0, 4]), (None, "skip", [0])],
)
def test_a_message_says_by_which_policies_it_comes_again(
    queue: MessageQueue, clock: TimeMachine, misfire: str | None, overlap: str | None, occurrences: list[int]
) -> None:
    began = clock.instant
    queue.send("hello", trigger=Every("10m", count=5), key="greeting", misfire=misfire, overlap=overlap)
    [first] = queue.receive()
    first.extend("1h")
    came = [first.due]
    for _ in range(8):
        clock.advance("5m")
        if overlap is not None:  # a process reads it in time
            assert run_once(queue) == 0
    first.ack()
    for _ in range(9):
        with queue.receive(10) as batch:
            came += [delivery.due for delivery in batch]
        clock.advance("1s")
    assert [round((due - began).total_seconds() / 600) for due in came] == occurrences
    assert left(queue) == set()


def test_policies_without_a_trigger_and_runs_beside_each_other_under_one_unique_key_are_refused(
    queue: MessageQueue,
) -> None:
    with pytest.raises(BadInput, match="give a trigger= too"):
        queue.send("hello", overlap="skip")
    with pytest.raises(BadInput, match="one at a time"):
        queue.send("hello", key="greeting", unique="keep", trigger=Every("1h"), overlap="allow")
    with pytest.raises(BadInput, match="misfire"):
        queue.send("hello", trigger=Every("1h"), misfire="never")
    assert queue.counts().total == 0
