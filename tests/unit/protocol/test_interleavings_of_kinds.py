"""Every way in which any two kinds of commits can meet in a row, and which of them would show a missing guard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from astyqueue.protocol.layout.columns import Type
from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import explore
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, PLAIN, UNKNOWN, Faults, named, played
from tests.unit.protocol.operation_pairs import HOW, PAIRS, SHOWN, UNABLE, How, alone, meeting
from tests.unit.protocol.pair_coverage import PAGE, cannot_fail, summary, told
from tests.unit.protocol.test_interleavings_of_keys import pairs

TOLD = told()
NOTHING_EXPECTED = tuple(Type)
#: Pairs with more orders than this are met by lost answers only when the guide is written.
CHEAP = 100
#: What these kinds are called where a unique key is played in each of its states.
OF_KEYS = {"send": "unique send", "replace": "cancel", "reclaim": "expiry"}
PLAYED = {
    frozenset(OF_KEYS.get(kind, kind) for kind in (first, second))
    for first, second, _, faults in pairs()
    if faults == CRASH
}
#: Played there, at greater length; not those that meet in a world of their own here.
ELSEWHERE = [
    pair for pair in PAIRS if frozenset(pair) in PLAYED and {"unique send", "cancel"} & {*pair} and pair not in HOW
]
HERE = [pair for pair in PAIRS if pair not in ELSEWHERE]
MEETINGS = [(*pair, CRASH) for pair in HERE] + [(*pair, UNKNOWN) for pair in HERE if TOLD[pair].unknowns <= CHEAP]
#: What a test says for the numbers at the end of a run: see `tests/conftest.py`.
Saying = Callable[[str, object], None]


def world(first: str, second: str) -> partial[Scenario]:
    make = partial(meeting, first, second)
    make.__dict__["__name__"] = f"{first} and {second}"
    return make


@pytest.mark.parametrize(
    ("first", "second", "faults"), MEETINGS, ids=lambda one: one if isinstance(one, str) else named(one)
)
def test_no_order_of_two_kinds_of_commits_breaks_a_promise(
    first: str, second: str, faults: Faults, record_property: Saying
) -> None:
    """A world that lost its orders shows nothing any more.

    `python -m tests.unit.protocol.pair_coverage` writes the numbers of new ones into the guide.
    """
    unable = UNABLE.get((first, second))
    explored = played(
        world(first, second), faults, note=f"; not counted, {cannot_fail(unable)}" if unable else ""
    ).require_none()
    record_property("orders not counted" if unable else "orders that could fail", explored.schedules)
    least = TOLD[first, second].crashes if faults == CRASH else TOLD[first, second].unknowns
    assert explored.complete
    assert 2 * explored.schedules >= least > 1


@pytest.mark.parametrize(("first", "second"), SHOWN, ids=[" and ".join(pair) for pair in SHOWN])
def test_without_what_commits_expect_promises_break(first: str, second: str, record_property: Saying) -> None:
    """By the meeting: one of the two alone breaks nothing."""
    for name in ("ann", "bob"):
        explore(partial(alone, name, first, second, NOTHING_EXPECTED)).require_none()
    meet = partial(meeting, first, second, NOTHING_EXPECTED)
    assert any(explore(meet, isolated=True, limit=limit).violations for limit in (8, 200))
    record_property("able to fail", f"{first} and {second}")
    record_property("pairs", len(PAIRS))


def in_vain() -> Iterator[object]:
    """Pairs that cannot fail, in each world in which that is shown.

    Without its expectations a release breaks a promise alone when its outcome is unknown: it is repeated as a mark.
    """
    worlds = [
        (pair, how, faults) for pair in UNABLE for how in UNABLE[pair].how for faults in (PLAIN, CRASH, UNKNOWN, PAUSE)
    ]
    for pair, how, faults in worlds:
        if pair[0] != "release" or faults != UNKNOWN:
            marks = [pytest.mark.full] if how is not How.PLAIN and faults != PLAIN else []
            yield pytest.param(*pair, how, faults, marks=marks, id="-".join([*pair, how.name.lower(), named(faults)]))


@pytest.mark.parametrize(("first", "second", "how", "faults"), list(in_vain()))
def test_a_pair_that_is_said_to_be_unable_to_fail_does_not_without_what_commits_expect(
    first: str, second: str, how: How, faults: Faults, record_property: Saying
) -> None:
    """One that breaks belongs to those that are shown, with this world as its own."""
    explored = explore(partial(meeting, first, second, NOTHING_EXPECTED, how), isolated=True, **faults).require_none()
    assert explored.schedules > 1
    record_property("unable to fail", f"{first} and {second}, {cannot_fail(UNABLE[first, second])}")
    record_property("pairs", len(PAIRS))


def test_the_guide_tells_of_every_pair_and_which_of_them_cannot_fail() -> None:
    assert list(TOLD) == list(PAIRS)
    assert {pair: one.why for pair, one in TOLD.items() if one.why} == {
        pair: unable.why for pair, unable in UNABLE.items()
    }
    assert all(bool(one.breaks) != bool(one.why) for one in TOLD.values())
    assert summary(TOLD) in PAGE.read_text()
    assert len(SHOWN) == 57
    assert len(PAIRS) == 66
    assert len(ELSEWHERE) == 10
    assert not UNABLE.keys() & HOW.keys()
    assert {*UNABLE, *HOW} <= {*PAIRS}
