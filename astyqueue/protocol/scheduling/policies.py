"""Deciding on a schedule's occurrences: which are due, and what its policies send or skip for them; no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

from astyqueue.model.schedule import (
    ALL_AT_MOST,
    BACKLOG,
    REMEMBERED,
    AfterFailure,
    Firing,
    Misfire,
    Overlap,
    Run,
    Schedule,
)
from astyqueue.protocol.layout.schedule_column import run_of
from astyqueue.triggers import Trigger
from astyqueue.units import SECOND

#: Occurrences computed one by one; of more due occurrences, those between the first and the latest ones are not
#: counted.
WALKED: Final = 20_000
#: Messages of one schedule in one commit.
AT_ONCE: Final = 50

_STILL_RUNS: Final = "the run before has not ended"
_ONE_WAITS: Final = "the run before has not ended, and an occurrence waits for that already"
_TOO_MANY_WAIT: Final = f"the run before has not ended, and {BACKLOG} occurrences wait for that already"
_CANCELLED: Final = "cancelled as the next occurrence came"
_MISFIRES: Final = {
    "latest": "late, and only the latest occurrence is fired",
    "all": "late, and only the latest few occurrences are fired",
    "skip": "too late",
    "within": "too late",
}


class DueOccurrences(NamedTuple):
    """The occurrences that are due: the first, the latest of them in order, and the number of all."""

    first: int
    latest: list[int]
    number: int


def due_occurrences(trigger: Trigger, last: int, now: int) -> DueOccurrences | None:
    """The occurrences later than `last` and up to now, if there are any."""
    found: deque[int] = deque(maxlen=ALL_AT_MOST)
    count = 0
    first: int | None = None
    for occurrence in islice(_occurrences(trigger, last, now), WALKED):
        first = occurrence if first is None else first
        found.append(occurrence)
        count += 1
    if first is None:
        return None
    if count == WALKED:
        latest = _latest(trigger, found[-1], now)
        return DueOccurrences(first, [*found, *latest][-ALL_AT_MOST:], count + len(latest))
    return DueOccurrences(first, list(found), count)


def _occurrences(trigger: Trigger, last: int, now: int) -> Iterator[int]:
    occurrence = trigger.after(last)
    while occurrence is not None and occurrence <= now:
        yield occurrence
        occurrence = trigger.after(occurrence)


def _latest(trigger: Trigger, last: int, now: int) -> list[int]:
    """The latest occurrences up to now, searched from further and further back: there may be millions in between."""
    back = SECOND
    while True:
        since = max(last, now - back)
        found = list(islice(_occurrences(trigger, since, now), WALKED))
        if since == last or len(found) >= ALL_AT_MOST:
            return found
        back *= 2


@dataclass(slots=True)
class Decision:
    """The result of firing a schedule: the schedule after it, the runs to send by occurrence, and the run to cancel.

    If nothing changes, `schedule` is the same object as before: it waits for its last run to end. `firings` has the
    result of every occurrence; the schedule itself keeps only the last few.
    """

    schedule: Schedule
    sent: dict[int, Run] = field(default_factory=dict)
    cancelled: Run | None = None
    firings: list[Firing] = field(default_factory=list)


class SkippedOccurrences(NamedTuple):
    """`occurrences` consecutive occurrences, starting at `occurrence`, got no message; `at`: when that was decided."""

    schedule: str
    occurrence: int
    occurrences: int
    at: int
    why: str


def skipped_by(schedule: str, firings: Iterable[Firing]) -> list[SkippedOccurrences]:
    """The skipped occurrences among these firings."""
    return [
        SkippedOccurrences(schedule, firing.occurrence, firing.occurrences, firing.at, firing.why)
        for firing in firings
        if firing.run is None
    ]


class LastRun(NamedTuple):
    """The last run of a schedule: not ended yet, or a dead letter; neither: it was settled or deleted."""

    alive: bool = False
    dead: bool = False


def decide(schedule: Schedule, trigger: Trigger, run: LastRun, *, now: int, room: int = AT_ONCE) -> Decision:
    """Decide on a schedule's due occurrences, for at most `room` messages; afterwards the next one may be due as well.

    A schedule that has ended belongs to a repeated message, and stays only while its last run is alive.
    """
    if schedule.ended and not run.alive:
        return Decision(replace(schedule, run=None))
    pauses = schedule.policies.after_failure is AfterFailure.PAUSE and run.dead
    room = max(1, min(room, AT_ONCE))
    due = due_occurrences(trigger, schedule.last, now if pauses else _horizon(schedule, trigger, now, room))
    if pauses and (due or schedule.backlog):
        return _pause(schedule, due, now)
    deciding = _Deciding(schedule, now, running=run.alive)
    if schedule.backlog and not run.alive:
        deciding.send(deciding.backlog.pop(0), 1)
    if due:
        deciding.deal_with(due, room)
    return deciding.decision(trigger)


def _horizon(schedule: Schedule, trigger: Trigger, now: int, room: int) -> int:
    """The moment up to which occurrences are decided on; later ones stay due, however many there are.

    That is now, except under misfire="within": there it is the last of as many punctual enough ones as there is room
    for, because all of them are fired, and `DueOccurrences` has the latest ones only.
    """
    misfire = schedule.policies.misfire
    if misfire.kind != "within":
        return now
    within = islice(_occurrences(trigger, max(schedule.last, now - misfire.bound - 1), now), room)
    return max(within, default=now)


def _pause(schedule: Schedule, due: DueOccurrences | None, now: int) -> Decision:
    why = "its last run failed, and after that it pauses"
    occurrence = due.first if due else schedule.backlog[0]
    missed = (due.number if due else 0) + len(schedule.backlog)
    firings = [Firing(occurrence, missed, now, None, why)]
    paused = replace(
        schedule,
        paused=why,
        backlog=(),
        last=due.latest[-1] if due else schedule.last,
        occurrences=schedule.occurrences + (due.number if due else 0),
        skipped=schedule.skipped + missed,
        history=remembered(schedule, firings),
    )
    return Decision(paused, firings=firings)


def remembered(schedule: Schedule, firings: list[Firing]) -> tuple[Firing, ...]:
    """The history of a schedule with these added; the oldest are forgotten."""
    return (*schedule.history, *firings)[-REMEMBERED:]


class _Deciding:
    """The occurrences of one schedule, dealt with one after the other."""

    def __init__(self, schedule: Schedule, now: int, *, running: bool) -> None:
        self.backlog = list(schedule.backlog)
        self._schedule = schedule
        self._now = now
        self._running = running
        self._sent: dict[int, Run] = {}
        self._cancelled: Run | None = None
        self._firings: list[Firing] = []
        self._last = schedule.last
        self._occurrences = 0
        self._skipped = 0

    def deal_with(self, due: DueOccurrences, room: int) -> None:
        """Fire the occurrences that the policies allow, at most `room` messages."""
        kept = _kept(self._schedule.policies.misfire, due, self._now)
        fired = kept[: max(1, room - len(self._sent))]
        counted = due.number if self._schedule.policies.misfire.kind == "once" else len(kept)
        if dropped := due.number - counted:
            self._skip(due.first, dropped, _MISFIRES[self._schedule.policies.misfire.kind])
        for occurrence in fired:
            self._meet(occurrence, due.number if counted != len(kept) else 1)
        self._last = fired[-1] if len(fired) < len(kept) else due.latest[-1]
        self._occurrences += due.number - len(kept) + len(fired)

    def _meet(self, occurrence: int, stands_for: int) -> None:
        match self._schedule.policies.overlap:
            case Overlap.SKIP if self._running:
                self._skip(occurrence, stands_for, _STILL_RUNS)
            case Overlap.QUEUE_ONE if self._running:
                self._queue(occurrence, stands_for, most=1, why=_ONE_WAITS)
            case Overlap.QUEUE_ALL if self._running:
                self._queue(occurrence, stands_for, most=BACKLOG, why=_TOO_MANY_WAIT)
            case Overlap.CANCEL_RUNNING if self._running:
                self._cancel()
                self.send(occurrence, stands_for)
            case _:
                self.send(occurrence, stands_for)

    def send(self, occurrence: int, stands_for: int) -> None:
        """Send a message for an occurrence."""
        run = self._sent[occurrence] = run_of(self._schedule, occurrence)
        self._firings.append(Firing(occurrence, stands_for, self._now, run))
        self._running = True

    def _queue(self, occurrence: int, stands_for: int, *, most: int, why: str) -> None:
        if len(self.backlog) >= most:
            self._skip(occurrence, stands_for, why)
        else:
            self.backlog.append(occurrence)

    def _skip(self, occurrence: int, occurrences: int, why: str) -> None:
        self._skipped += occurrences
        self._firings.append(Firing(occurrence, occurrences, self._now, None, why))

    def _cancel(self) -> None:
        """Cancel the run planned just now, or else the last run."""
        if not self._sent:
            self._cancelled = self._schedule.run
            return
        occurrence, _ = self._sent.popitem()
        self._firings = [firing for firing in self._firings if firing.run is None or firing.occurrence != occurrence]
        self._skip(occurrence, 1, _CANCELLED)

    def decision(self, trigger: Trigger) -> Decision:
        """The decision; the unchanged schedule if nothing happened."""
        if not self._sent and not self._firings and self._last == self._schedule.last:
            return Decision(self._schedule)
        schedule = replace(
            self._schedule,
            last=self._last,
            next=trigger.after(self._last),
            backlog=tuple(self.backlog),
            run=[*self._sent.values()][-1] if self._sent else self._schedule.run,
            occurrences=self._schedule.occurrences + self._occurrences,
            fired=self._schedule.fired + len(self._sent),
            skipped=self._schedule.skipped + self._skipped,
            history=remembered(self._schedule, self._firings),
        )
        return Decision(schedule, self._sent, self._cancelled, self._firings)


def _kept(misfire: Misfire, due: DueOccurrences, now: int) -> list[int]:
    """The occurrences to send a message for, in order."""
    match misfire.kind:
        case "once":
            return [due.first]
        case "all":
            return due.latest[-misfire.bound :]
        case "skip":
            return [occurrence for occurrence in due.latest[-1:] if occurrence >= now - misfire.bound]
        case "within":
            return [occurrence for occurrence in due.latest if occurrence >= now - misfire.bound]
    return due.latest[-1:]
