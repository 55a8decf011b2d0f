"""Reading the schedules of home rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import Undecodable
from astyqueue.model.schedule import Schedule
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.schedule_column import (
    decode_schedule,
    readable_schedule,
)
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Slice

#: Schedules per page in a search for one.
_PAGE: Final = 100


class ScheduleList(NamedTuple):
    """The schedules of some rows, by name, and the errors of those that cannot be read."""

    schedules: list[Schedule]
    unreadable: list[Undecodable]


def list_schedules(rows: Iterable[str]) -> Steps[ScheduleList]:
    """The schedules of these home rows."""
    listed = ScheduleList([], [])
    for row in rows:
        for column in (yield from read_one(Slice(row, Type.TRIGGER))):
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
        columns = yield from read_one(Slice(row, Type.TRIGGER))
        found += [schedule for column in columns if (schedule := readable_schedule(row, column.value))]
    return sorted(found, key=lambda schedule: schedule.name)


def found_in(row: str, fits: Callable[[Schedule], bool]) -> Steps[Schedule | None]:
    """The first schedule of a home row that fits; read in pages, because there may be very many."""
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
