"""Making schedules, and what people do to them besides letting them fire."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, cast

from astyqueue import ids
from astyqueue.clock import instant
from astyqueue.errors import BadInput, ScheduleTaken, Undecodable
from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import Unique
from astyqueue.model.schedules import Firing, Origin, Policies, Run, Schedule, Template
from astyqueue.protocol.along import ScheduleOwner, key_name
from astyqueue.protocol.columns import State, Type, message_name
from astyqueue.protocol.editing import Changed, Edit, Kept
from astyqueue.protocol.fire import Fired, fired, standing
from astyqueue.protocol.keystate import FREE, KeyState, cancel, key_states, keys_of, run_to_come, state_of_repeating
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import Plan, Raising, shrunk_by
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.slots import Decision, LastRun, Skipped, decide, due_slots, remembered, skipped_by
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.protocol.triggercolumn import check_schedule, decode_schedule, readable_schedule, trigger_name
from astyqueue.protocol.unique import CANCELS, Holder, checked, holder_of
from astyqueue.store import Column, Name, Put, Slice
from astyqueue.triggers import Cron, Every, Excluding, Trigger

#: Slots of one backfill, and messages of it in one commit.
BACKFILLED: Final = 10_000
_TOGETHER: Final = 100
_BYTES: Final = 256 * 1024
#: Schedules read together where one is looked for.
_PAGE: Final = 100
_MEANWHILE: Final = "it was paused"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A schedule as somebody asks for it. With `since`, its slots are those later than that; else those from now on."""

    trigger: Trigger
    template: Template
    policies: Policies = field(default_factory=Policies)
    origin: Origin = Origin.PEOPLE
    since: int | None = None


def save(kept: Kept, wanted: Wanted, *, replaces: bool) -> Steps[Schedule]:
    """Make a schedule, or replace the one that has its name; ScheduleTaken if there is one and it is not to be replaced.

    Replaced by an equal trigger it goes on as it was. Another trigger begins anew, but for a count, of which the slots
    that were dealt with are taken off. When a person asks for a trigger that is over already, BadInput is raised.
    """
    mark = kept.process.nonce().hex()
    after: list[Schedule] = []

    def plan(sight: Sight) -> Steps[Plan | None]:
        column, before = (yield from kept.found()) or (None, None)
        if before is not None and not replaces:
            raise ScheduleTaken(kept.name)
        now = kept.process.now()
        if wanted.origin is Origin.PEOPLE and (before is None or before.declared != wanted.trigger.document()):
            _see_that_it_will_fire(kept.name, wanted.trigger, now)
        schedule = check_schedule(made(kept.name, wanted, mark=mark, now=now) if before is None else _remade(before, wanted, now))
        after[:] = [schedule]
        if schedule == before:
            return None
        plan = kept.edit(sight, column, Edit(mark, before, schedule))
        plan.freed += (yield from keys_of(kept.row, [before] if before else [])).values()  # it is no message's own any more
        return plan

    yield from Raising(kept.process, Sight(kept.row, 1)).carry_out(plan)
    return after[0]


def _see_that_it_will_fire(name: str, trigger: Trigger, now: int) -> None:
    if trigger.anchored(now, seed=name).after(now - 1) is None:
        problem = f"schedule {name!r} would never send anything: {trigger} has no slot from now on"
        raise BadInput(problem)


