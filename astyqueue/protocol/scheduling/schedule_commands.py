"""What operators do with schedules: pause, resume, run now, backfill, remove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.clock import instant
from astyqueue.errors import BadInput, Undecodable
from astyqueue.model.envelope import MessageId
from astyqueue.model.schedule import Firing, Run, Schedule
from astyqueue.protocol.layout.columns import State, message_name
from astyqueue.protocol.layout.rows import Ring, declared_row
from astyqueue.protocol.layout.schedule_column import (
    decode_schedule,
    trigger_name,
)
from astyqueue.protocol.row.compare_and_set import update
from astyqueue.protocol.row.header_commit import CommitLoop, CommitPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import FiredOccurrence, fired, run_states
from astyqueue.protocol.scheduling.policies import (
    SkippedOccurrences,
    due_occurrences,
    remembered,
    skipped_by,
)
from astyqueue.protocol.scheduling.schedule_commit import (
    ScheduleEdit,
    ScheduleEditPlan,
    ScheduleHandle,
    ScheduleUpdate,
    schedule_columns,
)
from astyqueue.protocol.sending.key_state import (
    keys_of,
)
from astyqueue.protocol.steps import BATCH_BYTES, Client, Steps, read_column, read_one
from astyqueue.store import Name, Slice
from astyqueue.triggers import Trigger

#: Occurrences of one backfill, and messages of it in one commit.
BACKFILLED: Final = 10_000
_TOGETHER: Final = 100
_BYTES: Final = BATCH_BYTES // 2
_MEANWHILE: Final = "it was paused"


def pause(handle: ScheduleHandle, why: str) -> Steps[Schedule]:
    """Pause a schedule until it is resumed; occurrences that are due meanwhile are skipped."""

    def becomes(schedule: Schedule) -> Steps[ScheduleUpdate | None]:
        yield from ()
        return None if schedule.paused else (replace(schedule, paused=why), {})

    return (yield from handle.change(becomes))


def resume(handle: ScheduleHandle, trigger: Callable[[Schedule], Trigger]) -> Steps[Schedule]:
    """Resume a paused schedule with its next occurrence from now on, even if its last run is dead."""

    def becomes(schedule: Schedule) -> Steps[ScheduleUpdate | None]:
        if not schedule.paused:
            return None
        runs = yield from run_states(handle.row, [schedule.run] if schedule.run else [])
        run = schedule.run if schedule.run and runs[schedule.run].alive else None
        return _passed(replace(schedule, paused="", run=run), trigger(schedule), handle.process.now()), {}

    return (yield from handle.change(becomes))


def passed_over(schedule: Schedule) -> list[SkippedOccurrences]:
    """The occurrences that the last resume skipped, if it is the latest entry of the schedule's history."""
    return skipped_by(schedule.name, [firing for firing in schedule.history[-1:] if firing.why == _MEANWHILE])


def _passed(schedule: Schedule, trigger: Trigger, now: int) -> Schedule:
    """The schedule with the occurrences of its pause skipped."""
    due = due_occurrences(trigger, schedule.last, now)
    if due is None:
        return schedule
    last = due.latest[-1]
    return replace(
        schedule,
        last=last,
        next=trigger.after(last),
        occurrences=schedule.occurrences + due.number,
        skipped=schedule.skipped + due.number,
        history=remembered(schedule, [Firing(due.first, due.number, now, None, _MEANWHILE)]),
    )


def run_now(handle: ScheduleHandle) -> Steps[Schedule]:
    """Send a message of a schedule now, in addition to its occurrences; also when it is paused or has ended."""

    def becomes(schedule: Schedule) -> Steps[ScheduleUpdate | None]:
        yield from ()
        now = handle.process.now()
        run = Run(schedule.template.priority, handle.process.id_at(now))
        history = remembered(schedule, [Firing(now, 0, now, run, "run on request")])
        return replace(schedule, run=run, fired=schedule.fired + 1, history=history), {now: run}

    return (yield from handle.change(becomes))


def backfill(handle: ScheduleHandle, occurrences: list[int]) -> Steps[list[FiredOccurrence]]:
    """Send a message for each of these occurrences, whether or not it was fired, all in one commit."""
    nonce = handle.process.nonce().hex()
    backfilled: list[FiredOccurrence]

    def becomes(schedule: Schedule) -> Steps[ScheduleUpdate | None]:
        nonlocal backfilled
        yield from ()
        now = handle.process.now()
        sent = {
            occurrence: Run(schedule.template.priority, ids.derived(occurrence, f"{schedule.name}\n{nonce}"))
            for occurrence in occurrences
        }
        firing = Firing(occurrences[0], len(occurrences), now, sent[occurrences[-1]], "backfilled")
        backfilled = fired(schedule, sent, now)
        return replace(schedule, fired=schedule.fired + len(occurrences), history=remembered(schedule, [firing])), sent

    yield from handle.change(becomes)
    return backfilled


