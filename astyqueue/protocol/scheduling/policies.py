"""Deciding on a schedule's slots: which are due, and what its policies send or skip for them; no I/O."""

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

#: Slots computed one by one; of more due slots, those between the first and the latest ones are not counted.
WALKED: Final = 20_000
#: Messages of one schedule in one commit.
AT_ONCE: Final = 50

_STILL_RUNS: Final = "the run before has not ended"
_ONE_WAITS: Final = "the run before has not ended, and a slot waits for that already"
_TOO_MANY_WAIT: Final = f"the run before has not ended, and {BACKLOG} slots wait for that already"
_CANCELLED: Final = "cancelled as the next slot came"
_MISFIRES: Final = {
    "latest": "late, and only the latest slot is fired",
    "all": "late, and only the latest few slots are fired",
    "skip": "too late",
    "within": "too late",
}


class DueSlots(NamedTuple):
    """The slots that are due: the first, the latest of them in order, and the number of all."""

    first: int
    latest: list[int]
    number: int


def due_slots(trigger: Trigger, last: int, now: int) -> DueSlots | None:
    """The slots later than `last` and up to now, if there are any."""
    found: deque[int] = deque(maxlen=ALL_AT_MOST)
    count = 0
    first: int | None = None
    for slot in islice(_slots(trigger, last, now), WALKED):
        first = slot if first is None else first
        found.append(slot)
        count += 1
    if first is None:
        return None
    if count == WALKED:
        latest = _latest(trigger, found[-1], now)
        return DueSlots(first, [*found, *latest][-ALL_AT_MOST:], count + len(latest))
    return DueSlots(first, list(found), count)


def _slots(trigger: Trigger, last: int, now: int) -> Iterator[int]:
    slot = trigger.after(last)
    while slot is not None and slot <= now:
        yield slot
        slot = trigger.after(slot)


def _latest(trigger: Trigger, last: int, now: int) -> list[int]:
    """The latest slots up to now, searched from further and further back: there may be millions in between."""
    back = SECOND
    while True:
        since = max(last, now - back)
        found = list(islice(_slots(trigger, since, now), WALKED))
        if since == last or len(found) >= ALL_AT_MOST:
            return found
        back *= 2


@dataclass(slots=True)
class Decision:
    """The result of firing a schedule: the schedule after it, the runs to send by slot, and the run to cancel.

    If nothing changes, `schedule` is the same object as before: it waits for its last run to end. `firings` has the
    result of every slot; the schedule itself keeps only the last few.
    """

    schedule: Schedule
    sent: dict[int, Run] = field(default_factory=dict)
    cancelled: Run | None = None
    firings: list[Firing] = field(default_factory=list)


class SkippedSlots(NamedTuple):
    """A number of `slots` of a schedule, from `slot` on, for which no message was sent; `at`: when that was decided."""

    schedule: str
    slot: int
    slots: int
    at: int
    why: str


def skipped_by(schedule: str, firings: Iterable[Firing]) -> list[SkippedSlots]:
    """The skipped slots among these firings."""
    return [
        SkippedSlots(schedule, firing.slot, firing.slots, firing.at, firing.why)
        for firing in firings
        if firing.run is None
    ]


class LastRun(NamedTuple):
    """The last run of a schedule: not ended yet, or a dead letter; neither: it was settled or deleted."""

    alive: bool = False
    dead: bool = False


def decide(schedule: Schedule, trigger: Trigger, run: LastRun, *, now: int, room: int = AT_ONCE) -> Decision:
    """Decide on a schedule's due slots, for at most `room` messages; afterwards the next slot may be due as well.

    A schedule that has ended belongs to a repeated message, and stays only while its last run is alive.
    """
    if schedule.ended and not run.alive:
        return Decision(replace(schedule, run=None))
    due = due_slots(trigger, schedule.last, now)
    if schedule.policies.after_failure is AfterFailure.PAUSE and run.dead and (due or schedule.backlog):
        return _pause(schedule, due, now)
    deciding = _Deciding(schedule, now, running=run.alive)
    if schedule.backlog and not run.alive:
        deciding.send(deciding.backlog.pop(0), 1)
    if due:
        deciding.deal_with(due, max(1, min(room, AT_ONCE)))
    return deciding.decision(trigger)


