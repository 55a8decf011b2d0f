"""Firing schedules: one commit takes the next slots of many, and puts their messages into the row.

The commit expects the header, and of each schedule its column and the timer of its slot, as they were read; it replaces
both. So of any number of processes that find a slot due one gets through, whenever the others die, and what a commit of
unknown outcome came to is told by the columns themselves: whoever looks next goes on from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.clock import SECOND
from astyqueue.errors import BadInput, OutcomeUnknown, Undecodable, UnknownTrigger
from astyqueue.ids import Id
from astyqueue.model.message import MessageId
from astyqueue.model.schedules import AfterFailure, Origin, Overlap, Run, Schedule, Template
from astyqueue.protocol.along import Owner
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, Entry, State, Timer, Type, dead_name, message_name
from astyqueue.protocol.keystate import keys_of
from astyqueue.protocol.lookup import leave_hints
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import shrunk_by
from astyqueue.protocol.settle import raise_for
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.slots import Decision, LastRun, Skipped, decide, skipped_by
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.protocol.triggercolumn import decode_schedule, encode_schedule, message_of, slot_timer, trigger_name
from astyqueue.store import Column, Committed, Name, Named, Put, Refused
from astyqueue.triggers import Trigger, Triggers

_log: Final = logging.getLogger("astyqueue.schedule")
#: Schedules in one commit, which changes four columns for each.
TOGETHER: Final = 48
#: Columns and bytes of one commit.
_COLUMNS: Final = 200
_BYTES: Final = 448 * 1024
_EACH: Final = 3
#: Commits before the row's messages have their turn again, and refusals in a row after which it is left to others for now.
_COMMITS: Final = 32
_TRIES: Final = 3
#: Working out slots for so long ends a firing after what was decided: whoever fires renews leases too, and claims.
_LONG: Final = SECOND // 10
#: A slot that waits for the run before to end is looked at again so soon; one whose schedule cannot be read here, so late.
WAITS: Final = SECOND // 2
UNKNOWN_FOR: Final = 60 * SECOND
#: Schedules remembered from one firing to the next.
_REMEMBERED: Final = 50_000


class Fired(NamedTuple):
    """A slot that was fired, when, and what its message is made of."""

    schedule: str
    slot: int
    at: int
    run: Run
    template: Template


def fired(schedule: Schedule, sent: Mapping[int, Run], at: int) -> list[Fired]:
    """The messages that a schedule sent at a moment, by their slots."""
    return [Fired(schedule.name, slot, at, run, schedule.template) for slot, run in sent.items()]


class Known(NamedTuple):
    """A schedule as its column holds it, and its trigger."""

    value: bytes
    schedule: Schedule
    trigger: Trigger


@dataclass(slots=True)
class Firing:
    """Slots of one row on their way into one commit; `keys` are those of schedules that end with it, by the schedules' names.

    `took` is the time, in microseconds, that it took to work them out.
    """

    now: int
    timers: dict[Name, Timer] = field(default_factory=dict)
    known: dict[Name, Known] = field(default_factory=dict)
    decisions: dict[Name, Decision] = field(default_factory=dict)
    gone: list[Name] = field(default_factory=list)
    keys: dict[str, Column] = field(default_factory=dict)
    took: int = 0

    @property
    def cancelled(self) -> set[Id]:
        """The messages that are removed."""
        return {decision.cancelled.id for decision in self.decisions.values() if decision.cancelled}

    @property
    def anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.decisions or self.gone)

    @property
    def ended(self) -> list[Schedule]:
        """Messages' own schedules that go with this commit."""
        return [decision.schedule for decision in self.decisions.values() if _ends(decision.schedule)]