class Repeating:
    """A message's own schedule in the making, and its unique key if it is to have one.

    `fired` is what was sent of it at once.
    """

    def __init__(self, kept: Kept, wanted: Wanted, unique: Unique | None) -> None:
        """With `unique`, the schedule is made only if its key is free or is made free."""
        self.fired: list[Fired] = []
        self._kept = kept
        self._wanted = wanted
        self._unique = unique
        self._mark = kept.process.nonce().hex()
        self._holder: Holder | None = None

    def carry_out(self) -> Steps[Holder]:
        """Have the message come again, and say by which run; or which message has the key that stays.

        Without a unique key ScheduleTaken is raised if there is a schedule of its name. A trigger without a slot raises
        BadInput, and nothing is there of it.
        """
        yield from Raising(self._kept.process, Sight(self._kept.row, 1)).carry_out(self._plan)
        return cast("Holder", self._holder)  # each plan says whose the key is

    def _plan(self, sight: Sight) -> Steps[Plan | None]:
        """The schedule and its key, in the place of what has that; None if that is to stay, or is in hand."""
        row, now = self._kept.row, self._kept.process.now()
        column, before = (yield from self._kept.found()) or (None, None)
        if before is not None and (self._unique is None or before.origin is not Origin.MESSAGE):
            raise ScheduleTaken(self._kept.name)
        key = (yield from self._key()) if self._unique else FREE
        in_the_way = [key] if key.owner else []
        if column is not None and before is not None and key.repeats is None:
            in_the_way.append((yield from state_of_repeating(row, column, before)))
        stays = in_the_way if self._unique not in CANCELS else [state for state in in_the_way if state.in_hand(sight, now)]
        if holder := holder_of(row, stays[0]) if stays else None:
            self._holder = holder
            return None
        return self._take_over(sight, column, before, key=key, in_the_way=in_the_way)

    def _key(self) -> Steps[KeyState]:
        """How its key stands; another key of the same hash raises BadInput."""
        column = yield from read_column(self._kept.row, key_name(self._kept.name))
        states = yield from key_states(self._kept.row, [column] if column else [])
        return checked(states.get(key_name(self._kept.name), FREE), self._kept.name)

    def _take_over(
        self, sight: Sight, column: Column | None, before: Schedule | None, *, key: KeyState, in_the_way: list[KeyState]
    ) -> Plan:
        """The commit that puts the schedule, and cancels what it takes the place of."""
        row, now = self._kept.row, self._kept.process.now()
        begun = _begun(check_schedule(made(self._kept.name, self._wanted, mark=self._mark, now=now)), self._wanted.trigger, now)
        run = begun.schedule.run or run_to_come(begun.schedule)
        plan = self._kept.edit(sight, column, Edit(self._mark, before, begun.schedule, begun.sent))
        self.fired = fired(begun.schedule, begun.sent, now)
        for state in in_the_way:
            if state.repeats is None:
                cancel(plan, sight, state)
            elif state.repeats.run:
                cancel(plan, sight, KeyState(None, state.owner))  # its schedule and the timer of that are replaced anyway
        if self._unique:
            plan.taken.append((key.column, Put(key_name(self._kept.name), ScheduleOwner(self._kept.name, self._mark).encode())))
        replaced = holder_of(row, in_the_way[0]) if in_the_way else None
        self._holder = Holder(MessageId(row, *run), sent=True, replaced=replaced.id if replaced else None, repeats=True)
        return plan


def _begun(schedule: Schedule, trigger: Trigger, now: int) -> Decision:
    """A message's own trigger begins as it is sent, if its first slot is now; a last slot is left to whoever fires it."""
    if schedule.next is None:
        problem = f"{trigger} has no slot from now on, so the message would never be handed out"
        raise BadInput(problem)
    begun = decide(schedule, trigger.anchored(now, seed=schedule.name), LastRun(), now=now)
    return Decision(schedule) if begun.schedule.ended else begun


def made(name: str, wanted: Wanted, *, mark: str, now: int) -> Schedule:
    """A schedule that begins now."""
    since = now - 1 if wanted.since is None else wanted.since
    anchored = wanted.trigger.anchored(now, seed=name)
    return Schedule(
        name=name,
        declared=wanted.trigger.document(),
        anchored=anchored.document(),
        template=wanted.template,
        policies=wanted.policies,
        origin=wanted.origin,
        made=mark,
        mark=mark,
        created=now,
        last=since,
        next=anchored.after(since),
    )


def _remade(before: Schedule, wanted: Wanted, now: int) -> Schedule:
    schedule = replace(before, template=wanted.template, policies=wanted.policies, origin=wanted.origin)
    declared = wanted.trigger.document()
    if declared == before.declared:
        return schedule
    last = max(before.last, now - 1)
    slots = before.slots if _count_in(before.declared) is not None else 0
    trigger = _less(wanted.trigger, slots)
    if trigger is None:
        return replace(schedule, declared=declared, last=last, next=None, slots=slots)
    anchored = trigger.anchored(now, seed=before.name)
    return replace(schedule, declared=declared, anchored=anchored.document(), last=last, next=anchored.after(last), slots=slots)


def _count_in(document: object) -> object:
    """The count that a trigger's document speaks of, if there is one."""
    if not isinstance(document, dict):
        return None
    return document.get("count") or _count_in(document.get("trigger"))


