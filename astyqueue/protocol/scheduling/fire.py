"""Firing schedules: one commit fires the next occurrences of many schedules and inserts their messages into the row.

The commit expects the header, and each schedule's column and occurrence timer, as they were read; it replaces the last
two. So if several processes find an occurrence due, exactly one fires it, whenever any of them crashes. After an
unknown outcome the columns show the result: the next scan, of any process, continues from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from astyqueue.errors import BadInput, OutcomeUnknown, Undecodable, UnknownTrigger
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.schedule import AfterFailure, Origin, Overlap, Run, Schedule, Template
from astyqueue.protocol.layout.columns import HEADER, Entry, Header, Timer, dead_name, message_name, visible_at
from astyqueue.protocol.layout.schedule_column import (
    decode_schedule,
    encode_schedule,
    message_of,
    occurrence_timer,
    trigger_name,
)
from astyqueue.protocol.layout.unique_key import KeyOwner
from astyqueue.protocol.row.header_commit import HeaderCommits, RowTransaction, bump_header
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.row.unanswered_commits import UnansweredCommits
from astyqueue.protocol.scheduling.policies import Decision, LastRun, SkippedOccurrences, decide, skipped_by
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.protocol.sending.key_state import keys_of
from astyqueue.protocol.steps import BATCH_BYTES, BATCH_COLUMNS, Client, Steps, read_one
from astyqueue.store import Column, Name, Named, Outcome, Put, Refused
from astyqueue.structured_log import log_event
from astyqueue.triggers import Trigger, Triggers
from astyqueue.units import SECOND

_log: Final = logging.getLogger("astyqueue.schedules")
#: Schedules in one commit, which changes four columns for each.
TOGETHER: Final = 48
#: Bounds of one commit: columns and bytes; and columns for each schedule.
_COLUMNS: Final = BATCH_COLUMNS
_BYTES: Final = BATCH_BYTES * 7 // 8
_EACH: Final = 3
#: Commits before the row's messages are claimed again, and refusals after which this process leaves the row for now.
_COMMITS: Final = 32
_TRIES: Final = 3
#: After this long (microseconds) a firing decides on no more occurrences: its process must also renew leases and claim.
_LONG: Final = SECOND // 10
#: Delay before an occurrence that waits for its last run is tried again, and one whose schedule this process cannot
#: read.
WAITS: Final = SECOND // 2
UNKNOWN_FOR: Final = 60 * SECOND
#: Schedules cached from one firing to the next.
_REMEMBERED: Final = 50_000


class FiredOccurrence(NamedTuple):
    """An occurrence that was fired, when, its run, and the template of its message."""

    schedule: str
    occurrence: int
    at: int
    run: Run
    template: Template


def fired(schedule: Schedule, sent: Mapping[int, Run], at: int) -> list[FiredOccurrence]:
    """The messages that a schedule sent at a moment, by their occurrences."""
    return [FiredOccurrence(schedule.name, occurrence, at, run, schedule.template) for occurrence, run in sent.items()]


class KnownSchedule(NamedTuple):
    """A schedule as its column holds it, and its trigger."""

    value: bytes
    schedule: Schedule
    trigger: Trigger


@dataclass(slots=True)
class FiringPlan:
    """Occurrences of one row for one commit; `keys`: the columns of keys of schedules that end with it, by schedule.

    `gone`: occurrence timers without a schedule. `listed`: the timers that the commit adds. `shrunk`: those that lose
    cancelled messages, with what remains. `successors`: each schedule as this commit leaves it, by its new occurrence
    timer.
    """

    now: int
    timers: dict[Name, Timer] = field(default_factory=dict)
    known: dict[Name, KnownSchedule] = field(default_factory=dict)
    decisions: dict[Name, Decision] = field(default_factory=dict)
    gone: list[Name] = field(default_factory=list)
    keys: dict[str, Column] = field(default_factory=dict)
    listed: list[Timer] = field(default_factory=list)
    shrunk: list[tuple[Timer, Timer | None]] = field(default_factory=list)
    successors: dict[Name, KnownSchedule] = field(default_factory=dict)

    @property
    def cancelled(self) -> dict[Id, tuple[Schedule, Run]]:
        """The runs that are cancelled, each with its schedule."""
        decisions = self.decisions.values()
        return {one.cancelled.id: (one.schedule, one.cancelled) for one in decisions if one.cancelled}

    @property
    def anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.decisions or self.gone)

    @property
    def skipped(self) -> list[SkippedOccurrences]:
        """The occurrences that it skips."""
        decisions = self.decisions.values()
        return [one for each in decisions for one in skipped_by(each.schedule.name, each.firings)]

    @property
    def ended(self) -> list[Schedule]:
        """The schedules of repeated messages that this commit deletes."""
        return [decision.schedule for decision in self.decisions.values() if _ends(decision.schedule)]


class RowSchedules:
    """One process's cache of the schedules that it fires; losing it costs extra reads, never an occurrence."""

    def __init__(self, process: Client, triggers: Triggers) -> None:
        """Create an empty cache; `triggers` has the registered trigger types."""
        self.triggers = triggers
        self._process = process
        self._known: dict[tuple[str, Name], KnownSchedule] = {}

    def fire(
        self, snapshot: RowSnapshot, *, on_commit: Callable[[FiringPlan], None] | None = None
    ) -> Steps[list[FiredOccurrence]]:
        """Fire the due occurrences of a row, in at most 32 commits; updates the snapshot, or forgets it after an error.

        `on_commit` is called with each plan that was committed.
        """
        if len(self._known) > _REMEMBERED:
            self._known.clear()
        firings = _Firings(self._process, snapshot, self.triggers, self._known)
        sent: list[FiredOccurrence] = []
        try:
            while (firing := (yield from firings.until_applied())) is not None:
                sent += [
                    one for each in firing.decisions.values() for one in fired(each.schedule, each.sent, firing.now)
                ]
                if on_commit:
                    on_commit(firing)
        except BaseException:
            snapshot.forget()
            raise
        return sent


