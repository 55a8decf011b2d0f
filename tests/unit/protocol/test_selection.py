"""What a claim sorts out of due timers: as much as it can take, however many messages they list."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from astyqueue import ids
from astyqueue.ids import Nonce
from astyqueue.protocol.claiming.selection import due_messages
from astyqueue.protocol.layout.columns import Entry, State, Timer, Type
from astyqueue.store import Name

NOW = 1_000_000


def timer(number: int, priorities: Iterable[int], state: State = State.SNOOZED, *, holder: str = "") -> Timer:
    """A timer that is due, with a message of each of these priorities."""
    entries = tuple(
        Entry(ids.first_at(1_000 * number + place), priority, 0) for place, priority in enumerate(priorities)
    )
    return Timer(Name(Type.TIMER, 0, ids.first_at(number), state), entries, Nonce(b"a claim."), holder, len(entries))


@pytest.mark.parametrize("timers", [10, 1_000])
def test_a_claim_sorts_out_no_more_than_it_has_room_for(timers: int) -> None:
    found = due_messages([timer(number, [0] * 200) for number in range(1, timers)], NOW, top=0, room=250)
    assert {level: len(some) for level, some in found.by_level.items()} == {0: 400}
    assert found.by_level[0][0].entry.id == ids.first_at(1_000)
    assert found.has_more


def test_all_is_sorted_out_while_the_highest_priority_leaves_room() -> None:
    found = due_messages([timer(1, [0, 1]), timer(2, [0]), timer(3, [2])], NOW, top=2, room=2)
    assert {level: len(some) for level, some in found.by_level.items()} == {0: 2, 1: 1, 2: 1}
    assert not found.has_more


def test_expired_leases_and_parked_messages_are_always_sorted_out() -> None:
    timers = [
        timer(1, [0, 0]),
        timer(2, [0], State.PARKED),
        timer(3, [0], State.LEASED, holder="a"),
        timer(4, [0], State.LEASED, holder="a"),
        timer(5, [0]),
    ]
    found = due_messages(timers, NOW, top=0, room=1)
    assert (len(found.by_level[0]), len(found.parked), len(found.suspects)) == (2, 1, 2)
    assert found.has_more