def _less(trigger: Trigger, slots: int) -> Trigger | None:
    """The trigger with so many slots fewer, if it counts; None when there is none left."""
    if isinstance(trigger, Excluding):
        inner = _less(trigger.trigger, slots)
        return None if inner is None else trigger.but(trigger=inner)
    if not isinstance(trigger, Every | Cron) or trigger.count is None:
        return trigger
    return trigger.but(count=trigger.count - slots) if trigger.count > slots else None


def pause(kept: Kept, why: str) -> Steps[Schedule]:
    """Let a schedule fire nothing until it is resumed; slots that come meanwhile are not made up for."""

    def becomes(schedule: Schedule) -> Steps[Changed | None]:
        yield from ()
        return None if schedule.paused else (replace(schedule, paused=why), {})

    return (yield from kept.change(becomes))


def resume(kept: Kept, trigger: Callable[[Schedule], Trigger]) -> Steps[Schedule]:
    """Let a paused schedule go on with its next slot from now on, whatever became of its last run."""

    def becomes(schedule: Schedule) -> Steps[Changed | None]:
        if not schedule.paused:
            return None
        runs = yield from standing(kept.row, [schedule.run] if schedule.run else [])
        run = schedule.run if schedule.run and runs[schedule.run].alive else None
        return _passed(replace(schedule, paused="", run=run), trigger(schedule), kept.process.now()), {}

    return (yield from kept.change(becomes))


def passed_over(schedule: Schedule) -> list[Skipped]:
    """The slots that were skipped as a schedule was resumed last, if that is the last that became of any."""
    return skipped_by(schedule.name, [firing for firing in schedule.history[-1:] if firing.why == _MEANWHILE])


def _passed(schedule: Schedule, trigger: Trigger, now: int) -> Schedule:
    """The schedule with the slots that came while it was paused dealt with: they are skipped."""
    due = due_slots(trigger, schedule.last, now)
    if due is None:
        return schedule
    last = due.latest[-1]
    return replace(
        schedule,
        last=last,
        next=trigger.after(last),
        slots=schedule.slots + due.number,
        skipped=schedule.skipped + due.number,
        history=remembered(schedule, [Firing(due.first, due.number, now, None, _MEANWHILE)]),
    )


def run_now(kept: Kept) -> Steps[Schedule]:
    """Send a message of a schedule now, beside its slots; also when it is paused or has ended."""

    def becomes(schedule: Schedule) -> Steps[Changed | None]:
        yield from ()
        now = kept.process.now()
        run = Run(schedule.template.priority, kept.process.id_at(now))
        history = remembered(schedule, [Firing(now, 0, now, run, "asked for")])
        return replace(schedule, run=run, fired=schedule.fired + 1, history=history), {now: run}

    return (yield from kept.change(becomes))


def backfill(kept: Kept, slots: list[int]) -> Steps[list[Fired]]:
    """Send a message for each of these slots, whether or not it was fired, all in one commit."""
    asked = kept.process.nonce().hex()
    told: list[list[Fired]] = []

    def becomes(schedule: Schedule) -> Steps[Changed | None]:
        yield from ()
        now = kept.process.now()
        sent = {slot: Run(schedule.template.priority, ids.derived(slot, f"{schedule.name}\n{asked}")) for slot in slots}
        firing = Firing(slots[0], len(slots), now, sent[slots[-1]], "backfilled")
        told[:] = [fired(schedule, sent, now)]
        return replace(schedule, fired=schedule.fired + len(slots), history=remembered(schedule, [firing])), sent

    yield from kept.change(becomes)
    return told[0]


