"""How a unique key stands: free, or which message has it, in hand or not, once or by a schedule; and what cancelling that takes.

A key whose message is gone or dead is as good as free, and so is one whose schedule is gone: a commit may take it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.model.schedules import Origin, Run, Schedule
from astyqueue.protocol.along import Owner, ScheduleOwner, decode_owner, key_name
from astyqueue.protocol.columns import State, Timer, dead_name, message_name
from astyqueue.protocol.raising import Plan, shrunk_by
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.protocol.triggercolumn import decode_schedule, run_of, trigger_name
from astyqueue.store import Column, Name, Named


class Repeats(NamedTuple):
    """A message that comes again: the column of its schedule, and its run if that is there and not dead."""

    column: Column
    schedule: Schedule
    run: Run | None

    @property
    def next_run(self) -> Run:
        """The run that is there, or else the one to come."""
        return self.run or run_to_come(self.schedule)


class KeyState(NamedTuple):
    """A key as it is: its column, if there is one, and the living message that has it.

    If that message comes again, `owner` is its run, or the one to come.
    """

    column: Column | None = None
    owner: Owner | None = None
    repeats: Repeats | None = None

    def in_hand(self, sight: Sight, now: int) -> bool:
        """Whether a lease on the message runs, by all timers of the row; what was given back by a mark is in nobody's hand."""
        leased = [timer for timer in (sight.timers or {}).values() if timer.state == State.LEASED and timer.due > now]
        return self.owner is not None and any(entry.id == self.owner.id for timer in leased for entry in timer.entries)


FREE: Final = KeyState()


def run_to_come(schedule: Schedule) -> Run:
    """The message of the slot that is fired next."""
    return run_of(schedule, schedule.backlog[0] if schedule.backlog else schedule.next or schedule.last)


def key_states(row: str, columns: Sequence[Column]) -> Steps[dict[Name, KeyState]]:
    """What these columns of keys come to. That stays so while the header stands that was known before this is read."""
    owners = {column.name: decode_owner(row, column.value) for column in columns}
    schedules = yield from _schedules(row, [owner for owner in owners.values() if isinstance(owner, ScheduleOwner)])
    messages = [Run(owner.priority, owner.id) for owner in owners.values() if isinstance(owner, Owner)]
    living = yield from _living(row, [*messages, *[schedule.run for _, schedule in schedules.values() if schedule.run]])
    states: dict[Name, KeyState] = {}
    for column in columns:
        owner = owners[column.name]
        if isinstance(owner, Owner):
            states[column.name] = KeyState(column, owner if owner.id in living else None)
        elif owner in schedules:
            states[column.name] = _repeating(column, *schedules[owner], living)
        else:
            states[column.name] = KeyState(column)
    return states


def state_of_repeating(row: str, column: Column, schedule: Schedule) -> Steps[KeyState]:
    """How the key of a message stands that comes again by this schedule and did not take its key."""
    living = yield from _living(row, [schedule.run] if schedule.run else [])
    return _repeating(None, column, schedule, living)


def _repeating(key: Column | None, column: Column, schedule: Schedule, living: set[Id]) -> KeyState:
    run = schedule.run if schedule.run and schedule.run.id in living else None
    repeats = Repeats(column, schedule, run)
    return KeyState(key, Owner(schedule.name, *repeats.next_run), repeats)


def _schedules(row: str, owners: Iterable[ScheduleOwner]) -> Steps[dict[ScheduleOwner, tuple[Column, Schedule]]]:
    """The schedules that have keys, those that are there and are still the ones that took them."""
    names = tuple(trigger_name(owner.key) for owner in owners)
    columns = (yield from read_one(Named(row, names), exact=True)) if names else []
    found = [(column, decode_schedule(row, column.value)) for column in columns]
    return {ScheduleOwner(one.name, one.made): (column, one) for column, one in found if one.origin is Origin.MESSAGE}


def _living(row: str, messages: Iterable[Run]) -> Steps[set[Id]]:
    """Those of these messages that are there and not dead."""
    names = [name(*message) for message in messages for name in (message_name, dead_name)]
    found = (yield from read_one(Named(row, tuple(names), values=False), exact=True)) if names else []
    there = {column.name for column in found}
    return {name.id for name in there if name == message_name(name.priority, name.id) and dead_name(name.priority, name.id) not in there}


def keys_of(row: str, schedules: Iterable[Schedule]) -> Steps[dict[str, Column]]:
    """The columns of the keys that these schedules have, by the names of the schedules."""
    wanted = {
        key_name(one.name): ScheduleOwner(one.name, one.made) for one in schedules if one.origin is Origin.MESSAGE and one.template.key
    }
    columns = (yield from read_one(Named(row, tuple(wanted)))) if wanted else []
    held = [column for column in columns if column.value == wanted[column.name].encode()]
    return {wanted[column.name].key: column for column in held}


def cancel(plan: Plan, sight: Sight, state: KeyState) -> None:
    """Have a plan remove the message that has a key; if it comes again, its run, and the timer of its schedule.

    What becomes of the columns of the key and of the schedule is up to the plan.
    """
    if state.owner is None:
        return
    message = Run(state.owner.priority, state.owner.id) if state.repeats is None else state.repeats.run
    if message is not None:
        plan.messages.append(message_name(*message))
        plan.shrunk += shrunk_by(sight, {message.id})
    if state.repeats is not None:
        plan.shrunk += [(timer, None) for timer in slot_timers(sight, state.repeats.schedule.name)]


def slot_timers(sight: Sight, schedule: str) -> list[Timer]:
    """The timers that tell of a schedule's slots."""
    return [timer for timer in (sight.timers or {}).values() if timer.state == State.NEXT_SLOT and timer.holder == schedule]
