"""Who has a unique key when dead letters are put back: what `docs/how-to/keys.md` says of each kind of dead letter."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from astyqueue import KeyTaken, MessageQueue
from astyqueue.model.envelope import MessageId
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every, Trigger

KEY = "nightly:ada"
HOURLY = Every("1h")


def send(queue: MessageQueue, body: str = "work", unique: str = "reject", trigger: Trigger | None = None) -> MessageId:
    return queue.send(body, key=KEY, unique=unique, trigger=trigger).id


def dies(queue: MessageQueue) -> MessageId:
    """Receive one message and make it a dead letter."""
    [delivery] = queue.receive(5)
    delivery.reject("no")
    return delivery.message_id


def owner(queue: MessageQueue) -> MessageId | None:
    """The message that has the key; None if it is free."""
    try:
        probe = send(queue, "probe")
    except KeyTaken as error:
        holder: MessageId = error.id
        return holder
    queue.delete(probe)
    return None


def bodies(queue: MessageQueue) -> list[object]:
    return [found.body for found in queue.find(KEY)]


@pytest.mark.parametrize("trigger", [None, Every("1h", count=1)], ids=["single", "last run"])
def test_a_single_message_and_a_last_run_take_their_key_again(queue: MessageQueue, trigger: Trigger | None) -> None:
    send(queue, trigger=trigger)
    letter = dies(queue)
    assert owner(queue) is None
    assert queue.redrive().redriven == 1
    assert owner(queue) == letter
    queue.receive(5)[0].ack()
    assert owner(queue) is None


@pytest.mark.parametrize("other", [None, HOURLY], ids=["single", "repeating"])
@pytest.mark.parametrize("trigger", [None, Every("1h", count=1)], ids=["single", "last run"])
def test_they_are_left_while_another_has_it(
    queue: MessageQueue, trigger: Trigger | None, other: Trigger | None
) -> None:
    send(queue, trigger=trigger)
    dies(queue)
    another = send(queue, "other", trigger=other)
    report = queue.redrive()
    assert (report.redriven, report.left, owner(queue)) == (0, 1, another)


def test_of_two_letters_with_one_key_the_older_takes_it(queue: MessageQueue) -> None:
    letters = [send(queue) and dies(queue) for _ in range(2)]
    report = queue.redrive()
    assert (report.redriven, report.left, owner(queue)) == (1, 1, letters[0])


def test_the_latest_run_of_one_that_repeats_is_its_run_again(queue: MessageQueue, clock: TimeMachine) -> None:
    send(queue, trigger=HOURLY)
    letter = dies(queue)
    assert owner(queue) not in (None, letter)
    assert queue.redrive().redriven == 1
    assert (owner(queue), bodies(queue)) == (letter, ["work"])
    [run] = queue.receive(5)
    with pytest.raises(KeyTaken):
        send(queue, "new", "replace")
    run.ack()
    assert owner(queue) not in (None, letter)
    clock.advance("1h")
    assert [delivery.body for delivery in queue.receive(5)] == ["work"]


def test_a_replacement_cancels_a_redriven_latest_run(queue: MessageQueue) -> None:
    send(queue, trigger=HOURLY)
    dies(queue)
    queue.redrive()
    send(queue, "new", "replace")
    assert [found.body for found in queue.peek(include="all")] == ["new"]


GONE: dict[str, Callable[[MessageQueue], object]] = {
    "stopped": lambda queue: queue.stop(KEY),
    "replaced": lambda queue: send(queue, "new", "replace"),
}


@pytest.mark.parametrize("end", GONE.values(), ids=GONE)
def test_a_run_of_one_that_repeats_no_longer_comes_back_without_the_key(
    queue: MessageQueue, end: Callable[[MessageQueue], object]
) -> None:
    send(queue, trigger=HOURLY)
    letter = dies(queue)
    end(queue)
    before = owner(queue), bodies(queue)
    assert queue.redrive().redriven == 1
    assert (owner(queue), bodies(queue)) == before
    assert letter in [found.id for found in queue.peek(include="all")]


def test_an_earlier_run_comes_back_beside_the_others_without_the_key(queue: MessageQueue, clock: TimeMachine) -> None:
    send(queue, trigger=HOURLY)
    letter = dies(queue)
    clock.advance("1h")
    [run] = queue.receive(5)
    assert queue.redrive().redriven == 1
    assert owner(queue) == run.message_id
    [again] = queue.receive(5)
    assert (again.message_id, again.key) == (letter, KEY)
    again.ack()
    assert owner(queue) == run.message_id
    assert letter not in [found.id for found in queue.find(KEY)]
    run.ack()
    send(queue, "new", "replace")