class Schedules:
    """What one process knows of the schedules that it fires; forgetting it costs reads, never a promise."""

    def __init__(self, process: Process, triggers: Triggers) -> None:
        """Triggers that users wrote are looked up in `triggers`."""
        self.triggers = triggers
        self._process = process
        self._known: dict[tuple[str, Name], Known] = {}

    def fire(self, sight: Sight, skipped: list[Skipped] | None = None) -> Steps[list[Fired]]:
        """Fire what is due in a row, in a few commits at most. The sight knows all of it afterwards, or is forgotten.

        What is skipped is added to `skipped`, also when an error ends this.
        """
        sent: list[Fired] = []
        try:
            yield from self._fire(sight, sent, [] if skipped is None else skipped)
        except BaseException:
            sight.forget()
            raise
        return sent

    def _fire(self, sight: Sight, sent: list[Fired], skipped: list[Skipped]) -> Steps[None]:
        refused = took = 0
        for _ in range(_COMMITS):
            firing = (yield from self._plan(sight)) if took < _LONG else None
            if firing is None:
                return
            took += firing.took
            if not firing.anything or (yield from self._commit(sight, firing)):
                for decision in firing.decisions.values():
                    sent += fired(decision.schedule, decision.sent, firing.now)
                    skipped += skipped_by(decision.schedule.name, decision.firings)
                continue
            refused += 1
            if refused == _TRIES:
                return

    def _plan(self, sight: Sight) -> Steps[Firing | None]:
        """What is to become of the slots that are due; None when there is none (any more)."""
        now = self._process.now()
        sight.take_note()
        yield from know(sight, now)
        due = sight.upcoming.slots(sight.timers or {}, now, TOGETHER)
        if not due:
            return None
        firing = Firing(now, {timer.name: timer for timer in due})
        yield from self._read(sight.row, firing)
        runs = yield from _last_runs(sight.row, [known.schedule for known in firing.known.values()])
        self._decide(sight.row, firing, runs)
        firing.keys = yield from keys_of(sight.row, firing.ended)
        for name in firing.known.keys() - firing.decisions.keys():
            sight.upcoming.postponed[name] = now + WAITS
        for name in firing.timers.keys() - firing.known.keys() - set(firing.gone):
            sight.upcoming.postponed[name] = now + UNKNOWN_FOR
        return firing

    def _read(self, row: str, firing: Firing) -> Steps[None]:
        """The schedules of these timers: as remembered, for whatever changes one gives it another timer, or read."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        wanted = {name: trigger_name(timer.holder) for name, timer in firing.timers.items() if (row, name) not in self._known}
        columns = (yield from read_one(Named(row, tuple(dict.fromkeys(wanted.values()))))) if wanted else []
        values = {column.name: column.value for column in columns}
        for name in firing.timers:
            if name in wanted and wanted[name] not in values:
                firing.gone.append(name)
            elif name not in wanted or self._learn(row, firing.timers[name], values[wanted[name]]):
                firing.known[name] = self._known[row, name]

    def _learn(self, row: str, timer: Timer, value: bytes) -> bool:
        """Remember a schedule; False if it cannot be read in this process, or its trigger cannot: another process may know more."""
        try:
            schedule = decode_schedule(row, value)
            trigger = self.triggers.read(schedule.anchored)
        except (Undecodable, BadInput, UnknownTrigger) as error:
            _log.warning("parked schedule=%s row=%s error=%s", timer.holder, row, error)
            return False
        self._known[row, timer.name] = Known(value, schedule, trigger)
        return True

    def _decide(self, row: str, firing: Firing, runs: dict[Run, LastRun]) -> None:
        """Decide on one schedule after the other, as far as there is room in a commit, and time."""
        columns, size = len(firing.timers) * _EACH, 0
        began = self._process.now()
        for number, (name, (value, schedule, trigger)) in enumerate(tuple(firing.known.items())):
            body = len(schedule.template.body)
            full = columns >= _COLUMNS or (size > 0 and size + len(value) + body > _BYTES)
            if full or (number and self._process.now() - began >= _LONG):
                del firing.timers[name], firing.known[name]
                continue
            last = runs.get(schedule.run, LastRun()) if schedule.run else LastRun()
            try:
                decision = decide(
                    schedule, trigger, last, now=firing.now, room=min(_COLUMNS - columns, (_BYTES - size - len(value)) // body)
                )
            except Exception:  # noqa: BLE001 - a user's trigger may raise anything, and other schedules go on
                _log.exception("parked schedule=%s row=%s", schedule.name, row)
                del firing.known[name]
                continue
            if decision.schedule is not schedule:
                firing.decisions[name] = decision
                columns += len(decision.sent)
                size += len(value) + len(decision.sent) * body
        firing.took = self._process.now() - began

    def _commit(self, sight: Sight, firing: Firing) -> Steps[bool]:
        """Commit what was decided. A refusal, or an unknown outcome, has everything read anew."""
        change = Change(sight.row)
        slots = {name: self._replace(change, firing, name) for name in firing.decisions}
        timers = [timer for timer, _ in slots.values() if timer]
        for name in firing.gone:
            change.replace(firing.timers[name], None)
        shrunk = shrunk_by(sight, firing.cancelled) if firing.cancelled else []
        for timer, left in shrunk:
            change.replace(timer, left)
        change.delete(*[message_name(*decision.cancelled) for decision in firing.decisions.values() if decision.cancelled])
        yield from leave_hints(self._process, _hints(sight.row, firing))
        if puts := _messages(change, firing):
            timers.append(listing(self._process, puts, firing.now))
        for timer in timers:
            change.put_timer(timer)
        header = raise_for(self._process, change, sight.value, due=min((timer.due for timer in timers), default=None))
        if not (yield from self._applied(change, sight, firing)):
            return False
        self._remember(sight, firing, slots)
        for timer, left in shrunk:
            sight.replace(timer.name, [left] if left else [])
        sight.raised(header, timers, (), at=firing.now)
        return True

    def _replace(self, change: Change, firing: Firing, name: Name) -> tuple[Timer | None, bytes]:
        """Put a schedule's successor in its place; its new timer and value."""
        known, schedule = firing.known[name], firing.decisions[name].schedule
        column = trigger_name(schedule.name)
        change.expect(column, known.value)
        change.replace(firing.timers[name], None)
        if _ends(schedule):
            change.delete(column)
            if key := firing.keys.get(schedule.name):
                _leave_key(change, key, firing.decisions[name])
            return None, b""
        value = encode_schedule(schedule)
        change.put(column, value)
        return slot_timer(self._process, schedule), value

    def _applied(self, change: Change, sight: Sight, firing: Firing) -> Steps[bool]:
        """Whether the commit went through; if that is unknown it counts as refused, and what is read next tells."""
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown:
            sight.forget()
            outcome = None
        if isinstance(outcome, Committed):
            return True
        for name in firing.timers:
            self._known.pop((sight.row, name), None)
        if isinstance(outcome, Refused):
            sight.refused(outcome.present[HEADER], firing.now, sight.looks.cursors)
        return False

    def _remember(self, sight: Sight, firing: Firing, slots: dict[Name, tuple[Timer | None, bytes]]) -> None:
        for name in (*firing.decisions, *firing.gone):
            sight.replace(name, [])
            self._known.pop((sight.row, name), None)
        for name, (timer, value) in slots.items():
            if timer:
                self._known[sight.row, timer.name] = Known(value, firing.decisions[name].schedule, firing.known[name].trigger)


