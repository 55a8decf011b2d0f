"""No schedule breaks a promise of the manager, and mistakes made on purpose are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final
from unittest import mock

import pytest

from astyqueue.dispatch.consumers.consumer_states import INTERESTED, NOTIFIED, Consumer, Consumers, Members, State
from astyqueue.dispatch.consumers.matching import Matcher
from astyqueue.dispatch.consumers.multi_queue import MultiQueueConsumer
from astyqueue.dispatch.consumers.ready_buffer import Lane, Ready, ReadyBuffer
from tests.consumer_schedules.oracle import Broken
from tests.consumer_schedules.shares import LOADS, MESSAGES, Load, measured
from tests.consumer_schedules.world import play, play_part

Plant = Callable[[], Any]
_move = Consumers.move
_arrive = Matcher._arrive  # noqa: SLF001 - the mistakes are made inside
_notify = Matcher._notify  # noqa: SLF001
_enter = Matcher.enter
_withdraw = Matcher.withdraw


def _arrive_without_handing_over(self: Matcher[int], consumer: Consumer[int]) -> None:
    _arrive(self, consumer)


def _move_to_the_front(self: Consumers[int], consumer: Consumer[int], to: State, *sources: State) -> bool:
    moved = _move(self, consumer, to, *sources)
    if moved and to is INTERESTED and consumer.level is not None:
        consumer.level.interested.move_to_end(consumer, last=False)
    return moved


def _notify_without_counting(self: Matcher[int], consumer: Consumer[int], lane: Lane[int]) -> None:
    _notify(self, consumer, lane)
    if (counted := consumer.woken_for) is not None:
        counted.coming -= 1
        consumer.woken_for = None


def _stay_notified(self: Matcher[int], consumer: Consumer[int]) -> None:
    self.consumers.move(consumer, NOTIFIED, *State)


def _enter_without_wakeup(self: Matcher[int], consumer: Consumer[int]) -> None:
    with mock.patch.object(self, "wake"):
        _enter(self, consumer)


def _withdraw_without_handing_over(self: Matcher[int], consumer: Consumer[int]) -> None:
    with mock.patch.object(self, "wake"):
        _withdraw(self, consumer)


def _put_back_last(self: ReadyBuffer[int], ready: Ready[int]) -> None:
    ready.holder = None
    self.add([ready])


def _give_twice(self: ReadyBuffer[int], lane: Lane[int]) -> Ready[int]:  # noqa: ARG001 - it should be removed from there
    return lane.messages[0]


def _lane_without_memory(self: ReadyBuffer[int], ready: Ready[int]) -> Lane[int]:
    ready.rejected_by = ()
    return self._file(ready)


def _withdraw_without_putting_back(self: Matcher[int], consumer: Consumer[int]) -> None:
    _arrive(self, consumer)


def _head_expired_or_not(self: ReadyBuffer[int], lane: Lane[int]) -> Ready[int] | None:  # noqa: ARG001 - as the method
    return lane.messages[0] if lane.messages else None


MISTAKES: Final[dict[str, Plant]] = {
    "a consumer that arrives and takes another message hands nothing over": lambda: mock.patch.object(
        Matcher, "_arrive", _arrive_without_handing_over
    ),
    "a consumer that missed does not go to the back": lambda: mock.patch.object(Consumers, "move", _move_to_the_front),
    "two are woken for a message": lambda: mock.patch.object(Matcher, "_notify", _notify_without_counting),
    "a consumer is woken under stale interest": lambda: mock.patch.object(Matcher, "_may_be_woken", return_value=True),
    "a consumer that missed counts as notified": lambda: mock.patch.object(Matcher, "_miss", _stay_notified),
    "a consumer that becomes interested is not woken": lambda: mock.patch.object(
        Matcher, "enter", _enter_without_wakeup
    ),
    "a consumer that withdraws hands nothing over": lambda: mock.patch.object(
        Matcher, "withdraw", _withdraw_without_handing_over
    ),
    "a message too large is not looked at again": lambda: mock.patch.object(Matcher, "retry_short"),
    "a released message comes last": lambda: mock.patch.object(ReadyBuffer, "put_back", _put_back_last),
    "a message is given twice": lambda: mock.patch.object(ReadyBuffer, "take", _give_twice),
    "a consumer gets what it rejected": lambda: mock.patch.object(
        ReadyBuffer, "_lane_of_rejected", _lane_without_memory
    ),
    "priorities are ignored in a pull": lambda: mock.patch.object(Matcher, "_yields", return_value=False),
    "a consumer that stands by is not promoted": lambda: mock.patch.object(Members, "promoted", return_value=[]),
    "a busy consumer of several queues does not withdraw": lambda: mock.patch.object(MultiQueueConsumer, "_on_credit"),
    "what was kept for a consumer is not put back when it withdraws": lambda: mock.patch.object(
        Matcher, "forget_wakeup", _withdraw_without_putting_back
    ),
    "an expired message is delivered": lambda: mock.patch.object(ReadyBuffer, "head", _head_expired_or_not),
}


def first_broken(seeds: Iterable[int]) -> int | None:
    """The first schedule in which a promise does not hold."""
    for seed in seeds:
        try:
            play(seed)
        except Broken:
            return seed
    return None


#: As many find each mistake that was made on purpose.
ENOUGH: Final = 5_000


def test_no_promise_is_broken() -> None:
    assert play_part(range(ENOUGH))[0] == []


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 1_000_000, 20_000))
def test_no_promise_is_broken_in_a_million(first: int) -> None:
    assert play_part(range(first, first + 20_000))[0] == []


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_equal_consumers_get_equal_shares_for_at_most_one_wakeup_a_message(load: Load) -> None:
    got = measured(load)
    assert got.delivered == MESSAGES
    assert got.wakeups_per_message <= 1.0
    assert got.max_to_min <= 1.05


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    with MISTAKES[mistake]():
        assert first_broken(range(ENOUGH)) is not None
