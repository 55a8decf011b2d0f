"""Walking over the messages of a row, names only, a page at a time."""

from __future__ import annotations

from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.columns import HEADER, Entry, Mark, Timer, Type
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.protocol.stretches import read_through
from astyqueue.store import Slice

#: Names in one page.
PAGE: Final = 1_000


class Page(NamedTuple):
    """Messages that no timer and no dead column lists; the next page begins behind `last`, which is None at the end."""

    ids: list[Id]
    last: Id | None


def listed_by(timer: Timer) -> list[Entry | Mark]:
    """All that a timer hides."""
    return [*timer.entries, *timer.marks]


def glimpse(row: str, levels: int, now: int) -> Steps[Sight]:
    """A sight that begins with a plain read of the header: good for telling people, never for a commit."""
    sight = Sight(row, levels)
    column = yield from read_column(row, HEADER)
    sight.learn(column.value if column else None, now, column.written if column else None)
    yield from know(sight, now)
    return sight


def looked_past(sight: Sight, level: int) -> Id:
    """Up to where every look has passed: what is alive below it is listed in a timer or dead.

    A page that begins here is spared the graves of all that was ever settled. The one thing it may miss is a message
    that landed more than ten minutes late, unknown to its producer: a rescan finds that, and `health` tells of it.
    """
    return sight.looks.cursors[level][-1]


def unlisted(sight: Sight, level: int, after: Id, *, until: Id = ids.GREATEST, limit: int = PAGE) -> Steps[Page]:
    """A page of the messages of one priority that stand nowhere else; the dead columns are read after the messages."""
    wanted = Slice(sight.row, Type.MESSAGE, level, after=after, beyond=True, until=until, limit=limit, values=False)
    columns, _ = yield from read_through(wanted, sight.stood, sight.strides)
    if not columns:
        return Page([], None)
    first, last = columns[0].name.id, columns[-1].name.id
    dead = yield from read_one(Slice(sight.row, Type.DEAD, level, after=first, until=ids.behind(last), values=False))
    elsewhere = sight.hidden.union(column.name.id for column in dead)
    alive = [column.name.id for column in columns if column.name.id not in elsewhere]
    return Page(alive, last if len(columns) == limit else None)