def in_commits(schedule: Schedule, slots: list[int]) -> list[list[int]]:
    """The slots of a backfill, as many together as one commit takes messages of this schedule."""
    together = min(_TOGETHER, max(1, _BYTES // len(schedule.template.body)))
    return [slots[first : first + together] for first in range(0, len(slots), together)]


def slots_between(trigger: Trigger, since: int, until: int) -> list[int]:
    """The slots from one moment until another, both included; BadInput if those are more than a backfill takes, or the range is none."""
    if since > until:
        problem = f"the range ends ({instant(until)}) before it begins ({instant(since)}): exchange since and until"
        raise BadInput(problem)
    slots: list[int] = []
    slot = trigger.after(since - 1)
    while slot is not None and slot <= until:
        if len(slots) == BACKFILLED:
            problem = f"there are more than {BACKFILLED} slots from {instant(since)} to {instant(until)}: backfill them in parts"
            raise BadInput(problem)
        slots.append(slot)
        slot = trigger.after(slot)
    return slots


def remove(kept: Kept, *, with_run: bool = False) -> Steps[Schedule | None]:
    """Remove a schedule, and its last message too if that is wanted; the schedule as it was, None if there was none."""
    removed: list[Schedule] = []

    def plan(sight: Sight) -> Steps[Plan | None]:
        found = yield from kept.found()
        if found is None:
            return None
        column, before = found
        removed[:] = [before]
        plan = kept.edit(sight, column, Edit("", before, None))
        plan.freed += (yield from keys_of(kept.row, [before])).values()
        run = before.run if with_run else None
        if run and (yield from standing(kept.row, [run]))[run].alive:
            plan.messages.append(message_name(*run))
            plan.shrunk += shrunk_by(sight, {run.id})
        return plan

    yield from Raising(kept.process, Sight(kept.row, 1)).carry_out(plan)
    return removed[0] if removed else None


class Listed(NamedTuple):
    """The schedules of some rows, by name, and what is wrong with those that cannot be read."""

    schedules: list[Schedule]
    unreadable: list[Undecodable]


def list_schedules(rows: Iterable[str]) -> Steps[Listed]:
    """The schedules of these home rows."""
    listed = Listed([], [])
    for row in rows:
        for column in (yield from read_one(Slice(row, Type.TRIGGER))):
            try:
                listed.schedules.append(decode_schedule(row, column.value))
            except Undecodable as error:
                listed.unreadable.append(error)
    listed.schedules.sort(key=lambda schedule: schedule.name)
    return listed


def schedules_in(rows: Iterable[str]) -> Steps[list[Schedule]]:
    """The schedules of these home rows, by name; those that cannot be read are named in the log."""
    found: list[Schedule] = []
    for row in rows:
        columns = yield from read_one(Slice(row, Type.TRIGGER))
        found += [schedule for column in columns if (schedule := readable_schedule(row, column.value))]
    return sorted(found, key=lambda schedule: schedule.name)


def discard(process: Process, row: str, name: Name) -> Steps[bool]:
    """Remove the schedule in this column, whether or not it can be read; whether it was there."""

    def plan(sight: Sight) -> Steps[Plan | None]:
        column = yield from read_column(row, name)
        if column is None:
            return None
        slots = [timer for timer in (sight.timers or {}).values() if timer.state == State.NEXT_SLOT and trigger_name(timer.holder) == name]
        return _Discarding(freed=[column], shrunk=[(timer, None) for timer in slots])

    return (yield from Raising(process, Sight(row, 1)).carry_out(plan)) is not None


class _Discarding(Plan):
    """A commit that removes a schedule as it stands in its column."""

    def was_done(self, row: str) -> Steps[bool]:
        """Whether the column is gone, or is another one by now."""
        [discarded] = self.freed
        column = yield from read_column(row, discarded.name, exact=True)
        return column is None or column.value != discarded.value


def found_in(row: str, fits: Callable[[Schedule], bool]) -> Steps[Schedule | None]:
    """The first schedule of a home row that fits, read in pages, for there may be very many."""
    after = ids.LEAST
    while True:
        page = yield from read_one(Slice(row, Type.TRIGGER, 0, after=after, beyond=True, limit=_PAGE))
        for column in page:
            schedule = readable_schedule(row, column.value)
            if schedule is not None and fits(schedule):
                return schedule
        if len(page) < _PAGE:
            return None
        after = page[-1].name.id


def forget_schedules(process: Process, ring: Ring) -> Steps[None]:
    """Remove all schedules of a queue, and free their keys; those that cannot be read go as they are, and their keys can be taken."""
    for row in [ring.home(shard) for shard in range(ring.layout.concurrency_shards)]:
        for column in (yield from read_one(Slice(row, Type.TRIGGER))):
            try:
                name = decode_schedule(row, column.value).name
            except Undecodable:
                name = None
            if name is not None and trigger_name(name) == column.name:
                yield from remove(Kept(process, row, name))
            else:
                yield from discard(process, row, column.name)
