"""Rescanning a row: finding stranded messages, which landed behind all cursors, and listing them for a claim.

A message can land there long after its time: a hint that one replica replays to another, a repair, a restored backup,
or a producer that crashed between a late send and its listing. No ordinary scan reaches it. A rescan reads names only,
from a given moment up to the first scan's position. It moves no cursor, remembers nothing, and commits only what it
found. A message that seems stranded is checked again, on an exact header, before it is listed.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import StoreError
from astyqueue.ids import Id
from astyqueue.model.envelope import FORMAT, unframed
from astyqueue.protocol.layout.columns import HEADER, Entry, Type, dead_name, visible_at
from astyqueue.protocol.row.bounded_reads import ReadInParts, ReadWindow
from astyqueue.protocol.row.cursors import SCAN_LAGS
from astyqueue.protocol.row.header_commit import COMMIT_MESSAGES, CommitLoop, CommitPlan
from astyqueue.protocol.row.paging import PAGE_SIZE
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.steps import Client, Send, Steps, read_column, read_one
from astyqueue.store import Batch, Column, Name, Named, Put, Slice

#: The cell that records when its row was last rescanned: a hint beside the header, which no commit touches.
RESCANNED: Final = Name(Type.LOCK, 0, ids.LEAST, 1)
_RESCANNED: Final = struct.Struct(">QQ")


class LastRescan(NamedTuple):
    """When the last complete rescan of a row began, and when a running one last reported; microseconds, 0: never."""

    began: int = 0
    going: int = 0


def last_rescan_in(column: Column | None, now: int) -> LastRescan:
    """The times in the cell, at most its own write time and `now`; zeros if it is missing or cannot be read."""
    if column is None:
        return LastRescan()
    try:
        moments = _RESCANNED.unpack(unframed(column.value))
    except (ValueError, struct.error):
        return LastRescan()
    latest = min(now, column.written)
    return LastRescan(*(min(moment, latest) for moment in moments))


def write_last_rescan(row: str, rescanned: LastRescan) -> Steps[None]:
    """Write the cell. A failure is ignored: the row is rescanned once more than necessary."""
    with contextlib.suppress(StoreError):
        yield Send(Batch(row, (Put(RESCANNED, FORMAT + _RESCANNED.pack(*rescanned)),)))


class _Listing(CommitPlan):
    """Messages to list in a timer."""

    def was_done(self, row: str) -> Steps[bool]:  # noqa: ARG002 - the interface of every plan
        """Always False: a listing leaves no trace. Planned again, it lists only what is still listed nowhere."""
        yield from ()
        return False


def list_stranded(process: Client, row: str, names: Sequence[Name]) -> Steps[int]:
    """List in timers due now the messages that exist, are not dead and are listed nowhere; returns their number."""
    commits = CommitLoop(process, RowSnapshot(row, 1))
    listed = 0
    for first in range(0, len(names), COMMIT_MESSAGES):
        plan = yield from commits.carry_out(partial(_listing, process, tuple(names[first : first + COMMIT_MESSAGES])))
        listed += sum(len(timer.entries) for timer in plan.listed) if plan else 0
    return listed


def _listing(process: Client, names: tuple[Name, ...], snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    # the dead columns are read after the messages, as before every claim
    present = yield from read_one(Named(snapshot.row, names, values=False))
    dead = yield from read_one(
        Named(snapshot.row, tuple(dead_name(name.priority, name.id) for name in names), values=False)
    )
    elsewhere = snapshot.loaded_timers.hidden.union(column.name.id for column in dead)
    lost = [column.name for column in present if column.name.id not in elsewhere]
    if not lost:
        return None
    return _Listing(listed=[visible_at(process, process.now(), [Entry(name.id, name.priority, 0) for name in lost])])


class RowRescan:
    """One rescan of one row, page by page, up to ten minutes ago: the ordinary scans cover the rest.

    It uses the timers as of its beginning: a message that was hidden then is never stranded later. `looked` counts the
    ids it read, `listed` the messages it listed.
    """

    def __init__(
        self,
        process: Client,
        row: str,
        levels: int,
        since: int | None = None,
        *,
        window: ReadWindow | None = None,
        heads: Sequence[Id] = (),
    ) -> None:
        """Rescan from the moment `since` (microseconds), or from the beginning; `window`: the read window of the row.

        While no rate of ids is known, one read of everything is tried first: most rows are short. `heads`: how far the
        first scan of this process has come, by priority, where that is further than the header says.
        """
        self.row = row
        self.looked = 0
        self.listed = 0
        self._process = process
        self._since = since
        self._snapshot = RowSnapshot(row, levels)
        self._window = window or ReadWindow()
        self._heads = heads
        self._reads: list[ReadInParts] | None = None
        self._landed: list[Name] = []
        self._found: list[Name] = []

    @property
    def over(self) -> bool:
        """Whether nothing is left to read or to list."""
        return self._reads == [] and not self._landed and not self._found

    def go_on(self) -> Steps[None]:
        """Read a page, or list what the last page found. After an interruption or an error, a next call continues."""
        if self._found:
            self.listed += yield from list_stranded(self._process, self.row, self._found)
            self._found = []
        else:
            self._found = yield from self.page()

    def page(self) -> Steps[list[Name]]:
        """The messages of the next part that seem stranded; only an exact header makes that certain."""
        if self._reads is None:
            yield from self.begin((yield from read_column(self.row, HEADER)))
            return []
        if not self._landed:
            columns = yield from self._reads[0].step(PAGE_SIZE)
            self._landed = [
                column.name for column in columns if column.name.id not in self._snapshot.loaded_timers.hidden
            ]
            self.looked += len(columns)
            self._reads = [reading for reading in self._reads if not reading.over]
        stranded = (yield from self._living(self._landed)) if self._landed else []
        self._landed = []
        return stranded

    def begin(self, header: Column | None) -> Steps[None]:
        """Begin with the header from a plain read; if the first scan has passed nothing, the timers are not read."""
        now, snapshot = self._process.now(), self._snapshot
        snapshot.learn(header.value if header else None, now, header.written if header else None)
        since = ids.LEAST if self._since is None else ids.first_at(self._since)
        seen_to = ids.first_at(now - SCAN_LAGS[-1])
        heads = [max(passed) for passed in zip(snapshot.scans.heads, self._heads or snapshot.scans.heads, strict=True)]
        untils = [min(head, seen_to) for head in heads]
        slices = [
            Slice(self.row, Type.MESSAGE, level, after=since, until=until, values=False)
            for level, until in enumerate(untils)
            if since < until
        ]
        if slices:
            yield from load_snapshot(snapshot, now)
        self._reads = [
            ReadInParts.through(wanted, now, self._window, whole=not self._window.known) for wanted in slices
        ]

    def _living(self, names: list[Name]) -> Steps[list[Name]]:
        """Those that are not dead; `names` are of one priority. The dead columns are read after the messages."""
        first, last = names[0], names[-1]
        dead = yield from read_one(
            Slice(self.row, Type.DEAD, first.priority, after=first.id, until=ids.after(last.id), values=False)
        )
        dead_ids = {column.name.id for column in dead}
        return [name for name in names if name.id not in dead_ids]
