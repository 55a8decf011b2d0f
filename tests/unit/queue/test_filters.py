"""What is said of dead letters, of a range of time or of a message is understood or refused: it never means all."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, get_args

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.model.views import DeathKind
from astyqueue.testing import TimeMachine

REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"reson": "no such address"},
        r"not chosen by 'reson', but by kind, reason, since, until, key, task; did you mean 'reason'\?$",
    ),
    ({"queue": "emails"}, "not chosen by 'queue', but by kind, reason, since, until, key, task$"),
    ({"kind": "bogus"}, "invalid kind='bogus': one of failed, rejected, attempts, expired, undecodable$"),
    ({"reason": ""}, "reason='' chooses nothing: give some text, or leave reason out to mean all"),
    ({"task": ""}, "task='' chooses nothing"),
    ({"key": ""}, "key '' is not text of 1 to 512 bytes"),
    ({"key": 7}, "key is of type int, not text"),
    ({"since": "2h"}, "'2h' is not a datetime"),
]


def bury(queue: MessageQueue, *reasons: str) -> None:
    for reason in reasons:
        queue.send(reason)
        with queue.receive() as [delivery]:
            delivery.reject(reason)


@pytest.mark.parametrize("verb", ["purge", "redrive", "dead_letters"])
@pytest.mark.parametrize(("where", "told"), REFUSED)
def test_a_filter_that_is_not_understood_touches_no_dead_letter(
    queue: MessageQueue, verb: str, where: dict[str, Any], told: str
) -> None:
    bury(queue, "no such address", "mailbox full")
    with pytest.raises(BadInput, match=told):
        getattr(queue, verb)(**where)
    assert queue.counts().dead == 2


@pytest.mark.every_store
def test_every_kind_of_death_can_be_asked_for(queue: MessageQueue) -> None:
    bury(queue, "no such address")
    assert {kind: len(queue.dead_letters(kind=kind)) for kind in get_args(DeathKind)} == {
        kind: int(kind == "rejected") for kind in get_args(DeathKind)
    }


def test_ids_and_a_filter_together_are_refused(queue: MessageQueue) -> None:
    bury(queue, "no such address", "mailbox full")
    [first, _] = queue.dead_letters()
    with pytest.raises(BadInput, match="the ids of dead letters or a filter, not both"):
        queue.redrive(first.id, reason="mailbox")
    assert queue.redrive(first.id, reason=None).redriven == 1


@pytest.mark.parametrize("verb", ["purge", "redrive", "dead_letters", "history"])
def test_a_range_that_ends_before_it_begins_is_refused(queue: MessageQueue, clock: TimeMachine, verb: str) -> None:
    now = instant(clock.now())
    with pytest.raises(BadInput, match=r"the range ends .* before it begins .*: exchange since and until"):
        getattr(queue, verb)(since=now, until=now - timedelta(hours=1))


OPTIONS: dict[str, Any] = {
    "key": "ada",
    "delay": "10m",
    "at": instant(0),
    "priority": 1,
    "headers": {"trace": "1"},
    "expires": "1h",
    "lease": 0,
    "max_attempts": 1,
    "unique": "reject",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_beside_a_message_with_options_of_its_own_is_refused(queue: MessageQueue, name: str) -> None:
    with pytest.raises(BadInput, match=f"so {name}= beside it would be lost: set it in the Message"):
        queue.send(Message("hello", key="grace"), **{name: OPTIONS[name]})
    assert queue.counts().total == 0


def test_all_options_that_would_be_lost_are_named(queue: MessageQueue) -> None:
    with pytest.raises(BadInput, match="so key=, delay= beside it would be lost: set them in the Message"):
        queue.send(Message("hello"), delay="10m", key="ada")


def test_options_of_many_are_refused_where_one_of_them_has_its_own(queue: MessageQueue) -> None:
    with pytest.raises(BadInput, match="so delay= beside it would be lost"):
        queue.send_many(["a", Message("b")], delay="10m")
    assert queue.counts().total == 0
    assert queue.send_many(["a", "b"], delay="10m").sent == 2
    assert queue.send_many([Message("c", delay="10m"), "d"]).sent == 2
    assert queue.counts().delayed == 3
