"""What shows the health of a queue: its rows, and the reports of its workers, which expire unless repeated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import Final

from pydantic_core import from_json, to_json

from astyqueue import ids
from astyqueue.errors import BadInput, Undecodable, UnknownTrigger
from astyqueue.ids import LEAST, Id
from astyqueue.model.envelope import FORMAT
from astyqueue.model.explanation import STILL
from astyqueue.model.health import OverdueLease, QueueHealth, RowHealth, Stranded, StuckReport, UnfitSchedule
from astyqueue.model.presence import Presence
from astyqueue.model.settings import Settings
from astyqueue.protocol.layout.columns import HEADER, State, Type, decode_dead, decode_header
from astyqueue.protocol.layout.rows import Ring, workers_row
from astyqueue.protocol.parallel_reads import in_parallel
from astyqueue.protocol.row.paging import PAGE_SIZE, scanned_up_to, snapshot_under, unlisted_page
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.schedule_commit import list_schedules
from astyqueue.protocol.steps import Client, Send, Steps, read, read_column, read_one
from astyqueue.store import Batch, Column, Name, Named, Put, Slice
from astyqueue.triggers import Triggers

#: Rows that are read together.
_AT_ONCE: Final = 40
#: Parts of one row that are searched for stranded messages: most rows have one, and an examination must end.
_STRETCHES: Final = 20
#: Seconds after which a worker's report expires; it repeats it every minute while it is true.
_REPORT_KEPT: Final = 180
#: Tasks that a report names, and characters of a name.
_REPORT_TASKS: Final = 5
_REPORT_NAME: Final = 100


def read_health(process: Client, settings: Settings, workers: Sequence[Presence] | None = None) -> Steps[QueueHealth]:
    """What shows the health of a queue; `workers` are the reports of the store's workers, None if they were not read.

    Reads its timers, its dead letters, the first message of each row and priority, up to 20 parts of each row's message
    ids, its workers' reports and its schedules.
    """
    now = process.now()
    ring, levels = Ring(settings.name, settings.layout), settings.layout.priorities
    names = ring.rows()
    rows = {name: RowHealth(name) for name in names}
    for first in range(0, len(names), _AT_ONCE):
        for name in (yield from _with_anything(names[first : first + _AT_ONCE], levels)):
            rows[name] = yield from _read(name, levels, now)
    for name, stranded in zip(
        names, (yield from in_parallel(_stranded(process, name, levels) for name in names)), strict=True
    ):
        rows[name].stranded = stranded
    stuck = yield from read_stuck_reports(settings.name)
    unfit = yield from _unfit_schedules(ring)
    return QueueHealth(settings=settings, rows=list(rows.values()), now=now, stuck=stuck, unfit=unfit, workers=workers)


def _with_anything(names: Sequence[str], levels: int) -> Steps[list[str]]:
    """The rows that have more columns than a header; in a large ring most rows have not."""
    headers = yield from read(*(Named(name, (HEADER,)) for name in names))
    first = {
        name: _first_columns(name, levels, found[0] if found else None)
        for name, found in zip(names, headers, strict=True)
    }
    found = yield from read(*(wanted for slices in first.values() for wanted in slices))
    return list(
        dict.fromkeys(wanted.row for wanted, columns in zip(chain(*first.values()), found, strict=True) if columns)
    )


def _first_columns(name: str, levels: int, found: Column | None) -> list[Slice]:
    """The first column of each kind in a row; messages only beyond the last scan's cursors: earlier ones are listed."""
    try:
        header = decode_header(name, found.value) if found else None
    except Undecodable:
        return [Slice(name, Type.LOCK, limit=1, values=False)]
    passed = [cursors[-1] for cursors in header.cursors] if header else []
    return [
        Slice(name, Type.TIMER, 0, after=ids.first_at(header.floor if header else 0), limit=1, values=False),
        *(Slice(name, Type.DEAD, level, limit=1, values=False) for level in range(levels)),
        *(
            Slice(name, Type.MESSAGE, level, after=after, limit=1, values=False)
            for level, after in zip(range(levels), chain(passed, repeat(LEAST)), strict=False)
        ),
    ]


