"""Schedules of many kinds, fired in time for a year by processes that die: each occurrence once, at its moment.

The expected occurrences are computed minute by minute with plain arithmetic, not with the triggers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import pytest

from astyqueue.clock import microseconds
from astyqueue.model.envelope import decode
from astyqueue.model.message import Message
from astyqueue.model.schedule import SCHEDULE
from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Request, run
from astyqueue.queue.admin.schedules import ScheduleRequest, save
from astyqueue.store import Committed, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Faulty, TimeMachine
from astyqueue.triggers import Cron, Days, Every, Excluding, Once, Trigger
from astyqueue.units import SECOND
from tests.unit.queue.stepped_workers import MILLISECOND, Crew

MINUTE: Final = 60 * SECOND
DAY: Final = 1_440 * MINUTE
#: How long an occurrence may wait for its message. A living process fires it at its very moment, or 50 ms after its
#: last visit to the row (`row_scheduler._AGAIN`). When a process has died, the others leave the row to it for 0.3 s
#: (`row_lease._PATIENCE`), each up to twice as long as that. They notice in the steps in which this test's time goes
#: on.
STEP: Final = 5 * MILLISECOND
IN_TIME: Final = 600 * MILLISECOND + 50 * MILLISECOND + STEP
#: At one due moment in this many, the processes contend and one dies, after at most about this many requests of each.
PROCESSES: Final = 3
DEATHS: Final = 20
REQUESTS: Final = 12
#: All minutes and days, for fields that admit everything.
ALL: Final = range(60)


@dataclass(frozen=True)
class Plain:
    """A cron expression and its meaning: the minutes, hours and days that it admits."""

    expression: str
    zone: str
    minutes: Container[int]
    hours: Container[int]
    day: Callable[[date], bool] = lambda _: True

    def occurrences(self, begin: int, end: int) -> set[int]:
        """The admitted minutes of a period.

        If all hours are admitted, they count whenever clocks show them; otherwise when first reached or skipped.
        """
        if self.hours == ALL:
            return {at for at, reached in _walls(self.zone, begin, end) if self._admits(reached.shown)}
        return {at for at, reached in _walls(self.zone, begin, end) for wall in reached.first if self._admits(wall)}

    def _admits(self, wall: int) -> bool:
        day, minute = divmod(wall, 1_440)
        return minute % 60 in self.minutes and minute // 60 in self.hours and self.day(_day(day))


@dataclass(frozen=True, slots=True)
class Reached:
    """What the clocks of a zone show, in local minutes since 1970, and what they reach or skip for the first time."""

    shown: int
    first: range


@lru_cache
def _walls(zone: str, begin: int, end: int) -> list[tuple[int, Reached]]:
    """Each minute of a period; clocks change at quarters of an hour.

    The computation begins a day before, so that it knows what clocks had reached before the period.
    """
    clock = ZoneInfo(zone)
    found: list[tuple[int, Reached]] = []
    offset, top = 0, -1
    for minute in range(begin // MINUTE - 1_440, end // MINUTE + 1):
        if minute % 15 == 0 or not found:
            shift = datetime.fromtimestamp(minute * 60, clock).utcoffset()
            offset = int((shift or timedelta()).total_seconds()) // 60
        wall = minute + offset
        top = wall - 1 if top < 0 else top
        found.append((minute * MINUTE, Reached(wall, range(top + 1, wall + 1))))
        top = max(top, wall)
    return [(at, reached) for at, reached in found if at >= begin]


@lru_cache
def _day(number: int) -> date:
    return date(1970, 1, 1) + timedelta(days=number)


def _weekdays(*days: int) -> Callable[[date], bool]:
    return lambda day: day.weekday() in days


def _ends_month(day: date) -> bool:
    return (day + timedelta(days=1)).day == 1


CRONS: Final = (
    Plain("0 * * * *", "Australia/Lord_Howe", (0,), ALL),
    Plain("0 * * * *", "Europe/Paris", (0,), ALL),
    Plain("30 2 * * *", "Europe/Paris", (30,), (2,)),
    Plain("30 2 * * *", "America/New_York", (30,), (2,)),
    Plain("30 1 * * *", "America/New_York", (30,), (1,)),
    Plain("15 1-3 * * sat,sun", "Australia/Lord_Howe", (15,), (1, 2, 3), _weekdays(5, 6)),
    Plain("0 0 * * *", "America/Havana", (0,), (0,)),
    Plain("0 */6 * * *", "America/Santiago", (0,), (0, 6, 12, 18)),
    Plain("0 9 * * mon-fri", "America/New_York", (0,), (9,), _weekdays(0, 1, 2, 3, 4)),
    Plain("*/5 8 * * mon", "Asia/Kolkata", range(0, 60, 5), (8,), _weekdays(0)),
    Plain("0 0 L * *", "Europe/Paris", (0,), (0,), _ends_month),
    Plain("0 3 1 * *", "America/Santiago", (0,), (3,), lambda day: day.day == 1),
)
HOLIDAYS: Final = ("05-01", "12-25")


def planned(begin: int, end: int) -> dict[str, tuple[Trigger, set[int]]]:
    """The trigger of each schedule, and when it must fire between the beginning and the end, both included."""
    crons = {
        f"{one.expression} {one.zone}": (Cron(one.expression, one.zone), one.occurrences(begin, end)) for one in CRONS
    }
    open_days = Plain("", "Europe/Paris", (0,), (7,), lambda day: f"{day:%m-%d}" not in HOLIDAYS)
    others: dict[str, tuple[Trigger, set[int]]] = {
        "but on holidays": (
            Excluding(Cron("0 7 * * *", "Europe/Paris"), Days(HOLIDAYS, "Europe/Paris")),
            open_days.occurrences(begin, end),
        ),
        "every 2 hours": (Every("2h", delay="2h"), _even(begin, end, 120 * MINUTE)),
        "every 5 minutes for a day": (Every("5m", delay="5m", count=288), _even(begin, begin + DAY, 5 * MINUTE)),
        "every 500 minutes and a bit": (Every("30001s", delay="30001s"), _even(begin, end, 30_001 * SECOND)),
        "once": (Once(delay="40d"), {begin + 40 * DAY}),
        "every 10 days until the 60th": (
            Every("10d", delay="10d", end=datetime.fromtimestamp((begin + 60 * DAY) // SECOND, UTC)),
            _even(begin, begin + 60 * DAY, 10 * DAY),
        ),
    }
    return {
        name: (trigger, {occurrence for occurrence in occurrences if occurrence <= end})
        for name, (trigger, occurrences) in (crons | others).items()
    }


def _even(begin: int, end: int, interval: int) -> set[int]:
    return set(range(begin + interval, end + 1, interval))


class Births(Faulty):
    """Notes each message that a commit puts: of which schedule, for which occurrence, and when."""

    def __init__(self, store: Store, clock: TimeMachine) -> None:
        super().__init__(store)
        self.of: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.occurrences: set[tuple[str, int]] = set()
        self._clock = clock

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Commit) and isinstance(answer, Committed):
            for put in request.batch.puts:
                if put.name.type == Type.MESSAGE:
                    self._born(put.value)
        return answer

    def _born(self, value: bytes) -> None:
        envelope = decode(value)
        name = (envelope.headers or {})[SCHEDULE]
        self.of[name].append((envelope.due, self._clock.now()))
        self.occurrences.add((name, envelope.due))


@dataclass
class Play:
    """Some processes on one store.

    Time advances from one due moment to the next, and on from each until everything due is fired.
    """

    clock: TimeMachine
    births: Births
    crew: Crew
    random: Random = field(default_factory=lambda: Random(2026))
    died: int = 0

    def __post_init__(self) -> None:
        for _ in range(PROCESSES):
            self.crew.join(hands=50)

    def plan(self, schedules: dict[str, tuple[Trigger, set[int]]]) -> None:
        """Create the schedules, with the default misfire policy."""
        worker = self.crew.workers[0]
        for name, (trigger, _) in schedules.items():
            run(
                save(worker.core, name, ScheduleRequest(trigger, Message(None)), replaces=False),
                worker.store,
            )

    def go(self, schedules: dict[str, tuple[Trigger, set[int]]]) -> None:
        """Let every due moment come, in order."""
        due: dict[int, set[tuple[str, int]]] = defaultdict(set)
        for name, (_, occurrences) in schedules.items():
            for occurrence in occurrences:
                due[occurrence].add((name, occurrence))
        for moment in sorted(due):
            self._meet(moment, due[moment])

    def _meet(self, moment: int, occurrences: set[tuple[str, int]]) -> None:
        """Advance to a moment, on until its occurrences are fired or late, and on until their messages are acked."""
        self.clock.advance(timedelta(microseconds=max(0, moment - self.clock.now())))
        self.random.shuffle(self.crew.workers)
        if self.random.randrange(DEATHS) == 0:
            self._contend()
        for worker in self.crew.workers:
            worker.work()
        while not occurrences <= self.births.occurrences and self.clock.now() < moment + IN_TIME:
            self.crew.pass_time(STEP)
        self.crew.pass_time(2 * STEP)

    def _contend(self) -> None:
        """Run all processes by single requests, in random order; one dies before it gets an answer, and is replaced."""
        doomed = self.crew.workers[0]
        for worker in self.crew.workers:
            worker.paced = True
        for _ in range(self.random.randint(1, PROCESSES * REQUESTS)):
            self.random.choice(self.crew.workers).work()
        self.crew.workers.remove(doomed)
        for worker in self.crew.workers:
            worker.paced = False
        self.crew.join(hands=50)
        self.died += 1


def played(begin: date, end: date) -> Iterator[str]:
    """What is wrong with how the schedules were fired between two days."""
    clock = TimeMachine(datetime(begin.year, begin.month, begin.day, tzinfo=UTC))
    births = Births(MemoryStore(clock), clock)
    play = Play(clock, births, Crew(births, clock, Layout(time_shards=1, concurrency_shards=2)))
    schedules = planned(clock.now(), microseconds(datetime(end.year, end.month, end.day, tzinfo=UTC)))
    play.plan(schedules)
    play.go(schedules)
    for name, (_, occurrences) in schedules.items():
        born = births.of[name]
        if sorted(occurrence for occurrence, _ in born) != sorted(occurrences):
            missed = len(occurrences - {occurrence for occurrence, _ in born})
            yield f"{name}: {len(born)} messages for {len(occurrences)} occurrences, {missed} of which had none"
        if late := [(at - occurrence) for occurrence, at in born if not 0 <= at - occurrence <= IN_TIME]:
            yield f"{name}: {len(late)} were fired up to {max(late) / SECOND:.3f} s after their occurrences"
    lateness = [at - occurrence for born in births.of.values() for occurrence, at in born]
    print(  # noqa: T201 - how much was played is part of the result
        f"{len(lateness)} occurrences of {len(schedules)} schedules in {(end - begin).days} days, "
        f"{play.died} processes died; "
        f"{sum(map(bool, lateness))} were fired later than at their moment, the worst by {max(lateness) / SECOND:.3f} s"
    )


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (date(2026, 3, 25), date(2026, 4, 8)),
        pytest.param(date(2026, 3, 1), date(2026, 4, 15), marks=pytest.mark.full),
        pytest.param(date(2026, 1, 1), date(2027, 1, 1), marks=[pytest.mark.full, pytest.mark.timeout(600)]),
    ],
    ids=["two weeks with changes of clocks both ways", "six weeks with changes of clocks both ways", "a year"],
)
def test_each_occurrence_is_fired_once_and_in_time_whoever_dies(begin: date, end: date) -> None:
    assert list(played(begin, end)) == []
