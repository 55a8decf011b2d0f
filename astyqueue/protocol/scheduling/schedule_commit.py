"""Reading the schedules of home rows, and changing one, by a header commit of its row.

Each change gives the schedule another occurrence timer, so that a process that cached the schedule by its timer never
acts on an old version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import NotFound, OutcomeUnknown, SliceTooLong, Undecodable
from astyqueue.model.envelope import MessageId
from astyqueue.model.schedule import Origin, Run, Schedule
from astyqueue.protocol.layout.columns import Type, visible_at
from astyqueue.protocol.layout.schedule_column import (
    decode_schedule,
    encode_schedule,
    message_of,
    occurrence_timer,
    readable_schedule,
    trigger_name,
)
from astyqueue.protocol.row.header_commit import CommitLoop, CommitPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import entries_of
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.protocol.steps import Client, Steps, read_column, read_one
from astyqueue.store import Column, Named, Put, Slice

#: Schedules per page.
_PAGE: Final = 100
#: A change of a schedule: its successor, and the messages that it sends at once, by occurrence.
ScheduleUpdate = tuple[Schedule, dict[int, Run]]


@dataclass(frozen=True, slots=True)
class ScheduleHandle:
    """A schedule in its home row, by its name."""

    process: Client
    row: str
    name: str

    def found(self) -> Steps[tuple[Column, Schedule] | None]:
        """The schedule and its column; None if it does not exist."""
        column = yield from read_column(self.row, trigger_name(self.name))
        return None if column is None else (column, decode_schedule(self.row, column.value))

    def change(self, becomes: Callable[[Schedule], Steps[ScheduleUpdate | None]]) -> Steps[Schedule]:
        """Replace the schedule by the result of `becomes`; None leaves it unchanged. Raises NotFound if it is gone."""
        mark = self.process.nonce().hex()
        after: Schedule

        def plan(snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
            nonlocal after
            found = yield from self.found()
            if found is None:
                message = f"there is no schedule {self.name!r}"
                raise NotFound(message)
            column, before = found
            changed = yield from becomes(before)
            after = changed[0] if changed else before
            if changed is None:
                return None
            if (key := changed[0].template.key) is not None:
                yield from write_key_hints(
                    self.process, [(key, MessageId(self.row, *sent)) for sent in changed[1].values()]
                )
            return self.edit(snapshot, column, ScheduleEdit(mark, before, *changed))

        return (yield from self.commit(plan)) or after

    def commit(self, plan: Callable[[RowSnapshot], Steps[CommitPlan | None]]) -> Steps[Schedule | None]:
        """Commit an edit; returns the schedule after the one that was applied, None if there was nothing to do."""
        applied = yield from CommitLoop(self.process, RowSnapshot(self.row, 1)).carry_out(plan)
        return applied.edit.after if isinstance(applied, ScheduleEditPlan) else None

    def edit(self, snapshot: RowSnapshot, column: Column | None, edit: ScheduleEdit) -> CommitPlan:
        """The commit that replaces a schedule; its occurrence timer is replaced whether or not its due time changes."""
        plan = ScheduleEditPlan(
            shrunk=[(timer, None) for timer in snapshot.loaded_timers.occurrences_of(self.name)], handle=self, edit=edit
        )
        if edit.after is None:
            plan.freed = [column] if column else []
            return plan
        after, now = replace(edit.after, mark=edit.mark), self.process.now()
        plan.taken = [(column, Put(trigger_name(self.name), encode_schedule(after)))]
        plan.puts = [message_of(after, run, occurrence=occurrence, now=now) for occurrence, run in edit.sent.items()]
        if occurrence := occurrence_timer(self.process, after):
            plan.listed.append(occurrence)
        if plan.puts:
            plan.listed.append(visible_at(self.process, now, entries_of(plan.puts)))
        return plan


@dataclass(frozen=True, slots=True)
class ScheduleEdit:
    """One change of a schedule, identified by its mark: the schedule before and after; None: it does not exist."""

    mark: str
    before: Schedule | None
    after: Schedule | None
    sent: dict[int, Run] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ScheduleEditPlan(CommitPlan):
    """A commit that changes one schedule."""

    handle: ScheduleHandle
    edit: ScheduleEdit

    def was_done(self, row: str) -> Steps[bool]:
        """Whether the schedule has our mark, which firing keeps; raises OutcomeUnknown if it has another new mark."""
        before, after = self.edit.before, self.edit.after
        column = yield from read_column(row, trigger_name(self.handle.name), exact=True)
        found = decode_schedule(row, column.value) if column else None
        if after is None:
            return (yield from self._was_removed(row, found))
        if found is not None and found.mark == self.edit.mark:
            return True
        ends_with_its_occurrences = found is None and after.origin is Origin.MESSAGE
        if (found.mark if found else None) == (before.mark if before else None) and not ends_with_its_occurrences:
            return False
        message = (
            f"row {row}: unknown whether schedule {self.handle.name!r} was changed: another process changed it too"
        )
        raise OutcomeUnknown(message)

    def _was_removed(self, row: str, found: Schedule | None) -> Steps[bool]:
        """Whether the schedule is gone; raises OutcomeUnknown if its last message may go on.

        The schedule of a message also goes when its last occurrence is fired, and another process may have removed it
        without its last message.
        """
        before = self.edit.before
        if before is None or (found is not None and found.creation_nonce == before.creation_nonce):
            return before is None
        left = (yield from read_one(Named(row, tuple(self.messages)), exact=True)) if self.messages else []
        if left or before.origin is Origin.MESSAGE:
            message = f"row {row}: unknown whether schedule {self.handle.name!r} was removed with its last message"
            raise OutcomeUnknown(message)
        return True


class ScheduleList(NamedTuple):
    """The schedules of some rows, by name, and the errors of those that cannot be read."""

    schedules: list[Schedule]
    unreadable: list[Undecodable]


def list_schedules(rows: Iterable[str]) -> Steps[ScheduleList]:
    """The schedules of these home rows."""
    listed = ScheduleList([], [])
    for row in rows:
        for column in (yield from schedule_columns(row)):
            try:
                listed.schedules.append(decode_schedule(row, column.value))
            except Undecodable as error:
                listed.unreadable.append(error)
    listed.schedules.sort(key=lambda schedule: schedule.name)
    return listed


def schedules_in(rows: Iterable[str]) -> Steps[list[Schedule]]:
    """The schedules of these home rows, by name; those that cannot be read are logged."""
    found: list[Schedule] = []
    for row in rows:
        columns = yield from schedule_columns(row)
        found += [schedule for column in columns if (schedule := readable_schedule(row, column.value))]
    return sorted(found, key=lambda schedule: schedule.name)


def found_in(row: str, fits: Callable[[Schedule], bool]) -> Steps[Schedule | None]:
    """The first schedule of a home row that fits."""
    pages = _SchedulePages(row)
    while not pages.over:
        for column in (yield from pages.read_next()):
            schedule = readable_schedule(row, column.value)
            if schedule is not None and fits(schedule):
                return schedule
    return None


def schedule_columns(row: str) -> Steps[list[Column]]:
    """The columns of all schedules of a home row."""
    pages, columns = _SchedulePages(row), list[Column]()
    while not pages.over:
        columns += yield from pages.read_next()
    return columns


class _SchedulePages:
    """The schedules of a home row, page by page, because there may be very many.

    Where those that ended have left more tombstones than the store passes in one read, a page is read in parts: half of
    the hashes each time.
    """

    def __init__(self, row: str) -> None:
        self._row = row
        self._left = [(ids.LEAST, ids.GREATEST)]

    @property
    def over(self) -> bool:
        """Whether every page was read."""
        return not self._left

    def read_next(self) -> Steps[list[Column]]:
        """The next page; an empty one if it has to be read in parts."""
        first, until = self._left.pop()
        try:
            page = yield from read_one(Slice(self._row, Type.TRIGGER, 0, after=first, until=until, limit=_PAGE))
        except SliceTooLong:
            middle = ((int.from_bytes(first[:8]) + int.from_bytes(until[:8])) // 2).to_bytes(8) + bytes(8)
            if middle <= first:
                raise
            self._left += [(middle, until), (first, middle)]
            return []
        if len(page) == _PAGE:
            self._left.append((ids.after(page[-1].name.id), until))
        return page
