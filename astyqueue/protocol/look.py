"""Looking: which messages of a row could be claimed now, read in the order that makes the answer safe.

The timers are known first (from an exact header on); messages are read after them, and dead columns after the messages.
Nothing is changed here but how far the looks have come, which the caller takes back if its commit is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from astyqueue import ids
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.protocol.columns import LOOKS, Entry, Type, message_name
from astyqueue.protocol.looks import LAGS
from astyqueue.protocol.picking import Again, Order, Picked, due_again, pick_again
from astyqueue.protocol.rows import is_home
from astyqueue.protocol.sight import WORTH_STORING, Sight, know, know_dead
from astyqueue.protocol.steps import Steps, read, read_one
from astyqueue.protocol.stretches import Through, read_through
from astyqueue.store import Column, Name, Named, Slice

#: Messages in one claim: more make the commit dearer than it saves.
MOST: Final = 200
#: One in so many messages of a claim may be one that was parked although others wait.
_PARKED: Final = 10
#: Names read by one late look.
_LATE: Final = 1_000


def look(now: int, sight: Sight, order: Order, *, settling: AbstractSet[Name] = frozenset(), burials: int = MOST) -> Steps[Picked]:
    """What there is to take: what landed late, then per priority first what is due again and then what waits.

    Messages whose task the last worker did not know come after all others, but for a tenth of the room, which is theirs: so
    however many there are they keep nothing waiting, and however much waits they come to a worker that knows them.

    Timers named in `settling` are left alone, for the commit that follows settles them. Of messages that can go to nobody
    any more, at most `burials` are picked.
    """
    most = MOST // 2 if is_home(sight.row) else MOST  # with their keys these messages are two columns each
    picked = Picked(order, now, min(order.want, most), burials)
    sight.take_note()
    yield from know(sight, now)
    sight.hold_back(now)
    picked.cursors = [list(cursors) for cursors in sight.looks.cursors]
    due = due_again([timer for timer in sight.due(now) if timer.name not in settling], now)
    if due.suspects and order.in_hand:  # before hands empty for it: a settle raises no header, so it may be long gone
        sight.timers = sight.dead = None
        yield from know(sight, now)
        due = due_again([timer for timer in sight.due(now) if timer.name not in settling], now)
    picked.suspect = bool(due.suspects)
    if due.suspects:
        yield from _take_suspect(sight, picked, due.suspects)
        return picked
    for late in sight.looks.late(now):
        yield from _late(sight, picked, late)
    again = due.by_level
    served = yield from _share_of_parked(sight, picked, due.parked)
    waiting = yield from _levels_with_work(sight, now, _with_room(picked.room, sight.levels, again))
    for level in sorted({*waiting, *again}, reverse=True):
        yield from _again(sight, picked, again.get(level, []))
        if level in waiting:
            yield from _fresh(sight, picked, level)
    yield from _again(sight, picked, due.parked[served:])
    picked.more |= picked.room <= 0
    return picked


def _share_of_parked(sight: Sight, picked: Picked, parked: list[Again]) -> Steps[int]:
    """Take what was parked, up to its part of the room: in every tenth commit of the row one, where the room is too small for that."""
    version = sight.header.version if sight.header else 0
    share = min(len(parked), picked.room // _PARKED or int(version % _PARKED == 0))
    yield from _again(sight, picked, parked[:share])
    return share


def glance(row: str, heads: Iterable[Id], until: int) -> list[Slice]:
    """The slices that tell whether anything beyond these heads is due by a moment, one a priority."""
    bound = ids.first_at(until + 1)
    return [
        Slice(row, Type.MESSAGE, level, after=head, beyond=True, until=bound, limit=1, values=False) for level, head in enumerate(heads)
    ]


def _take_suspect(sight: Sight, picked: Picked, suspects: list[Again]) -> Steps[None]:
    """Hand a suspect to empty hands only, and nothing with it; hands that are full take nothing, so that they empty."""
    if picked.order.in_hand == 0:
        first = suspects[0]
        picked.room = min(1, picked.room)
        yield from _again(sight, picked, [first._replace(part=(first.timer.name, 0))])
    picked.room = 0


def _with_room(room: int, levels: int, again: Mapping[int, Sequence[Again]]) -> list[int]:
    """The priorities, the greatest first, down to the one from which on what is due again would leave no room for what waits."""
    reached: list[int] = []
    for level in reversed(range(levels)):
        room -= len(again.get(level, ()))
        if room <= 0:
            break
        reached.append(level)
    return reached


def _levels_with_work(sight: Sight, now: int, asked: Sequence[int]) -> Steps[set[int]]:
    """The priorities in which something waits, as far as is known; with one priority, the look itself will tell.

    Those that are not asked about may have some. Where much is due again much was settled beyond the head, and to ask would be
    to walk over all of it each time.
    """
    levels = set(range(sight.levels))
    if len(levels) == 1 or not asked:
        return levels
    glances = glance(sight.row, sight.looks.heads, until=now)
    try:
        found = yield from read(*[glances[level] for level in asked])
    except SliceTooLong:
        return levels
    empty = {level for level, columns in zip(asked, found, strict=True) if not columns}
    for level in empty:
        sight.looks.found_empty(level)
    return levels - empty


def _again(sight: Sight, picked: Picked, due: list[Again]) -> Steps[None]:
    """Read by name the messages that timers list, as many as there is room for."""
    wanted = due[: picked.room]
    while wanted and (limit := picked.fits(sight.sizes)):
        part, wanted = wanted[:limit], wanted[limit:]
        present = yield from _read_by_name(sight, picked, [message_name(again.entry.priority, again.entry.id) for again in part])
        pick_again(picked, part, present)
    picked.more |= bool(wanted)


def _read_by_name(sight: Sight, picked: Picked, names: Iterable[Name]) -> Steps[list[Column]]:
    """The messages with these names that are there."""
    present = yield from read_one(Named(sight.row, tuple(names)))
    picked.has_read(present, sight.sizes)
    return present


def _fresh(sight: Sight, picked: Picked, level: int) -> Steps[None]:
    """Take waiting messages of one priority from the head on; large ones a few at a time, until there is enough in hand."""
    left = picked.room
    while left > 0 and (limit := min(left, picked.fits(sight.sizes))):
        head = sight.looks.cursors[level][0]
        until = ids.first_at(picked.now + 1)
        wanted = Slice(sight.row, Type.MESSAGE, level, after=head, beyond=True, until=until, limit=limit)
        columns, long = yield from _walk(sight, wanted, picked.now, whole=True)
        picked.has_read(columns, sight.sizes)
        if columns and head != ids.LEAST:
            sight.strides.saw(len(columns), head, columns[-1].name.id)
        dead = yield from know_dead(sight)
        left -= len(columns)
        all_passed = _take_waiting(sight, picked, columns, dead)
        if len(columns) < limit and all_passed:
            sight.looks.found_empty(level)
            if long:
                sight.looks.pass_over(level, picked.now)
        if len(columns) < limit or not all_passed:
            picked.more |= len(columns) == limit
            return
        picked.more = True
    picked.more |= left > 0


def _take_waiting(sight: Sight, picked: Picked, columns: list[Column], dead: AbstractSet[Id]) -> bool:
    """Take those of these messages of one priority that stand nowhere else, and let the head pass; whether it passed them all."""
    hidden, taken = sight.hidden, picked.ids
    sight.passed += len(columns)
    for column in columns:
        id_, level = column.name.id, column.name.priority
        waits = id_ not in hidden and id_ not in dead and id_ not in taken
        if waits and not picked.take(Entry(id_, level, 0), column.value):
            return False
        sight.looks.cursors[level][0] = id_
    return True


def _walk(sight: Sight, wanted: Slice, now: int, *, whole: bool = False) -> Steps[Through]:
    """Read a slice however much was deleted in it. A long walk is worth storing, so that nobody else need go it."""
    through = yield from read_through(wanted, now, sight.strides, whole=whole)
    if through.long:
        sight.passed += WORTH_STORING
    return through


def _late(sight: Sight, picked: Picked, look: int) -> Steps[None]:
    """Look once more, at ids only, where the first look has passed; take what landed there since."""
    for level, cursors in enumerate(sight.looks.cursors):
        until = min(cursors[0], ids.first_at(picked.now - LAGS[look]))
        if not picked.fits(sight.sizes) or cursors[look] >= until:
            continue
        wanted = Slice(sight.row, Type.MESSAGE, level, after=cursors[look], beyond=True, until=until, limit=_LATE, values=False)
        columns, _ = yield from _walk(sight, wanted, picked.now)
        sight.passed += len(columns)
        landed = [column for column in columns if column.name.id not in sight.hidden]
        left = yield from _take_landed(sight, picked, landed)
        cursors[look] = _reached(columns, left, until)
    sight.looks.looked[look] = picked.now
    if look == LOOKS - 1 and all(cursors[look] == cursors[0] for cursors in sight.looks.cursors):
        sight.passed, sight.handed = sight.passed + sight.handed, 0


def _reached(columns: list[Column], left: list[Column], until: Id) -> Id:
    """How far a late look came: to its end, to the end of the page, or to the first message it could not take."""
    if left:
        return ids.before(left[0].name.id)
    return until if len(columns) < _LATE else columns[-1].name.id


def _take_landed(sight: Sight, picked: Picked, landed: list[Column]) -> Steps[list[Column]]:
    """Take those that are not dead, and say which are left for want of room; dead columns are read after the ids."""
    if not landed:
        return []
    level, first, last = landed[0].name.priority, landed[0].name.id, landed[-1].name.id
    dead = yield from read_one(Slice(sight.row, Type.DEAD, level, after=first, until=ids.behind(last), values=False))
    buried = picked.ids.union(column.name.id for column in dead)
    alive = [column for column in landed if column.name.id not in buried]
    while alive and (limit := picked.fits(sight.sizes)):
        part, alive = alive[:limit], alive[limit:]
        present = yield from _read_by_name(sight, picked, [column.name for column in part])
        for column in present:
            if not picked.take(Entry(column.name.id, level, 0), column.value):
                return [column, *alive]
    picked.more |= bool(alive)
    return alive