def _ends(schedule: Schedule) -> bool:
    """Whether it is done with: a message's own goes with its last slot, others stay for people to look at."""
    return schedule.ended and schedule.origin is Origin.MESSAGE


def _leave_key(change: Change, key: Column, last: Decision) -> None:
    """Have a key pass from a schedule to the run that ends it; without one it is free."""
    change.expect(key.name, key.value)
    if last.sent:
        change.put(key.name, Owner(last.schedule.name, *[*last.sent.values()][-1]).encode())
    else:
        change.delete(key.name)


def _last_runs(row: str, schedules: Iterable[Schedule]) -> Steps[dict[Run, LastRun]]:
    """How the last messages stand, of those schedules to which it matters; a message that is gone never comes back."""
    return (yield from standing(row, [one.run for one in schedules if one.run is not None and _asks(one)]))


def standing(row: str, runs: list[Run]) -> Steps[dict[Run, LastRun]]:
    """How these messages stand; dead columns are read after messages."""
    if not runs:
        return {}
    present = yield from read_one(Named(row, tuple(message_name(*run) for run in runs), values=False))
    alive = {column.name.id for column in present}
    left = tuple(dead_name(*run) for run in runs if run.id in alive)
    columns = (yield from read_one(Named(row, left, values=False))) if left else []
    dead = {column.name.id for column in columns}
    return {run: LastRun(run.id in alive and run.id not in dead, run.id in dead) for run in runs}


def _asks(schedule: Schedule) -> bool:
    policies = schedule.policies
    return bool(schedule.backlog) or schedule.ended or policies.overlap is not Overlap.ALLOW or policies.after_failure is AfterFailure.PAUSE


def _messages(change: Change, firing: Firing) -> list[Put]:
    """Put in the messages that were decided on."""
    sent = [(decision.schedule, run, slot) for decision in firing.decisions.values() for slot, run in decision.sent.items()]
    puts = [message_of(schedule, run, slot=slot, now=firing.now, unique=schedule.name in firing.keys) for schedule, run, slot in sent]
    for put in puts:
        change.put(put.name, put.value)
    return puts


def _hints(row: str, firing: Firing) -> Iterator[tuple[str, MessageId]]:
    """Where messages with keys will be. A message's own schedule is found by its key itself, as long as it is there."""
    for decision in firing.decisions.values():
        key = decision.schedule.template.key
        if key is not None and (decision.schedule.origin is not Origin.MESSAGE or _ends(decision.schedule)):
            yield from ((key, MessageId(row, *run)) for run in decision.sent.values())


def listing(process: Process, puts: list[Put], due: int) -> Timer:
    """A timer, due now, for what a commit inserts: there it is found, whatever its id."""
    entries = tuple(Entry(put.name.id, put.name.priority, 0) for put in puts)
    return with_value(Timer(Name(Type.TIMER, 0, process.id_at(due), State.SNOOZED), entries, process.nonce(), "", len(entries)))
