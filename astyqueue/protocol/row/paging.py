"""Paging through the messages of a row, names only."""

from __future__ import annotations

from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import HEADER, Type
from astyqueue.protocol.row.bounded_reads import read_bounded
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.store import Column, Slice

#: Names in one page.
PAGE_SIZE: Final = 1_000


class Page(NamedTuple):
    """Messages that no timer and no dead letter lists; the next page begins beyond `last`, which is None at the end."""

    ids: list[Id]
    last: Id | None


def peek_snapshot(row: str, levels: int, now: int) -> Steps[RowSnapshot]:
    """A snapshot from a plain (not serial) read of the header: for display, never for a commit."""
    header = yield from read_column(row, HEADER)
    return (yield from snapshot_under(row, header, levels=levels, now=now))


def snapshot_under(row: str, header: Column | None, *, levels: int, now: int) -> Steps[RowSnapshot]:
    """As `peek_snapshot`, for a header that was just read."""
    snapshot = RowSnapshot(row, levels)
    snapshot.learn(header.value if header else None, now, header.written if header else None)
    yield from load_snapshot(snapshot, now)
    return snapshot


def scanned_up_to(snapshot: RowSnapshot, level: int) -> Id:
    """The position that every scan has passed: a message that is still below it is listed in a timer or dead.

    A page that begins here avoids the tombstones of everything settled before. It can miss only a message that landed
    more than ten minutes late without its producer noticing: a rescan finds that, and `health` reports it.
    """
    return snapshot.scans.cursors[level][-1]


def unlisted_page(
    snapshot: RowSnapshot, level: int, after: Id, *, until: Id = ids.GREATEST, limit: int = PAGE_SIZE
) -> Steps[Page]:
    """A page of one priority's messages that nothing lists; the dead columns are read after the messages."""
    wanted = Slice(snapshot.row, Type.MESSAGE, level, after=after, beyond=True, until=until, limit=limit, values=False)
    columns, _ = yield from read_bounded(wanted, snapshot.valid_at, snapshot.window)
    if not columns:
        return Page([], None)
    first, last = columns[0].name.id, columns[-1].name.id
    dead = yield from read_one(Slice(snapshot.row, Type.DEAD, level, after=first, until=ids.after(last), values=False))
    elsewhere = snapshot.loaded_timers.hidden.union(column.name.id for column in dead)
    alive = [column.name.id for column in columns if column.name.id not in elsewhere]
    return Page(alive, last if len(columns) == limit else None)
