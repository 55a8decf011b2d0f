"""Schedules in one row: who fires them, what was ever sent for them, and whether that is one message an occurrence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from astyqueue.ids import Id
from astyqueue.model.schedule import Policies, Schedule, Template
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import State, Type, decode_timer
from astyqueue.protocol.layout.schedule_column import run_of
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import FiredOccurrence, RowSchedules
from astyqueue.protocol.scheduling.policies import due_occurrences
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle, schedules_in
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, save
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Client, Request, Steps, run
from astyqueue.store import Slice, Store
from astyqueue.testing import Faulty, Recording
from astyqueue.triggers import Every, Trigger, Triggers
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario
from tests.modelcheck.schedule import Actor, Work
from tests.unit.protocol.checked_store import ROW
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene

T = TypeVar("T")
MINUTE = 60 * SECOND
BODY = Template(b'{"to":"ada"}')


class Births(Faulty):
    """Counts how often each message came into being."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.born: Counter[Id] = Counter()
        self._there = self._messages()

    def _messages(self) -> set[Id]:
        return {column.name.id for column in self._store.read((Slice(ROW, Type.MESSAGE, values=False),))[0]}

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        there = self._messages()
        self.born.update(there - self._there)
        self._there = there
        return answer


class Timetable(Scene):
    """A row with schedules."""

    def __init__(self, unguarded: tuple[int, ...] = ()) -> None:
        super().__init__(unguarded=unguarded)
        self.births = Births(self.store)
        self.anchored = self.now

    def run(self, steps: Steps[T]) -> T:
        return run(steps, self.births)

    def handle(self, name: str, *, by: str = "maker") -> ScheduleHandle:
        return ScheduleHandle(self.process(by), ROW, name)

    def make(self, name: str = "digest", trigger: Trigger | None = None, **policies: str) -> Schedule:
        """A schedule; every minute from a minute from now on by default."""
        asked = {"misfire": "all", "overlap": "allow", "after_failure": "go on"} | policies
        wanted = RequestedSchedule(trigger or Every("1m", delay="1m"), BODY, Policies.read(**asked))
        return self.run(save(self.handle(name), wanted, replaces=True))

    def firing(self, name: str, snapshot: RowSnapshot | None = None) -> Steps[list[FiredOccurrence]]:
        """One round of firing by a process that knows nothing, or what its sight says."""
        return self.scheduler(name).fire(snapshot or RowSnapshot(ROW, 1))

    def scheduler(self, name: str) -> RowSchedules:
        """A process that fires, and remembers nothing yet."""
        return RowSchedules(self.process(name), Triggers())

    def recorded(self) -> Recording:
        """The store, with a record of what is asked of it."""
        return Recording(self.births)

    def all(self) -> list[Schedule]:
        """All schedules as they are."""
        return self.run(schedules_in([ROW]))

    def fire(self, name: str = "ann", snapshot: RowSnapshot | None = None) -> list[int]:
        """The occurrences that one process fires now."""
        return [fired.occurrence for fired in self.run(self.firing(name, snapshot))]

    def there(self, name: str = "digest") -> Schedule:
        """A schedule as it is."""
        return next(one for one in self.all() if one.name == name)

    def work(self, name: str = "bob", *, want: int = 200) -> list[Id]:
        """Take what is due and ack it."""
        return self.run(working(self.process(name), want=want))

    def minutes(self, occurrences: list[int]) -> list[float]:
        """Occurrences, or moments, in minutes since the beginning."""
        return [(occurrence - self.anchored) / MINUTE for occurrence in occurrences]

    def sends(self, name: str = "digest") -> list[float]:
        """The occurrences, in minutes, of all messages sent for a schedule; one that was sent twice is there twice."""
        schedule = self.there(name)
        occurrences = range(self.anchored, self.now + MINUTE, SECOND)
        found = [
            occurrence for occurrence in occurrences for _ in range(self.births.born[run_of(schedule, occurrence).id])
        ]
        return self.minutes(found)

    def occurrence_timers(self) -> list[str]:
        """The schedules that have a timer, by name, each as often as it has one."""
        columns = self.store.read((Slice(ROW, Type.TIMER),))[0]
        return sorted(
            decode_timer(ROW, column.name, column.value).holder
            for column in columns
            if column.name.state == State.NEXT_OCCURRENCE
        )

    def play(self, **actors: Actor) -> Scenario:
        """A world that is judged by `once_each`."""
        return Scenario(self.births, actors, self.once_each)

    def once_each(self, history: History) -> str | None:
        """The last process fires what is left; then each occurrence that was not skipped has had one message."""
        last = "last"
        while self.fire(last):
            pass
        for schedule in self.all():
            self._once_each(schedule)
        again = {id_ for id_, times in self.births.born.items() if times > 1}
        assert not again, f"{len(again)} messages were sent twice"
        self.sent = list(self.births.born)
        self.nothing_lost(history)
        return None

    def _once_each(self, schedule: Schedule) -> None:
        trigger = Triggers().read(schedule.anchored)
        due = due_occurrences(trigger, self.anchored, self.now)
        occurrences = due.latest if due else []
        skipped = {firing.occurrence for firing in schedule.history if firing.run is None}
        wanted = {run_of(schedule, occurrence).id: occurrence for occurrence in occurrences}
        born = {occurrence for id_, occurrence in wanted.items() if self.births.born[id_]}
        missing = set(occurrences) - born - skipped - set(schedule.backlog)
        if not schedule.paused:
            assert not missing, f"{len(missing)} occurrences of {schedule.name} have no message"
            assert self.occurrence_timers().count(schedule.name) == (schedule.wakes is not None), (
                "a schedule has lost its timer, or has two"
            )
        assert not born & skipped, "an occurrence was fired and skipped"
        assert schedule.fired == len(born), f"{schedule.fired} are counted, {len(born)} were fired"


def working(process: Client, *, want: int = 10, snapshot: RowSnapshot | None = None) -> Steps[list[Id]]:
    """Claim once and ack all that."""
    claimed = yield from claim(process, snapshot or RowSnapshot(ROW, 1), ClaimRequest(want, LEASE, ATTEMPTS))
    done: list[Id] = []
    for taken in claimed.claims:
        outcomes = {held.entry.id: ACK for held in taken.held}
        settled = yield from settle(process, ROW, SettleRequest(taken.timer, outcomes))
        done += [id_ for id_ in outcomes if id_ not in settled.lost]
    return done


def firer(
    table: Timetable, name: str, *, first: Callable[[], None] | None = None, snapshot: RowSnapshot | None = None
) -> Actor:
    """Fires once; `first` comes before all."""

    def act() -> Work:
        if first:
            yield first
        yield from table.firing(name, snapshot)

    return act


def worker(table: Timetable, name: str) -> Actor:
    """Fires, takes what is due, and acks it: what a worker does with a row."""

    def act() -> Work:
        snapshot = RowSnapshot(ROW, 1)
        yield from table.firing(name, snapshot)
        yield from working(table.process(name), snapshot=snapshot)

    return act
