"""Scanning a row: which of its messages could be claimed now, read in the order that makes the answer safe.

The timers are read first (after an exact header), then messages, then dead columns. A scan changes only the snapshot's
cursors, which the caller restores if its commit is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from astyqueue import ids
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.protocol.claiming.selection import (
    ClaimPlan,
    ClaimRequest,
    DueMessages,
    Redelivery,
    due_messages,
    plan_redeliveries,
)
from astyqueue.protocol.layout.columns import SCANS, Entry, Type, message_name
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.row.bounded_reads import BoundedRead, read_bounded
from astyqueue.protocol.row.cursors import SCAN_LAGS
from astyqueue.protocol.row.snapshot import WORTH_STORING, RowSnapshot, load_dead, load_snapshot
from astyqueue.protocol.settling.outcomes import SettlePlan
from astyqueue.protocol.steps import Steps, read, read_one
from astyqueue.store import Column, Name, Named, Slice

#: Messages in one claim: with more, the commit costs more than it saves.
MOST: Final = 200
#: Parked messages get a tenth of a claim while other messages wait.
_PARKED: Final = 10
#: Names read by one late scan, for each priority.
_LATE: Final = 1_000


def scan_row(
    now: int,
    snapshot: RowSnapshot,
    request: ClaimRequest,
    *,
    settling: Sequence[SettlePlan] = (),
    dead_letters_left: int = MOST,
) -> Steps[ClaimPlan]:
    """A plan of what to claim: messages that landed late, then per priority redeliveries before waiting messages.

    Parked messages, whose task the last worker did not know, come after all others, except for a tenth of the room,
    which is reserved for them: they never block other messages, and other messages never keep them from a worker that
    knows them.

    `settling` is settled in the same commit: those timers are skipped, and a message that ends with it no longer keeps
    its group busy. At most `dead_letters_left` messages are dead-lettered.

    Of a message group at most one message is under way. That holds for the same reason for which no hidden message is
    claimed twice: only commits that expect the header lease a message, and settles only shrink timers or move them up,
    so a message that still keeps its group busy is in a timer that was read, or the commit is refused.
    """
    most = MOST // 2 if is_home(snapshot.row) else MOST  # with their keys these messages are two columns each
    snapshot.apply_settles()
    timers = yield from load_snapshot(snapshot, now)
    snapshot.hold_back(now)
    claim_plan = ClaimPlan(
        request, now, min(request.want, most), snapshot.loaded_header, timers, dead_letters_left=dead_letters_left
    )
    claim_plan.cursors = [list(cursors) for cursors in snapshot.scans.cursors]
    if timers.groups:
        claim_plan.ending = {name.id for plan in settling for name in (*plan.acked, *plan.dead)}
    due = _due(snapshot, claim_plan, settling)
    if due.suspects and request.leased_count:
        # settles do not bump the header, so it may be gone: check before pausing for it
        snapshot.timers = None
        claim_plan.timers = yield from load_snapshot(snapshot, now)
        due = _due(snapshot, claim_plan, settling)
    claim_plan.drop(due.superseded)
    claim_plan.suspect = bool(due.suspects)
    if due.suspects:
        yield from _take_suspect(snapshot, claim_plan, due.suspects)
        return claim_plan
    for late in snapshot.scans.late(now):
        yield from _scan_late(snapshot, claim_plan, late)
    redeliveries = due.by_level
    served = yield from _share_of_parked(snapshot, claim_plan, due.parked)
    waiting = yield from _levels_with_work(snapshot, now, _with_room(claim_plan.room, snapshot.levels, redeliveries))
    for level in sorted({*waiting, *redeliveries}, reverse=True):
        yield from _redeliver(snapshot, claim_plan, redeliveries.get(level, []))
        if level in waiting:
            yield from _scan_waiting(snapshot, claim_plan, level)
    yield from _redeliver(snapshot, claim_plan, due.parked[served:])
    claim_plan.more |= claim_plan.room <= 0 or due.has_more or claim_plan.waiting > 0
    if claim_plan.full and claim_plan.room > 0:  # more messages can be passed only when blocked ones have become free
        claim_plan.more = False
    return claim_plan


def _due(snapshot: RowSnapshot, claim_plan: ClaimPlan, settling: Sequence[SettlePlan]) -> DueMessages:
    settled = {plan.timer.name for plan in settling}
    timers = [timer for timer in claim_plan.timers.due(claim_plan.now) if timer.name not in settled]
    due = due_messages(timers, claim_plan.now, top=snapshot.levels - 1, room=claim_plan.room)
    if claim_plan.timers.groups:
        due.add_free(claim_plan.timers.groups, claim_plan.ending)
    return due


def _share_of_parked(snapshot: RowSnapshot, claim_plan: ClaimPlan, parked: list[Redelivery]) -> Steps[int]:
    """Plan parked messages up to a tenth of the room; if that is none, one in every tenth commit of the row."""
    share = min(len(parked), claim_plan.room // _PARKED or int(claim_plan.known.decoded.version % _PARKED == 0))
    yield from _redeliver(snapshot, claim_plan, parked[:share])
    return share


def work_probes(row: str, heads: Iterable[Id], until: int) -> list[Slice]:
    """One slice per priority, which shows whether a message beyond its head is due by `until` (microseconds)."""
    bound = ids.first_at(until + 1)
    return [
        Slice(row, Type.MESSAGE, level, after=head, beyond=True, until=bound, limit=1, values=False)
        for level, head in enumerate(heads)
    ]


def _take_suspect(snapshot: RowSnapshot, claim_plan: ClaimPlan, suspects: list[Redelivery]) -> Steps[None]:
    """Plan one suspect alone, if this process has no leases; otherwise plan nothing until it has settled them.

    What waits beside it was not read, so there may be more.
    """
    if claim_plan.request.leased_count == 0:
        claim_plan.more = True
        first = suspects[0]
        claim_plan.room = min(1, claim_plan.room)
        yield from _redeliver(snapshot, claim_plan, [first._replace(part=(first.timer.name, 0))])
    claim_plan.room = 0


def _with_room(room: int, levels: int, redeliveries: Mapping[int, Sequence[Redelivery]]) -> list[int]:
    """The priorities, highest first, down to the first whose redeliveries leave no room for waiting messages."""
    reached: list[int] = []
    for level in reversed(range(levels)):
        room -= len(redeliveries.get(level, ()))
        if room <= 0:
            break
        reached.append(level)
    return reached


def _levels_with_work(snapshot: RowSnapshot, now: int, asked: Sequence[int]) -> Steps[set[int]]:
    """The priorities in which a message may wait; with a single priority, the scan itself shows it.

    Only the `asked` priorities are probed. Where many redeliveries are due, many messages beyond the head were settled,
    and each probe would read all their tombstones.
    """
    levels = set(range(snapshot.levels))
    if len(levels) == 1 or not asked:
        return levels
    probes = work_probes(snapshot.row, snapshot.scans.heads, until=now)
    try:
        found = yield from read(*[probes[level] for level in asked])
    except SliceTooLong:
        return levels
    empty = {level for level, columns in zip(asked, found, strict=True) if not columns}
    for level in empty:
        snapshot.scans.found_empty(level)
    return levels - empty


def _redeliver(snapshot: RowSnapshot, claim_plan: ClaimPlan, due: list[Redelivery]) -> Steps[None]:
    """Plan redeliveries while there is room. Those that must wait use up none, so where some were, others follow."""
    rest, waiting = due, -1
    while rest and claim_plan.room > 0 and waiting < claim_plan.waiting:
        waiting, reach = claim_plan.waiting, claim_plan.room + claim_plan.waiting
        yield from _redeliver_batch(snapshot, claim_plan, rest[:reach])
        rest = rest[reach:]


def _redeliver_batch(snapshot: RowSnapshot, claim_plan: ClaimPlan, wanted: list[Redelivery]) -> Steps[None]:
    while wanted and (limit := claim_plan.fits(snapshot.sizes)):
        part, wanted = wanted[:limit], wanted[limit:]
        present = yield from _read_by_name(
            snapshot, claim_plan, [message_name(again.entry.priority, again.entry.id) for again in part]
        )
        plan_redeliveries(claim_plan, part, present, snapshot.scans.heads)
        for column in present:
            if column.name.id < ids.first_at(claim_plan.now + 1) and column.name.id not in claim_plan.unlisted:
                snapshot.scans.claimed_by_timer(column.name.priority, column.name.id)
    claim_plan.more |= bool(wanted)


def _read_by_name(snapshot: RowSnapshot, claim_plan: ClaimPlan, names: Iterable[Name]) -> Steps[list[Column]]:
    present = yield from read_one(Named(snapshot.row, tuple(names)))
    claim_plan.has_read(present, snapshot.sizes)
    return present


def _scan_waiting(snapshot: RowSnapshot, claim_plan: ClaimPlan, level: int) -> Steps[None]:
    """Plan waiting messages of one priority from the head on; large ones are read a few at a time, up to the budget."""
    left = claim_plan.room
    while left > 0 and (limit := min(left + len(claim_plan.blocked), claim_plan.fits(snapshot.sizes))):
        blocked = len(claim_plan.blocked)
        head = snapshot.scans.cursors[level][0]
        until = ids.first_at(claim_plan.now + 1)
        wanted = Slice(snapshot.row, Type.MESSAGE, level, after=head, beyond=True, until=until, limit=limit)
        columns, long = yield from _read_slice(snapshot, wanted, claim_plan.now, whole=True)
        claim_plan.has_read(columns, snapshot.sizes)
        if columns and head != ids.LEAST:
            snapshot.window.saw(len(columns), head, columns[-1].name.id)
        dead = yield from load_dead(snapshot, claim_plan.timers)
        all_passed = _take_waiting(snapshot, claim_plan, columns, dead)
        left -= len(columns) - (len(claim_plan.blocked) - blocked)  # blocked ones use up no room
        if len(columns) < limit and all_passed:
            snapshot.scans.found_empty(level)
            if long:
                snapshot.scans.pass_over(level, claim_plan.now)
        if len(columns) < limit or not all_passed:
            claim_plan.more |= len(columns) == limit
            return
        claim_plan.more = True
    claim_plan.more |= left > 0


def _take_waiting(snapshot: RowSnapshot, claim_plan: ClaimPlan, columns: list[Column], dead: AbstractSet[Id]) -> bool:
    """Plan those messages that nothing else lists and move the head past them; False if there was no room for one."""
    if not columns:
        return True
    hidden, unlisted, taken = claim_plan.timers.hidden, claim_plan.unlisted, claim_plan.ids
    snapshot.ids_scanned += len(columns)
    for column in columns:
        id_, level = column.name.id, column.name.priority
        waits = (id_ not in hidden or id_ in unlisted) and id_ not in dead and id_ not in taken
        if waits and not claim_plan.take(Entry(id_, level, 0), column.value):
            return False
        snapshot.scans.cursors[level][0] = id_
    return True


def _read_slice(snapshot: RowSnapshot, wanted: Slice, now: int, *, whole: bool = False) -> Steps[BoundedRead]:
    """Read a slice with any number of tombstones; after a long read the cursors are stored, so that none repeats it."""
    through = yield from read_bounded(wanted, now, snapshot.window, whole=whole)
    if through.long:
        snapshot.ids_scanned += WORTH_STORING
    return through


def _scan_late(snapshot: RowSnapshot, claim_plan: ClaimPlan, scan: int) -> Steps[None]:
    """One late scan: read ids only, behind the first scan's position, and plan the messages that landed there since.

    If the claim has no room for all of them, or a page is full, the next claim scans again at once: they come before
    later messages.
    """
    complete = True
    for level, cursors in enumerate(snapshot.scans.cursors):
        until = min(cursors[0], ids.first_at(claim_plan.now - SCAN_LAGS[scan]))
        if cursors[scan] >= until:
            continue
        if not claim_plan.fits(snapshot.sizes):
            complete = False
            continue
        wanted = Slice(
            snapshot.row, Type.MESSAGE, level, after=cursors[scan], beyond=True, until=until, limit=_LATE, values=False
        )
        columns, _ = yield from _read_slice(snapshot, wanted, claim_plan.now)
        snapshot.ids_scanned += len(columns)
        landed = [column for column in columns if column.name.id not in claim_plan.timers.hidden]
        left = yield from _take_landed(snapshot, claim_plan, landed)
        cursors[scan] = _reached(columns, left, until)
        # What is left although there is room waits until blocked messages have become free.
        complete &= claim_plan.fits(snapshot.sizes) > 0 if left else len(columns) < _LATE
    if complete:
        claim_plan.late_scans.append(scan)
    if scan == SCANS - 1 and all(cursors[scan] == cursors[0] for cursors in snapshot.scans.cursors):
        snapshot.ids_scanned += WORTH_STORING if claim_plan.request.ends_soon else snapshot.claimed_since_late_scan
        snapshot.claimed_since_late_scan = 0


def _reached(columns: list[Column], left: list[Column], until: Id) -> Id:
    """The new cursor of a late scan: its end, the end of the page, or just before the first message without room."""
    if left:
        return ids.before(left[0].name.id)
    return until if len(columns) < _LATE else columns[-1].name.id


def _take_landed(snapshot: RowSnapshot, claim_plan: ClaimPlan, landed: list[Column]) -> Steps[list[Column]]:
    """Plan those that are not dead; returns those left for lack of room. The dead columns are read after the ids."""
    if not landed:
        return []
    level, first, last = landed[0].name.priority, landed[0].name.id, landed[-1].name.id
    dead = yield from read_one(Slice(snapshot.row, Type.DEAD, level, after=first, until=ids.after(last), values=False))
    elsewhere = claim_plan.ids.union(column.name.id for column in dead)
    alive = [column for column in landed if column.name.id not in elsewhere]
    while alive and (limit := claim_plan.fits(snapshot.sizes)):
        part, alive = alive[:limit], alive[limit:]
        present = yield from _read_by_name(snapshot, claim_plan, [column.name for column in part])
        for column in present:
            if not claim_plan.take(Entry(column.name.id, level, 0), column.value):
                return [column, *alive]
    claim_plan.more |= bool(alive)
    return alive