@dataclass(slots=True)
class _Firings(HeaderCommits[FiringPlan]):
    """The commits that fire the due occurrences of one row; `known`: the cached schedules, by row and timer."""

    operation: ClassVar[str] = "fire"

    process: Client
    snapshot: RowSnapshot
    triggers: Triggers
    known: dict[tuple[str, Name], KnownSchedule]
    _planned: int = 0
    _refused: int = 0
    _took: int = 0
    _header: Header = field(init=False)
    _unanswered: UnansweredCommits[FiringPlan] = field(init=False, default_factory=UnansweredCommits)

    def plan(self) -> Steps[FiringPlan | None]:
        """Decide on the due occurrences; None when no occurrence is due, or enough was done for now.

        A plan whose commit turns out to have been carried out late is returned once more, as its messages were sent.
        """
        snapshot, row = self.snapshot, self.snapshot.row
        while self._planned < _COMMITS and self._took < _LONG:
            self._planned += 1
            now = self.process.now()
            snapshot.apply_settles()
            timers = yield from load_snapshot(snapshot, now)
            if late := (yield from self._unanswered.carried_out(snapshot.loaded_header.value, self._has_traces)):
                return late[1]
            due = timers.due_occurrences(now, TOGETHER, snapshot.postponed)
            if not due:
                break
            firing = FiringPlan(now, {timer.name: timer for timer in due})
            yield from self._read(row, firing)
            runs = yield from _last_runs(row, [known.schedule for known in firing.known.values()])
            self._decide(row, firing, runs)
            firing.keys = yield from keys_of(row, firing.ended)
            for name in firing.known.keys() - firing.decisions.keys():
                snapshot.postponed[name] = now + WAITS
            for name in firing.timers.keys() - firing.known.keys() - set(firing.gone):
                snapshot.postponed[name] = now + UNKNOWN_FOR
            if firing.anything:
                return firing
        late = yield from self._unanswered.carried_out_since(snapshot, self.process.now(), self._has_traces)
        return late[1] if late else None

    def _read(self, row: str, firing: FiringPlan) -> Steps[None]:
        """The schedules of these timers: cached or read. A cached one is current: each change replaces its timer."""
        wanted = {
            name: trigger_name(timer.holder) for name, timer in firing.timers.items() if (row, name) not in self.known
        }
        columns = (yield from read_one(Named(row, tuple(dict.fromkeys(wanted.values()))))) if wanted else []
        values = {column.name: column.value for column in columns}
        for name in firing.timers:
            if name in wanted and wanted[name] not in values:
                firing.gone.append(name)
            elif name not in wanted or self._learn(row, firing.timers[name], values[wanted[name]]):
                firing.known[name] = self.known[row, name]

    def _learn(self, row: str, timer: Timer, value: bytes) -> bool:
        """Cache a schedule; False if this process cannot read it or its trigger: another process may be able to."""
        try:
            schedule = decode_schedule(row, value)
            trigger = self.triggers.read(schedule.anchored)
        except (Undecodable, BadInput, UnknownTrigger) as error:
            log_event(_log, logging.WARNING, "schedule_unreadable", schedule=timer.holder, row=row, error=error)
            return False
        self.known[row, timer.name] = KnownSchedule(value, schedule, trigger)
        return True

    def _decide(self, row: str, firing: FiringPlan, runs: dict[Run, LastRun]) -> None:
        """Decide on one schedule after the other, within the bounds of a commit and of time."""
        columns, size = len(firing.timers) * _EACH, 0
        began = self.process.now()
        for number, (name, (value, schedule, trigger)) in enumerate(tuple(firing.known.items())):
            body = len(schedule.template.body)
            full = columns >= _COLUMNS or (size > 0 and size + len(value) + body > _BYTES)
            if full or (number and self.process.now() - began >= _LONG):
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
            except Exception as error:  # noqa: BLE001 - a user's trigger may raise any error; other schedules must still fire
                log_event(
                    _log, logging.ERROR, "schedule_trigger_failed", exc_info=error, schedule=schedule.name, row=row
                )
                del firing.known[name]
                continue
            if decision.schedule is not schedule:
                firing.decisions[name] = decision
                columns += len(decision.sent)
                size += len(value) + len(decision.sent) * body
        self._took += self.process.now() - began

    def transaction(self, plan: FiringPlan) -> Steps[RowTransaction]:
        """The successors of the schedules, their messages and occurrence timers, and the next header."""
        change = RowTransaction(self.snapshot.row)
        for name in plan.decisions:
            self._replace(change, plan, name)
        for name in plan.gone:
            change.replace(plan.timers[name], None)
        plan.shrunk = self.snapshot.loaded_timers.without(set(cancelled)) if (cancelled := plan.cancelled) else []
        for timer, left in plan.shrunk:
            change.replace(timer, left)
        change.delete(*[message_name(*run) for _, run in cancelled.values()])
        yield from write_key_hints(self.process, _hints(change.row, plan))
        if puts := _messages(change, plan):
            plan.listed.append(visible_at(self.process, plan.now, entries_of(puts)))
        for timer in plan.listed:
            change.put_timer(timer)
        due = min((timer.due for timer in plan.listed), default=None)
        self._header = bump_header(self.process, change, self.snapshot.loaded_header.value, due=due)
        return change

    def _replace(self, change: RowTransaction, firing: FiringPlan, name: Name) -> None:
        """Replace a schedule and its occurrence timer by their successors."""
        known, schedule = firing.known[name], firing.decisions[name].schedule
        column = trigger_name(schedule.name)
        change.expect(column, known.value)
        change.replace(firing.timers[name], None)
        if _ends(schedule):
            change.delete(column)
            if key := firing.keys.get(schedule.name):
                _leave_key(change, key, firing.decisions[name])
            return
        value = encode_schedule(schedule)
        change.put(column, value)
        if timer := occurrence_timer(self.process, schedule):
            firing.listed.append(timer)
            firing.successors[timer.name] = KnownSchedule(value, schedule, known.trigger)

    def answered(self, plan: FiringPlan, outcome: Outcome) -> None:
        """After a refusal, use the header that it shows and read the schedules again."""
        if isinstance(outcome, Refused):
            self._forget(plan.timers)
            self.snapshot.refused(outcome.present[HEADER], plan.now, self.snapshot.scans.cursors)

    def commit(self, plan: FiringPlan) -> Steps[bool]:
        """Commit a plan once, unless it was carried out late; whether it was applied."""
        if plan is self._unanswered.late:
            return self.process.report_read_back(self.snapshot.row, self.operation, applied=True)
        return (yield from HeaderCommits.commit(self, plan))

    def read_back(self, plan: FiringPlan, unknown: OutcomeUnknown) -> Steps[bool]:
        """Whether the commit was applied, by the header; if others have committed since, it counts as refused."""
        row, expects = self.snapshot.row, self.snapshot.loaded_header.value
        self._forget(plan.timers)
        self.snapshot.forget()
        return (
            yield from self._unanswered.read_back(
                row, plan, unknown, expects=expects, header=self._header, traces=self._has_traces
            )
        )

    def _has_traces(self, plan: FiringPlan) -> Steps[bool]:  # noqa: ARG002 - the interface of every loop
        """Always False: a process that fires the same occurrence writes the same message."""
        yield from ()
        return False

    def remember(self, plan: FiringPlan) -> None:
        """Update the snapshot and the cached schedules."""
        self._unanswered.clear()
        fired = (*plan.decisions, *plan.gone)
        self._forget(fired)
        for name, known in plan.successors.items():
            self.known[self.snapshot.row, name] = known
        replaced = [*[(plan.timers[name], None) for name in fired], *plan.shrunk]
        self.snapshot.header_committed(self._header, replaced, plan.listed, at=plan.now)

    def again(self, refused: int) -> Steps[bool]:  # noqa: ARG002 - refusals between applied commits count too
        """Try again; after three refusals in all this process leaves the row for now."""
        yield from ()
        self._refused += 1
        return self._refused < _TRIES

    def _forget(self, names: Iterable[Name]) -> None:
        for name in names:
            self.known.pop((self.snapshot.row, name), None)