def _read(name: str, levels: int, now: int) -> Steps[RowHealth]:
    row = RowHealth(name)
    header = yield from read_column(name, HEADER)
    try:
        if header is not None:
            row.changed, row.owner = header.written, decode_header(name, header.value).owner
        snapshot = yield from snapshot_under(name, header, levels=levels, now=now)
    except Undecodable as error:
        row.broken = error
        return row
    _note_timers(row, snapshot, now)
    for level in range(levels):
        first = yield from _first_due(snapshot, level, now)
        if first is not None:
            row.waits(ids.moment(first))
        yield from _count_dead(row, level, now)
    return row


def _note_timers(row: RowHealth, snapshot: RowSnapshot, now: int) -> None:
    for timer in snapshot.loaded_timers:
        if timer.due <= now and timer.state != State.NEXT_OCCURRENCE:
            row.waits(timer.due)
        if timer.state == State.LEASED and timer.due < now - STILL:
            row.overdue.append(OverdueLease(timer.due, len(timer.entries), timer.holder))
        if timer.state == State.PARKED:
            row.parked += [ids.moment(entry.id) for entry in timer.entries]
    for blocked in snapshot.loaded_timers.groups.free():
        row.waits(max(ids.moment(blocked.entry.id), row.changed or 0))  # since when its group is free is not stored


def _first_due(snapshot: RowSnapshot, level: int, now: int) -> Steps[Id | None]:
    """The first due message of a priority that no timer and no dead letter lists."""
    after: Id | None = scanned_up_to(snapshot, level)
    while after is not None:
        page = yield from unlisted_page(snapshot, level, after, until=ids.first_at(now + 1))
        if page.ids:
            return page.ids[0]
        after = page.last
    return None


def _count_dead(row: RowHealth, level: int, now: int) -> Steps[None]:
    after = LEAST
    while True:
        page = yield from read_one(Slice(row.name, Type.DEAD, level, after=after, beyond=True, limit=PAGE_SIZE))
        for column in page:
            dead = decode_dead(column.value)
            row.deaths.count(dead.kind, dead.reason, dead.at, now)
        if len(page) < PAGE_SIZE:
            return
        after = page[-1].name.id


def _stranded(process: Client, row: str, levels: int) -> Steps[Stranded | None]:
    """The messages that a rescan of a row would find; None if its header or a timer cannot be read."""
    rescan = RowRescan(process, row, levels)
    found: list[int] = []
    for _ in range(_STRETCHES):
        if rescan.over:
            break
        try:
            found += [ids.moment(name.id) for name in (yield from rescan.page())]
        except Undecodable:
            return None
    return Stranded(found, rescan.over)


def _unfit_schedules(ring: Ring) -> Steps[list[UnfitSchedule]]:
    """Schedules that do not fire because they, or their triggers, cannot be read here."""
    listed = yield from list_schedules(ring.homes())
    found = [UnfitSchedule(None, error.row, error.why) for error in listed.unreadable]
    for schedule in listed.schedules:
        try:
            Triggers().read(schedule.anchored)
        except UnknownTrigger:  # the workers may have it registered
            continue
        except BadInput as error:
            found.append(UnfitSchedule(schedule.name, ring.home(ring.shard_of_key(schedule.name)), str(error)))
    return found


def report_stuck(queue: str, stuck: StuckReport) -> Steps[None]:
    """Write a report for `doctor`; a worker overwrites its own."""
    short = stuck._replace(tasks=[task[:_REPORT_NAME] for task in stuck.tasks[:_REPORT_TASKS]])
    name = Name(0, 0, ids.of_text(stuck.worker), 0)
    yield Send(Batch(workers_row(queue), (Put(name, FORMAT + to_json(short), ttl=_REPORT_KEPT),)))


def read_stuck_reports(queue: str) -> Steps[list[StuckReport]]:
    """The workers' reports of the last three minutes; one that cannot be read is omitted."""
    columns = yield from read_one(Slice(workers_row(queue), 0, 0))
    found = [_decode_report(column.value) for column in columns]
    return [one for one in found if one is not None]


def _decode_report(value: bytes) -> StuckReport | None:
    try:
        worker, stuck, threads, since, tasks, *others = from_json(value[1:])
        report = StuckReport(str(worker), int(stuck), int(threads), int(since), [str(task) for task in tasks])
        return report._replace(others=int(others[0])) if others else report
    except (ValueError, TypeError, OverflowError):
        return None