def in_commits(schedule: Schedule, occurrences: list[int]) -> list[list[int]]:
    """The occurrences of a backfill, divided into groups that fit into one commit each."""
    together = min(_TOGETHER, max(1, _BYTES // len(schedule.template.body)))
    return [occurrences[first : first + together] for first in range(0, len(occurrences), together)]


def occurrences_between(trigger: Trigger, since: int, until: int) -> list[int]:
    """The occurrences from `since` to `until`, both included; BadInput for more than 10 000, or an empty range."""
    if since > until:
        problem = f"the range ends ({instant(until)}) before it begins ({instant(since)}): exchange since and until"
        raise BadInput(problem)
    occurrences: list[int] = []
    occurrence = trigger.after(since - 1)
    while occurrence is not None and occurrence <= until:
        if len(occurrences) == BACKFILLED:
            problem = (
                f"there are more than {BACKFILLED} occurrences from {instant(since)} to {instant(until)}: "
                "backfill them in parts"
            )
            raise BadInput(problem)
        occurrences.append(occurrence)
        occurrence = trigger.after(occurrence)
    return occurrences


class Removal(NamedTuple):
    """The schedule that was removed, and its last message if that was removed too; None if there was none."""

    schedule: Schedule | None = None
    message: MessageId | None = None


def remove(handle: ScheduleHandle, *, with_run: bool = False) -> Steps[Removal]:
    """Remove a schedule, and with `with_run` its last message if that is waiting, hidden or leased."""

    def plan(snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        found = yield from handle.found()
        if found is None:
            return None
        column, before = found
        plan = handle.edit(snapshot, column, ScheduleEdit("", before, None))
        plan.freed += (yield from keys_of(handle.row, [before])).values()
        run = before.run if with_run else None
        if run and (yield from run_states(handle.row, [run]))[run].alive:
            plan.messages.append(message_name(*run))
            plan.shrunk += snapshot.loaded_timers.without({run.id})
        return plan

    applied = yield from CommitLoop(handle.process, RowSnapshot(handle.row, 1)).carry_out(plan)
    if not isinstance(applied, ScheduleEditPlan):
        return Removal()
    messages = [MessageId(handle.row, name.priority, name.id) for name in applied.messages]
    return Removal(applied.edit.before, messages[0] if messages else None)


def discard(process: Client, row: str, name: Name) -> Steps[bool]:
    """Remove the schedule in this column, even if it cannot be read; returns whether it existed."""

    def plan(snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        column = yield from read_column(row, name)
        if column is None:
            return None
        occurrences = [
            timer
            for timer in snapshot.loaded_timers.in_state(State.NEXT_OCCURRENCE)
            if trigger_name(timer.holder) == name
        ]
        return _Discarding(freed=[column], shrunk=[(timer, None) for timer in occurrences])

    return (yield from CommitLoop(process, RowSnapshot(row, 1)).carry_out(plan)) is not None


class _Discarding(CommitPlan):
    """A commit that removes a schedule's column."""

    def was_done(self, row: str) -> Steps[bool]:
        """Whether the column is gone or has another value."""
        [discarded] = self.freed
        column = yield from read_column(row, discarded.name, exact=True)
        return column is None or column.value != discarded.value


def delete_schedules(process: Client, ring: Ring) -> Steps[None]:
    """Remove all schedules of a queue and free their keys; keys of unreadable ones are not freed, but can be taken.

    Then remove the records of what programs declared: a process that starts later declares its schedules anew.
    """
    for row in ring.homes():
        for column in (yield from schedule_columns(row)):
            try:
                name = decode_schedule(row, column.value).name
            except Undecodable:
                name = None
            if name is not None and trigger_name(name) == column.name:
                yield from remove(ScheduleHandle(process, row, name))
            else:
                yield from discard(process, row, column.name)
    declared = declared_row(ring.queue)
    for column in (yield from read_one(Slice(declared, 0, values=False))):
        yield from update(declared, column.name, lambda _: None, observers=process.observers)