def _ends(schedule: Schedule) -> bool:
    """Whether it is to be deleted: a repeated message's schedule is, after its last one; others stay for operators."""
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
    return (yield from run_states(row, [one.run for one in schedules if one.run is not None and _asks(one)]))


def run_states(row: str, runs: list[Run]) -> Steps[dict[Run, LastRun]]:
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


def _messages(change: RowTransaction, firing: FiringPlan) -> list[Put]:
    sent = [
        (decision.schedule, run, occurrence)
        for decision in firing.decisions.values()
        for occurrence, run in decision.sent.items()
    ]
    puts = [
        message_of(schedule, run, occurrence=occurrence, now=firing.now, unique=schedule.name in firing.keys)
        for schedule, run, occurrence in sent
    ]
    for put in puts:
        change.put(put.name, put.value)
    return puts


def _hints(row: str, firing: FiringPlan) -> Iterator[tuple[str, MessageId]]:
    """The keys and ids of messages that need hints. A repeated message is found by its schedule while that exists."""
    for decision in firing.decisions.values():
        key = decision.schedule.template.key
        if key is not None and (decision.schedule.origin is not Origin.MESSAGE or _ends(decision.schedule)):
            yield from ((key, MessageId(row, *run)) for run in decision.sent.values())


def entries_of(puts: Iterable[Put]) -> list[Entry]:
    """The entries that list these messages, of which no attempt is used."""
    return [Entry(put.name.id, put.name.priority, 0) for put in puts]
