"""Every way in which processes that fire the same schedules can meet each other, workers and people who change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from astyqueue.model.schedule import Misfire, Policies
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.scheduling.schedule_commands import pause, remove
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, save
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Steps
from astyqueue.triggers import Every
from tests.modelcheck.executor import Scenario
from tests.modelcheck.schedule import Advance, Work
from tests.unit.protocol.fault_budgets import CRASH, CRASHES, PAUSE, PLAIN, UNKNOWN, UNKNOWNS, Faults, named, played
from tests.unit.protocol.schedule_table import BODY, Timetable, firer, worker
from tests.unit.protocol.worlds import settler


def due(
    minutes: int = 1, names: tuple[str, ...] = ("digest",), unguarded: tuple[int, ...] = (), **policies: str
) -> Timetable:
    """This many occurrences of each of these schedules are due."""
    table = Timetable(unguarded)
    for name in names:
        table.make(name, None, **policies)
    table.clock.advance(60 * minutes)
    return table


def two(occurrences: int = 1, unguarded: tuple[int, ...] = ()) -> Scenario:
    table = due(occurrences, unguarded=unguarded)
    return table.play(ann=firer(table, "ann"), bob=firer(table, "bob"))


def two_occurrences() -> Scenario:
    return two(occurrences=2)


def two_schedules() -> Scenario:
    table = due(names=("digest", "report"))
    return table.play(ann=firer(table, "ann"), bob=firer(table, "bob"))


def three() -> Scenario:
    table = due()
    return table.play(**{name: firer(table, name) for name in ("ann", "bob", "cyd")})


def workers() -> Scenario:
    table = due()
    return table.play(ann=worker(table, "ann"), bob=worker(table, "bob"))


def becoming_due() -> Scenario:
    """The second occurrence falls due at any moment."""
    table = due()
    bob = firer(table, "bob", first=Advance(table.clock, 60))
    return table.play(ann=firer(table, "ann"), bob=bob)


def overlapping(overlap: str) -> Scenario:
    """The run before may be acked at any moment while two processes fire."""
    table = due(overlap=overlap)
    table.fire("eve")
    [taken] = table.do("eve", lease=3_600_000_000).claims
    table.clock.advance(60)
    eve = settler(table, "eve", taken, {taken.held[0].entry.id: ACK})
    return table.play(eve=eve, ann=firer(table, "ann"), bob=firer(table, "bob"))


def skip() -> Scenario:
    return overlapping("skip")


def queue_one() -> Scenario:
    return overlapping("queue one")


def queue_all() -> Scenario:
    return overlapping("queue all")


def cancel() -> Scenario:
    return overlapping("cancel running")


def against(change: Callable[[Timetable], Steps[object]]) -> Scenario:
    table = due(2)

    def pat() -> Work:
        return (yield from change(table))

    return table.play(ann=firer(table, "ann"), pat=pat)


def pausing() -> Scenario:
    return against(lambda table: pause(table.handle("digest", by="pat"), "by hand"))


def removing() -> Scenario:
    return against(lambda table: remove(table.handle("digest", by="pat")))


def replacing() -> Scenario:
    wanted = RequestedSchedule(
        Every("1m", delay="1m"), replace(BODY, priority=0, key="digest"), Policies(Misfire.read("all"))
    )
    return against(lambda table: save(table.handle("digest", by="pat"), wanted, replaces=True))


Making = Callable[[], Scenario]
#: Each scenario, its faults, and how many schedules there are at least.
WORLDS: list[tuple[Making, Faults, int]] = [
    (two, PLAIN, 6),
    (two, CRASH, 25),
    (two, CRASHES, 30),
    (two, UNKNOWN, 30),
    (two, UNKNOWNS, 60),
    (two, PAUSE, 20),
    (two_occurrences, CRASH, 30),
    (two_occurrences, UNKNOWN, 38),
    (two_schedules, CRASH, 30),
    (two_schedules, UNKNOWN, 38),
    (three, PLAIN, 80),
    (three, CRASH, 400),
    (three, UNKNOWN, 600),
    (workers, CRASH, 1000),
    (workers, UNKNOWN, 1000),
    (becoming_due, CRASH, 450),
    (becoming_due, UNKNOWN, 1400),
    (skip, CRASH, 280),
    (queue_one, CRASH, 1000),
    (queue_all, CRASH, 1000),
    (cancel, CRASH, 1000),
    (pausing, CRASH, 55),
    (pausing, UNKNOWN, 65),
    (removing, CRASH, 55),
    (removing, UNKNOWN, 65),
    (replacing, CRASH, 70),
    (replacing, UNKNOWN, 65),
]


#: Worlds with so many orders take up to half a minute each, and are left to the full run.
LONG = 1000


@pytest.mark.parametrize(
    ("make", "faults", "least"),
    [pytest.param(*world, marks=[pytest.mark.full] if world[2] >= LONG else []) for world in WORLDS],
    ids=[f"{make.__name__}-{named(faults)}" for make, faults, _ in WORLDS],
)
def test_each_occurrence_has_exactly_one_message_in_whatever_order_things_happen(
    make: Making, faults: Faults, least: int
) -> None:
    explored = played(make, faults).require_none()
    assert explored.complete
    assert explored.schedules >= least


def test_without_its_guards_an_occurrence_is_fired_twice() -> None:
    guards = (Type.LOCK, Type.TIMER, Type.TRIGGER)
    assert played(partial(two, unguarded=guards), PLAIN).violations
