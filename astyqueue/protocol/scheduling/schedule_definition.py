"""Creating schedules and replacing them: those that people and code declare, and those of repeating messages."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

from astyqueue.clock import instant
from astyqueue.errors import BadInput, ScheduleTaken
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Unique
from astyqueue.model.schedule import Origin, Policies, Schedule, Template
from astyqueue.protocol.layout.schedule_column import (
    check_schedule,
)
from astyqueue.protocol.layout.unique_key import KeyOwningSchedule, key_name
from astyqueue.protocol.row.header_commit import CommitLoop, CommitPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import FiredOccurrence, fired
from astyqueue.protocol.scheduling.policies import (
    Decision,
    LastRun,
    decide,
)
from astyqueue.protocol.scheduling.schedule_commit import (
    ScheduleEdit,
    ScheduleEditPlan,
    ScheduleHandle,
)
from astyqueue.protocol.sending.key_state import (
    FREE,
    KeyState,
    cancel,
    key_states,
    keys_of,
    next_run_of,
    state_of_repeating,
)
from astyqueue.protocol.sending.unique import CANCELS, UniqueSendResult, checked, result_of_kept_key
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.store import Column, Put
from astyqueue.text import iso
from astyqueue.triggers import Cron, Every, Excluding, Once, Trigger


@dataclass(frozen=True, slots=True)
class RequestedSchedule:
    """A schedule as a caller requests it, with occurrences later than `since` (microseconds), or from now on.

    `anchored`: the trigger as it was anchored by the schedule that a new one continues.
    """

    trigger: Trigger
    template: Template
    policies: Policies = field(default_factory=Policies)
    origin: Origin = Origin.PEOPLE
    since: int | None = None
    anchored: Trigger | None = None


def save(handle: ScheduleHandle, wanted: RequestedSchedule, *, replaces: bool) -> Steps[Schedule]:
    """Create a schedule or replace the one of its name; raises ScheduleTaken if it exists and `replaces` is false.

    A replacement with an equal trigger goes on as before. Another trigger starts again, but past occurrences are
    deducted from its count, unless that is counted from a start. Raises BadInput if a person's trigger has no
    occurrence from now on.
    """
    mark = handle.process.nonce().hex()
    schedule: Schedule

    def plan(snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        nonlocal schedule
        column, before = (yield from handle.found()) or (None, None)
        if before is not None and not replaces:
            raise ScheduleTaken(handle.name)
        now = handle.process.now()
        if wanted.origin is Origin.PEOPLE and (before is None or before.declared != wanted.trigger.document()):
            _check_will_fire(handle.name, wanted.trigger, now)
        schedule = check_schedule(
            new_schedule(handle.name, wanted, mark=mark, now=now) if before is None else _remade(before, wanted, now)
        )
        if schedule == before:
            return None
        plan = handle.edit(snapshot, column, ScheduleEdit(mark, before, schedule))
        plan.freed += (yield from keys_of(handle.row, [before] if before else [])).values()  # no longer a message's own
        return plan

    return (yield from handle.commit(plan)) or schedule


def _check_will_fire(name: str, trigger: Trigger, now: int) -> None:
    if trigger.anchored(now, seed=name).after(now - 1) is None:
        problem = f"schedule {name!r} would never send anything: {_why_never(trigger)}"
        raise BadInput(problem)


def _why_never(trigger: Trigger) -> str:
    """Why a trigger has no occurrence from now on, and what to do."""
    if isinstance(trigger, Once) and trigger.at_us is not None:
        return f"{iso(instant(trigger.at_us))} has passed: give a later moment"
    if isinstance(trigger, Every | Cron) and trigger.end_us is not None:
        return f"its trigger has no occurrence from now until its end, {iso(instant(trigger.end_us))}: give a later end"
    return f"its trigger has no occurrence from now on, give another one than {trigger!s:.200}"


class RepeatingSend:
    """A send of a repeated message: its schedule, and its unique key if it has one.

    `fired`: the occurrences that were sent at once. `replaced`: the messages that were cancelled for it.
    """

    def __init__(self, handle: ScheduleHandle, wanted: RequestedSchedule, unique: Unique | None) -> None:
        """With `unique`, the schedule is made only if its key is free or is made free."""
        self.fired: list[FiredOccurrence] = []
        self._handle = handle
        self._wanted = wanted
        self._unique = unique
        self._mark = handle.process.nonce().hex()
        self._result: UniqueSendResult | None = None
        self.replaced: list[MessageId] = []

    def carry_out(self) -> Steps[UniqueSendResult]:
        """Create the schedule; returns its first run, or the message that keeps the key.

        Raises ScheduleTaken if the message has no unique key and a schedule of its name exists; raises BadInput, and
        stores nothing, if the trigger has no occurrence.
        """
        applied = yield from CommitLoop(self._handle.process, RowSnapshot(self._handle.row, 1)).carry_out(self._plan)
        if not isinstance(applied, ScheduleEditPlan) or applied.edit.after is None:
            return cast("UniqueSendResult", self._result)  # a plan that changes nothing sets it
        schedule = applied.edit.after
        self.fired = fired(schedule, applied.edit.sent, schedule.created)
        message = MessageId(self._handle.row, *(schedule.run or next_run_of(schedule)))
        return UniqueSendResult(message, sent=True, repeats=True)

    def _plan(self, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
        """Plan the schedule and its key, in place of the key's owner; None if that is to stay, or is leased."""
        row, now = self._handle.row, self._handle.process.now()
        column, before = (yield from self._handle.found()) or (None, None)
        if before is not None and (self._unique is None or before.origin is not Origin.MESSAGE):
            raise ScheduleTaken(self._handle.name)
        key = (yield from self._key()) if self._unique else FREE
        if any(one and one.mark == self._mark for one in (before, key.repeats and key.repeats.schedule)):
            return None  # an earlier commit of this send, without an answer, was carried out
        in_the_way = [key] if key.owner else []
        if column is not None and before is not None and key.repeats is None:
            in_the_way.append((yield from state_of_repeating(row, column, before)))
        stays = (
            in_the_way
            if self._unique not in CANCELS
            else [state for state in in_the_way if state.is_leased(snapshot, now)]
        )
        if result := result_of_kept_key(row, stays[0]) if stays else None:
            self._result = result
            return None
        return self._take_over(snapshot, column, before, key=key, in_the_way=in_the_way)

    def _key(self) -> Steps[KeyState]:
        """The state of its key; raises BadInput for another key of the same hash."""
        column = yield from read_column(self._handle.row, key_name(self._handle.name))
        states = yield from key_states(self._handle.row, [column] if column else [])
        return checked(states.get(key_name(self._handle.name), FREE), self._handle.name)

    def _take_over(
        self,
        snapshot: RowSnapshot,
        column: Column | None,
        before: Schedule | None,
        *,
        key: KeyState,
        in_the_way: list[KeyState],
    ) -> CommitPlan:
        """The commit that writes the schedule, and cancels the messages that it replaces."""
        row, now = self._handle.row, self._handle.process.now()
        begun = _begun(
            check_schedule(new_schedule(self._handle.name, self._wanted, mark=self._mark, now=now)),
            self._wanted.trigger,
            now,
        )
        plan = self._handle.edit(snapshot, column, ScheduleEdit(self._mark, before, begun.schedule, begun.sent))
        for state in in_the_way:
            if state.repeats is None:
                cancel(plan, snapshot, state)
            elif state.repeats.run:
                cancel(
                    plan, snapshot, KeyState(None, state.owner)
                )  # its schedule and occurrence timer are replaced anyway
        if self._unique:
            plan.taken.append(
                (
                    key.column,
                    Put(key_name(self._handle.name), KeyOwningSchedule(self._handle.name, self._mark).encode()),
                )
            )
        replaced = (result_of_kept_key(row, state) for state in in_the_way if state.is_stored)
        self.replaced = [result.id for result in replaced if result]
        return plan


