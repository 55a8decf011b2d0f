"""Firing schedules: one commit fires the next slots of many schedules and inserts their messages into the row.

The commit expects the header, and each schedule's column and slot timer, as they were read; it replaces the last two.
So if several processes find a slot due, exactly one fires it, whenever any of them crashes. After an unknown outcome
the columns show the result: the next scan, of any process, continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue.errors import BadInput, OutcomeUnknown, Undecodable, UnknownTrigger
from astyqueue.ids import Id
from astyqueue.model.message import MessageId
from astyqueue.model.schedule import AfterFailure, Origin, Overlap, Run, Schedule, Template
from astyqueue.protocol.client import Client
from astyqueue.protocol.layout.columns import HEADER, Entry, State, Timer, Type, dead_name, encoded, message_name
from astyqueue.protocol.layout.schedule_column import (
    decode_schedule,
    encode_schedule,
    message_of,
    slot_timer,
    trigger_name,
)
from astyqueue.protocol.layout.unique_key import KeyOwner
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.row.transaction import RowTransaction, bump_header, timers_without
from astyqueue.protocol.scheduling.policies import Decision, LastRun, SkippedSlots, decide, skipped_by
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.protocol.sending.key_state import keys_of
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Committed, Name, Named, Put, Refused
from astyqueue.triggers import Trigger, Triggers
from astyqueue.units import SECOND

_log: Final = logging.getLogger("astyqueue.schedules")
#: Schedules in one commit, which changes four columns for each.
TOGETHER: Final = 48
#: Bounds of one commit: columns and bytes; and columns for each schedule.
_COLUMNS: Final = 200
_BYTES: Final = 448 * 1024
_EACH: Final = 3
#: Commits before the row's messages are claimed again, and refusals after which this process leaves the row for now.
_COMMITS: Final = 32
_TRIES: Final = 3
#: After this long (microseconds) a firing decides on no more slots: its process must also renew leases and claim.
_LONG: Final = SECOND // 10
#: Delay before a slot that waits for its last run is tried again, and one whose schedule this process cannot read.
WAITS: Final = SECOND // 2
UNKNOWN_FOR: Final = 60 * SECOND
#: Schedules cached from one firing to the next.
_REMEMBERED: Final = 50_000


class FiredSlot(NamedTuple):
    """A slot that was fired, when, its run, and the template of its message."""

    schedule: str
    slot: int
    at: int
    run: Run
    template: Template


def fired(schedule: Schedule, sent: Mapping[int, Run], at: int) -> list[FiredSlot]:
    """The messages that a schedule sent at a moment, by their slots."""
    return [FiredSlot(schedule.name, slot, at, run, schedule.template) for slot, run in sent.items()]


class KnownSchedule(NamedTuple):
    """A schedule as its column holds it, and its trigger."""

    value: bytes
    schedule: Schedule
    trigger: Trigger


@dataclass(slots=True)
class Firing:
    """Slots of one row for one commit; `keys`: the columns of keys owned by schedules that end with it, by schedule.

    `gone`: slot timers without a schedule. `took`: microseconds spent on the decisions.
    """

    now: int
    timers: dict[Name, Timer] = field(default_factory=dict)
    known: dict[Name, KnownSchedule] = field(default_factory=dict)
    decisions: dict[Name, Decision] = field(default_factory=dict)
    gone: list[Name] = field(default_factory=list)
    keys: dict[str, Column] = field(default_factory=dict)
    took: int = 0

    @property
    def cancelled(self) -> set[Id]:
        """The messages that are cancelled."""
        return {decision.cancelled.id for decision in self.decisions.values() if decision.cancelled}

    @property
    def anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.decisions or self.gone)

    @property
    def ended(self) -> list[Schedule]:
        """The schedules of repeated messages that this commit deletes."""
        return [decision.schedule for decision in self.decisions.values() if _ends(decision.schedule)]


class RowSchedules:
    """One process's cache of the schedules that it fires; losing it costs extra reads, never a slot."""

    def __init__(self, process: Client, triggers: Triggers) -> None:
        """Create an empty cache; `triggers` has the registered trigger types."""
        self.triggers = triggers
        self._process = process
        self._known: dict[tuple[str, Name], KnownSchedule] = {}

    def fire(self, snapshot: RowSnapshot, skipped: list[SkippedSlots] | None = None) -> Steps[list[FiredSlot]]:
        """Fire the due slots of a row, in at most 32 commits. The snapshot is updated, or forgotten after an error.

        Skipped slots are added to `skipped`, also before an error.
        """
        sent: list[FiredSlot] = []
        try:
            yield from self._fire(snapshot, sent, [] if skipped is None else skipped)
        except BaseException:
            snapshot.forget()
            raise
        return sent

    def _fire(self, snapshot: RowSnapshot, sent: list[FiredSlot], skipped: list[SkippedSlots]) -> Steps[None]:
        refused = took = 0
        for _ in range(_COMMITS):
            firing = (yield from self._plan(snapshot)) if took < _LONG else None
            if firing is None:
                return
            took += firing.took
            if not firing.anything or (yield from self._commit(snapshot, firing)):
                for decision in firing.decisions.values():
                    sent += fired(decision.schedule, decision.sent, firing.now)
                    skipped += skipped_by(decision.schedule.name, decision.firings)
                continue
            refused += 1
            if refused == _TRIES:
                return

    def _plan(self, snapshot: RowSnapshot) -> Steps[Firing | None]:
        """Decide on the due slots; None when no slot is due."""
        now = self._process.now()
        snapshot.apply_settles()
        yield from load_snapshot(snapshot, now)
        due = snapshot.upcoming.slots(snapshot.timers or {}, now, TOGETHER)
        if not due:
            return None
        firing = Firing(now, {timer.name: timer for timer in due})
        yield from self._read(snapshot.row, firing)
        runs = yield from _last_runs(snapshot.row, [known.schedule for known in firing.known.values()])
        self._decide(snapshot.row, firing, runs)
        firing.keys = yield from keys_of(snapshot.row, firing.ended)
        for name in firing.known.keys() - firing.decisions.keys():
            snapshot.upcoming.postponed[name] = now + WAITS
        for name in firing.timers.keys() - firing.known.keys() - set(firing.gone):
            snapshot.upcoming.postponed[name] = now + UNKNOWN_FOR
        return firing

    def _read(self, row: str, firing: Firing) -> Steps[None]:
        """The schedules of these timers: cached or read. A cached one is current: each change replaces its timer."""
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        wanted = {
            name: trigger_name(timer.holder) for name, timer in firing.timers.items() if (row, name) not in self._known
        }
        columns = (yield from read_one(Named(row, tuple(dict.fromkeys(wanted.values()))))) if wanted else []
        values = {column.name: column.value for column in columns}
        for name in firing.timers:
            if name in wanted and wanted[name] not in values:
                firing.gone.append(name)
            elif name not in wanted or self._learn(row, firing.timers[name], values[wanted[name]]):
                firing.known[name] = self._known[row, name]

    def _learn(self, row: str, timer: Timer, value: bytes) -> bool:
        """Cache a schedule; False if this process cannot read it or its trigger: another process may be able to."""
        try:
            schedule = decode_schedule(row, value)
            trigger = self.triggers.read(schedule.anchored)
        except (Undecodable, BadInput, UnknownTrigger) as error:
            _log.warning("parked schedule=%s row=%s error=%s", timer.holder, row, error)
            return False
        self._known[row, timer.name] = KnownSchedule(value, schedule, trigger)
        return True

    def _decide(self, row: str, firing: Firing, runs: dict[Run, LastRun]) -> None:
        """Decide on one schedule after the other, within the bounds of a commit and of time."""
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
                    schedule,
                    trigger,
                    last,
                    now=firing.now,
                    room=min(_COLUMNS - columns, (_BYTES - size - len(value)) // body),
                )
            except Exception:  # noqa: BLE001 - a user's trigger may raise any error; other schedules must still fire
                _log.exception("parked schedule=%s row=%s", schedule.name, row)
                del firing.known[name]
                continue
            if decision.schedule is not schedule:
                firing.decisions[name] = decision
                columns += len(decision.sent)
                size += len(value) + len(decision.sent) * body
        firing.took = self._process.now() - began

    def _commit(self, snapshot: RowSnapshot, firing: Firing) -> Steps[bool]:
        """Commit the decisions; False after a refusal or an unknown outcome: everything is then read again."""
        change = RowTransaction(snapshot.row)
        slots = {name: self._replace(change, firing, name) for name in firing.decisions}
        timers = [timer for timer, _ in slots.values() if timer]
        for name in firing.gone:
            change.replace(firing.timers[name], None)
        shrunk = timers_without(snapshot, firing.cancelled) if firing.cancelled else []
        for timer, left in shrunk:
            change.replace(timer, left)
        change.delete(
            *[message_name(*decision.cancelled) for decision in firing.decisions.values() if decision.cancelled]
        )
        yield from write_key_hints(self._process, _hints(snapshot.row, firing))
        if puts := _messages(change, firing):
            timers.append(visible_from_now(self._process, puts, firing.now))
        for timer in timers:
            change.put_timer(timer)
        header = bump_header(
            self._process, change, snapshot.value, due=min((timer.due for timer in timers), default=None)
        )
        if not (yield from self._applied(change, snapshot, firing)):
            return False
        self._remember(snapshot, firing, slots)
        for timer, left in shrunk:
            snapshot.replace(timer.name, [left] if left else [])
        snapshot.raised(header, timers, (), at=firing.now)
        return True

    def _replace(self, change: RowTransaction, firing: Firing, name: Name) -> tuple[Timer | None, bytes]:
        """Replace a schedule by its successor; returns its new slot timer and value."""
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

    def _applied(self, change: RowTransaction, snapshot: RowSnapshot, firing: Firing) -> Steps[bool]:
        """Whether the commit was applied; an unknown outcome counts as refused, and the next read resolves it."""
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown:
            snapshot.forget()
            outcome = None
        if isinstance(outcome, Committed):
            return True
        for name in firing.timers:
            self._known.pop((snapshot.row, name), None)
        if isinstance(outcome, Refused):
            snapshot.refused(outcome.present[HEADER], firing.now, snapshot.scans.cursors)
        return False

    def _remember(self, snapshot: RowSnapshot, firing: Firing, slots: dict[Name, tuple[Timer | None, bytes]]) -> None:
        for name in (*firing.decisions, *firing.gone):
            snapshot.replace(name, [])
            self._known.pop((snapshot.row, name), None)
        for name, (timer, value) in slots.items():
            if timer:
                self._known[snapshot.row, timer.name] = KnownSchedule(
                    value, firing.decisions[name].schedule, firing.known[name].trigger
                )


