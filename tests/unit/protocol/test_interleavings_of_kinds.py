"""Every way in which any two kinds of commits can meet in a row."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue.protocol.columns import Type
from astyqueue.testing import World, explore
from tests.unit.protocol.befalling import CRASH, UNKNOWN, Befalls, named, played
from tests.unit.protocol.explored import told
from tests.unit.protocol.meetings import PAIRS, meeting
from tests.unit.protocol.test_interleavings_of_keys import pairs

TOLD = told()
#: Pairs with more orders than this are met by lost answers only when the guide is written.
CHEAP = 100
#: What these kinds are called where a unique key is played in each of its states.
OF_KEYS = {"send": "unique send", "replace": "cancel", "reclaim": "expiry"}
PLAYED = {frozenset(OF_KEYS.get(kind, kind) for kind in (first, second)) for first, second, _, befalls in pairs() if befalls == CRASH}
#: Played there, at greater length.
ELSEWHERE = [pair for pair in PAIRS if frozenset(pair) in PLAYED and {"unique send", "cancel"} & {*pair}]
HERE = [pair for pair in PAIRS if pair not in ELSEWHERE]
MEETINGS = [(*pair, CRASH) for pair in HERE] + [(*pair, UNKNOWN) for pair in HERE if TOLD[pair].unknowns <= CHEAP]


def world(first: str, second: str) -> partial[World]:
    make = partial(meeting, first, second)
    make.__dict__["__name__"] = f"{first} and {second}"
    return make


@pytest.mark.parametrize(("first", "second", "befalls"), MEETINGS, ids=lambda one: one if isinstance(one, str) else named(one))
def test_no_order_of_two_kinds_of_commits_breaks_a_promise(first: str, second: str, befalls: Befalls) -> None:
    """A world that lost its orders shows nothing any more; `python -m tests.unit.protocol.explored` tells the guide of new ones."""
    explored = played(world(first, second), befalls).require_none()
    least = TOLD[first, second].crashes if befalls == CRASH else TOLD[first, second].unknowns
    assert explored.complete
    assert 2 * explored.schedules >= least > 1


@pytest.mark.parametrize(("first", "second"), [pair for pair in PAIRS if TOLD[pair].breaks], ids=" and ".join)
def test_without_what_commits_expect_promises_break(first: str, second: str) -> None:
    assert explore(partial(meeting, first, second, tuple(Type)), isolated=True, limit=200).violations


def test_the_guide_tells_of_every_pair_and_most_of_them_need_what_they_expect() -> None:
    assert list(TOLD) == list(PAIRS)
    assert len(PAIRS) == 66
    assert len(ELSEWHERE) == 15
    assert sum(pair.breaks > 0 for pair in TOLD.values()) >= 35