def _begun(schedule: Schedule, trigger: Trigger, now: int) -> Decision:
    """Fire the first occurrence with the send if it is now, unless it is also the last: that is left to a firing."""
    if schedule.next is None:
        problem = f"the message would never be delivered: {_why_never(trigger)}"
        raise BadInput(problem)
    begun = decide(schedule, trigger.anchored(now, seed=schedule.name), LastRun(), now=now)
    return Decision(schedule) if begun.schedule.ended else begun


def new_schedule(name: str, wanted: RequestedSchedule, *, mark: str, now: int) -> Schedule:
    """A new schedule that begins now; `mark` identifies it."""
    since = now - 1 if wanted.since is None else wanted.since
    anchored = wanted.anchored or wanted.trigger.anchored(now, seed=name)
    return Schedule(
        name=name,
        declared=wanted.trigger.document(),
        anchored=anchored.document(),
        template=wanted.template,
        policies=wanted.policies,
        origin=wanted.origin,
        creation_nonce=mark,
        mark=mark,
        created=now,
        last=since,
        next=anchored.after(since),
    )


def _remade(before: Schedule, wanted: RequestedSchedule, now: int) -> Schedule:
    schedule = replace(before, template=wanted.template, policies=wanted.policies, origin=wanted.origin)
    declared = wanted.trigger.document()
    if declared == before.declared:
        return schedule
    last = max(before.last, now - 1)
    handled = before.occurrences if _count_in(before.declared) is not None else 0
    begin = max(last, now)
    anchored = _with_remaining_count(wanted.trigger, handled, begin, last).anchored(begin, seed=before.name)
    return replace(
        schedule,
        declared=declared,
        anchored=anchored.document(),
        last=last,
        next=anchored.after(last),
        occurrences=handled,
    )


def _count_in(document: object) -> object:
    """The count in a trigger's document, if there is one."""
    if not isinstance(document, dict):
        return None
    return document.get("count") or _count_in(document.get("trigger"))


def _with_remaining_count(trigger: Trigger, handled: int, begin: int, last: int) -> Trigger:
    """The trigger with its count reduced by the `handled` occurrences; at 0 it has none after `last`.

    A count with a start is left alone, because the occurrences before `begin` are in it. A trigger that starts anew may
    repeat `last`, which was handled: then it counts one more.
    """
    if isinstance(trigger, Excluding):
        return trigger.but(trigger=_with_remaining_count(trigger.trigger, handled, begin, last))
    if not isinstance(trigger, Every | Cron) or trigger.count is None or trigger.start_us is not None:
        return trigger
    if trigger.count <= handled:
        return trigger.but(count=None, start_us=last, end_us=last)
    begins_with_last = trigger.anchored(begin).after(last - 1) == last
    return trigger.but(count=trigger.count - handled + begins_with_last)