def _ends(schedule: Schedule) -> bool:
    """Whether it is to be deleted: a repeated message's schedule is after its last slot; others stay for operators."""
    return schedule.ended and schedule.origin is Origin.MESSAGE


def _leave_key(change: RowTransaction, key: Column, last: Decision) -> None:
    """Pass a key from a schedule to its last run; free the key if there is no such run."""
    change.expect(key.name, key.value)
    if last.sent:
        change.put(key.name, KeyOwner(last.schedule.name, *[*last.sent.values()][-1]).encode())
    else:
        change.delete(key.name)


def _last_runs(row: str, schedules: Iterable[Schedule]) -> Steps[dict[Run, LastRun]]:
    """The states of the last runs, of schedules that depend on them; a run that is gone never returns."""
    return (yield from standing(row, [one.run for one in schedules if one.run is not None and _asks(one)]))


def standing(row: str, runs: list[Run]) -> Steps[dict[Run, LastRun]]:
    """The states of these runs; the dead columns are read after the messages."""
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
    return (
        bool(schedule.backlog)
        or schedule.ended
        or policies.overlap is not Overlap.ALLOW
        or policies.after_failure is AfterFailure.PAUSE
    )


def _messages(change: RowTransaction, firing: Firing) -> list[Put]:
    sent = [
        (decision.schedule, run, slot) for decision in firing.decisions.values() for slot, run in decision.sent.items()
    ]
    puts = [
        message_of(schedule, run, slot=slot, now=firing.now, unique=schedule.name in firing.keys)
        for schedule, run, slot in sent
    ]
    for put in puts:
        change.put(put.name, put.value)
    return puts


def _hints(row: str, firing: Firing) -> Iterator[tuple[str, MessageId]]:
    """The keys and ids of messages that need hints. A repeated message is found by its schedule while that exists."""
    for decision in firing.decisions.values():
        key = decision.schedule.template.key
        if key is not None and (decision.schedule.origin is not Origin.MESSAGE or _ends(decision.schedule)):
            yield from ((key, MessageId(row, *run)) for run in decision.sent.values())


def visible_from_now(process: Client, puts: list[Put], due: int) -> Timer:
    """A timer, due at `due` (microseconds), for messages that a commit inserts: claims find them by it."""
    entries = tuple(Entry(put.name.id, put.name.priority, 0) for put in puts)
    return encoded(
        Timer(Name(Type.TIMER, 0, process.id_at(due), State.SNOOZED), entries, process.nonce(), "", len(entries))
    )