def _pause(schedule: Schedule, due: DueSlots | None, now: int) -> Decision:
    why = "its last run failed, and after that it pauses"
    slot = due.first if due else schedule.backlog[0]
    missed = (due.number if due else 0) + len(schedule.backlog)
    firings = [Firing(slot, missed, now, None, why)]
    paused = replace(
        schedule,
        paused=why,
        backlog=(),
        last=due.latest[-1] if due else schedule.last,
        slots=schedule.slots + (due.number if due else 0),
        skipped=schedule.skipped + missed,
        history=remembered(schedule, firings),
    )
    return Decision(paused, firings=firings)


def remembered(schedule: Schedule, firings: list[Firing]) -> tuple[Firing, ...]:
    """The history of a schedule with these added; the oldest are forgotten."""
    return (*schedule.history, *firings)[-REMEMBERED:]


class _Deciding:
    """The slots of one schedule, dealt with one after the other."""

    def __init__(self, schedule: Schedule, now: int, *, running: bool) -> None:
        self.backlog = list(schedule.backlog)
        self._schedule = schedule
        self._now = now
        self._running = running
        self._sent: dict[int, Run] = {}
        self._cancelled: Run | None = None
        self._firings: list[Firing] = []
        self._last = schedule.last
        self._slots = 0
        self._skipped = 0

    def deal_with(self, due: DueSlots, room: int) -> None:
        """Fire the slots that the policies allow, at most `room` messages."""
        kept = _kept(self._schedule.policies.misfire, due, self._now)
        fired = kept[: max(1, room - len(self._sent))]
        standing = due.number if self._schedule.policies.misfire.kind == "once" else len(kept)
        if dropped := due.number - standing:
            self._skip(due.first, dropped, _MISFIRES[self._schedule.policies.misfire.kind])
        for slot in fired:
            self._meet(slot, due.number if standing != len(kept) else 1)
        self._last = fired[-1] if len(fired) < len(kept) else due.latest[-1]
        self._slots += due.number - len(kept) + len(fired)

    def _meet(self, slot: int, stands_for: int) -> None:
        match self._schedule.policies.overlap:
            case Overlap.SKIP if self._running:
                self._skip(slot, stands_for, _STILL_RUNS)
            case Overlap.QUEUE_ONE if self._running:
                self._queue(slot, stands_for, (1, _ONE_WAITS))
            case Overlap.QUEUE_ALL if self._running:
                self._queue(slot, stands_for, (BACKLOG, _TOO_MANY_WAIT))
            case Overlap.CANCEL_RUNNING if self._running:
                self._cancel()
                self.send(slot, stands_for)
            case _:
                self.send(slot, stands_for)

    def send(self, slot: int, stands_for: int) -> None:
        """Send a message for a slot."""
        run = self._sent[slot] = run_of(self._schedule, slot)
        self._firings.append(Firing(slot, stands_for, self._now, run))
        self._running = True

    def _queue(self, slot: int, stands_for: int, bound: tuple[int, str]) -> None:
        most, why = bound
        if len(self.backlog) >= most:
            self._skip(slot, stands_for, why)
        else:
            self.backlog.append(slot)

    def _skip(self, slot: int, slots: int, why: str) -> None:
        self._skipped += slots
        self._firings.append(Firing(slot, slots, self._now, None, why))

    def _cancel(self) -> None:
        """Cancel the run planned just now, or else the last run."""
        if not self._sent:
            self._cancelled = self._schedule.run
            return
        slot, _ = self._sent.popitem()
        self._firings = [firing for firing in self._firings if firing.run is None or firing.slot != slot]
        self._skip(slot, 1, _CANCELLED)

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
            slots=self._schedule.slots + self._slots,
            fired=self._schedule.fired + len(self._sent),
            skipped=self._schedule.skipped + self._skipped,
            history=remembered(self._schedule, self._firings),
        )
        return Decision(schedule, self._sent, self._cancelled, self._firings)


def _kept(misfire: Misfire, due: DueSlots, now: int) -> list[int]:
    """The slots to send a message for, in order."""
    match misfire.kind:
        case "once":
            return [due.first]
        case "all":
            return due.latest[-misfire.bound :]
        case "skip":
            return [slot for slot in due.latest[-1:] if slot >= now - misfire.bound]
        case "within":
            return [slot for slot in due.latest if slot >= now - misfire.bound]
    return due.latest[-1:]
