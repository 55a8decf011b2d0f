"""The state of a unique key: free, or owned by a message or by a schedule that repeats it; and how to cancel the owner.

A key whose message is gone or dead counts as free, and so does one whose schedule is gone: a commit may take it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.model.schedule import Origin, Run, Schedule
from astyqueue.protocol.layout.columns import State, dead_name, message_name, timer_superseding
from astyqueue.protocol.layout.schedule_column import decode_schedule, run_of, trigger_name
from astyqueue.protocol.layout.unique_key import KeyOwner, KeyOwningSchedule, decode_owner, key_name
from astyqueue.protocol.row.header_commit import CommitPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Name, Named


class RepeatingMessage(NamedTuple):
    """A message that a schedule repeats: the schedule's column, and its run if that exists and is not dead."""

    column: Column
    schedule: Schedule
    run: Run | None

    @property
    def next_run(self) -> Run:
        """The run that exists, or else the next one."""
        return self.run or next_run_of(self.schedule)


class KeyState(NamedTuple):
    """A key's column, if there is one, and the message that has it and is not dead.

    If a schedule repeats that message, `owner` is its run, or the next one.
    """

    column: Column | None = None
    owner: KeyOwner | None = None
    repeats: RepeatingMessage | None = None

    def is_leased(self, snapshot: RowSnapshot, now: int) -> bool:
        """Whether the message is leased, by all timers of the row; one that was given back by a mark is not."""
        leased = [timer for timer in snapshot.loaded_timers.in_state(State.LEASED) if timer.due > now]
        return self.owner is not None and any(entry.id == self.owner.id for timer in leased for entry in timer.entries)

    @property
    def is_stored(self) -> bool:
        """Whether `owner` is a message in the store, and not the next run of a schedule."""
        return self.repeats is None or self.repeats.run is not None


FREE: Final = KeyState()


def next_run_of(schedule: Schedule) -> Run:
    """The message of the next occurrence to fire."""
    return run_of(schedule, schedule.backlog[0] if schedule.backlog else schedule.next or schedule.last)


def key_states(row: str, columns: Sequence[Column]) -> Steps[dict[Name, KeyState]]:
    """The states of these keys' columns: valid while the header is the one that was known before this read."""
    owners = {column.name: decode_owner(row, column.value) for column in columns}
    schedules = yield from _schedules(row, [owner for owner in owners.values() if isinstance(owner, KeyOwningSchedule)])
    messages = [Run(owner.priority, owner.id) for owner in owners.values() if isinstance(owner, KeyOwner)]
    living = yield from _living(row, [*messages, *[schedule.run for _, schedule in schedules.values() if schedule.run]])
    states: dict[Name, KeyState] = {}
    for column in columns:
        owner = owners[column.name]
        if isinstance(owner, KeyOwner):
            states[column.name] = KeyState(column, owner if owner.id in living else None)
        elif owner in schedules:
            states[column.name] = _repeating(column, *schedules[owner], living)
        else:
            states[column.name] = KeyState(column)
    return states


def keys_with_owner(row: str, keys: Iterable[str]) -> Steps[set[str]]:
    """Those of these unique keys of a home row that a stored message has which is not dead."""
    columns = yield from read_one(Named(row, tuple(map(key_name, keys))), exact=True)
    states = yield from key_states(row, columns)
    return {state.owner.key for state in states.values() if state.owner and state.is_stored}


def state_of_repeating(row: str, column: Column, schedule: Schedule) -> Steps[KeyState]:
    """The state of the key of a message that this schedule repeats, if the schedule does not own the key's column."""
    living = yield from _living(row, [schedule.run] if schedule.run else [])
    return _repeating(None, column, schedule, living)


def _repeating(key: Column | None, column: Column, schedule: Schedule, living: set[Id]) -> KeyState:
    run = schedule.run if schedule.run and schedule.run.id in living else None
    repeats = RepeatingMessage(column, schedule, run)
    return KeyState(key, KeyOwner(schedule.name, *repeats.next_run), repeats)


def _schedules(
    row: str, owners: Iterable[KeyOwningSchedule]
) -> Steps[dict[KeyOwningSchedule, tuple[Column, Schedule]]]:
    """The schedules that own keys: those that exist and are still the ones that took them."""
    names = tuple(trigger_name(owner.key) for owner in owners)
    columns = (yield from read_one(Named(row, names), exact=True)) if names else []
    found = [(column, decode_schedule(row, column.value)) for column in columns]
    return {
        KeyOwningSchedule(one.name, one.creation_nonce): (column, one)
        for column, one in found
        if one.origin is Origin.MESSAGE
    }


def _living(row: str, messages: Iterable[Run]) -> Steps[set[Id]]:
    """The ids of the messages that exist and are not dead."""
    names = [name(*message) for message in messages for name in (message_name, dead_name)]
    found = (yield from read_one(Named(row, tuple(names), values=False), exact=True)) if names else []
    there = {column.name for column in found}
    return {
        name.id
        for name in there
        if name == message_name(name.priority, name.id) and dead_name(name.priority, name.id) not in there
    }


def keys_of(row: str, schedules: Iterable[Schedule]) -> Steps[dict[str, Column]]:
    """The columns of the keys that these schedules own, by the schedules' names."""
    wanted = {
        key_name(one.name): KeyOwningSchedule(one.name, one.creation_nonce)
        for one in schedules
        if one.origin is Origin.MESSAGE and one.template.key
    }
    columns = (yield from read_one(Named(row, tuple(wanted)))) if wanted else []
    held = [column for column in columns if column.value == wanted[column.name].encode()]
    return {wanted[column.name].key: column for column in held}


def cancel(plan: CommitPlan, snapshot: RowSnapshot, state: KeyState) -> None:
    """Add to a plan the deletion of the message that has a key; of a repeated one, its run and its schedule's timer.

    The caller adds the changes of the key's and the schedule's columns.
    """
    if state.owner is None:
        return
    message = Run(state.owner.priority, state.owner.id) if state.repeats is None else state.repeats.run
    if message is not None:
        plan.messages.append(message_name(*message))
        plan.shrunk += snapshot.loaded_timers.without({message.id})
    if state.repeats is not None:
        plan.shrunk += [(timer, None) for timer in snapshot.loaded_timers.occurrences_of(state.repeats.schedule.name)]


def supersede(plan: CommitPlan, snapshot: RowSnapshot, owner: KeyOwner) -> None:
    """Add to a plan that the leased message that has a key is not delivered again.

    Its lease stays, but the settle that ends it finds the timer changed. So it neither frees the key, which the new
    message has, nor gives the old one back.
    """
    for timer in snapshot.loaded_timers:
        if any(entry.id == owner.id for entry in timer.entries):
            plan.shrunk.append((timer, timer_superseding(timer, owner.id)))
