"""Rescanning a row: finding messages that landed behind what its readers have passed, and listing them so that they are taken.

A message can land there long after its time: a hint that one replica replays to another, a repair, a restored backup, or a
producer that died between a late send and its listing. No ordinary look reaches it any more. A rescan reads names only, from
a moment up to where the first look has come, and is no look itself: it moves no cursor, remembers nothing, and commits only
what it found. A message that it takes for stranded is looked at again, on an exact header, before it is listed.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import StoreError
from astyqueue.model.message import FORMAT
from astyqueue.protocol.columns import HEADER, Entry, State, Timer, Type, dead_name
from astyqueue.protocol.looks import LAGS
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.pages import PAGE
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import MOST, Plan, Raising
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Send, Steps, read_column, read_one
from astyqueue.protocol.stretches import Strides, Walk
from astyqueue.store import Batch, Column, Name, Named, Put, Slice

#: The cell of a row that says when it was last rescanned: a hint beside the header, which no commit touches.
RESCANNED: Final = Name(Type.LOCK, 0, ids.LEAST, 1)
_RESCANNED: Final = struct.Struct(">QQ")


class Rescanned(NamedTuple):
    """When the last complete rescan of a row began, and when a process that is at one last said so; microseconds, 0 for never."""

    began: int = 0
    going: int = 0


def rescanned_in(column: Column | None, now: int) -> Rescanned:
    """What the cell says, which is never later than its own write time, nor than now; what cannot be read says nothing."""
    if column is None or column.value[:1] != FORMAT or len(column.value) != 1 + _RESCANNED.size:
        return Rescanned()
    latest = min(now, column.written)
    return Rescanned(*(min(moment, latest) for moment in _RESCANNED.unpack_from(column.value, 1)))


def note_rescanned(row: str, rescanned: Rescanned) -> Steps[None]:
    """Write the cell. If that fails the row is rescanned once more than it needs to be."""
    with contextlib.suppress(StoreError):
        yield Send(Batch(row, (Put(RESCANNED, FORMAT + _RESCANNED.pack(*rescanned)),)))


class _Listing(Plan):
    """Messages that are listed in a timer; it removes nothing by which one could tell later that it was done."""

    def was_done(self, row: str) -> Steps[bool]:  # noqa: ARG002 - as every plan is asked
        """Nobody can say. Planned again on the row as it is by then, it lists only what is still listed nowhere."""
        yield from ()
        return False


def list_late(process: Process, row: str, names: Sequence[Name]) -> Steps[int]:
    """List those of these messages that are there, not dead and listed nowhere in timers that are due now; how many those were."""
    raising = Raising(process, Sight(row, 1))
    listed = 0
    for first in range(0, len(names), MOST):
        plan = yield from raising.carry_out(partial(_listing, process, tuple(names[first : first + MOST])))
        listed += sum(len(timer.entries) for timer in plan.listed) if plan else 0
    return listed


def _listing(process: Process, names: tuple[Name, ...], sight: Sight) -> Steps[Plan | None]:
    """The dead columns are read after the messages, as before every claim."""
    present = yield from read_one(Named(sight.row, names, values=False))
    dead = yield from read_one(Named(sight.row, tuple(dead_name(name.priority, name.id) for name in names), values=False))
    buried = {column.name.id for column in dead}
    lost = [column.name for column in present if column.name.id not in sight.hidden and column.name.id not in buried]
    if not lost:
        return None
    entries = tuple(Entry(name.id, name.priority, 0) for name in lost)
    name = Name(Type.TIMER, 0, process.id_at(process.now()), State.SNOOZED)
    return _Listing(listed=[with_value(Timer(name, entries, process.nonce(), "", len(entries)))])


class RowRescan:
    """One rescan of one row, a page at a time.

    It knows the timers from its beginning: a message that was hidden then never waits again, whatever becomes of it. Up to
    the last ten minutes, which the ordinary looks see to. `looked` counts the ids it read, `listed` those it had listed.
    """

    def __init__(self, process: Process, row: str, levels: int, since: int | None = None, *, strides: Strides | None = None) -> None:
        """From the moment `since` on, in microseconds, or from the beginning; `strides` are those of the row.

        Where no rate of ids is known, all is tried in one read first: most rows are little to read.
        """
        self.row = row
        self.looked = 0
        self.listed = 0
        self._process = process
        self._since = since
        self._sight = Sight(row, levels)
        self._strides = strides or Strides()
        self._walks: list[Walk] | None = None
        self._landed: list[Name] = []
        self._found: list[Name] = []

    @property
    def over(self) -> bool:
        """Whether there is nothing left to read or to list."""
        return self._walks == [] and not self._landed and not self._found

    def go_on(self) -> Steps[None]:
        """Read a page, or list what the last one showed. Stopped or failed half-way, it can go on from there."""
        if self._found:
            self.listed += yield from list_late(self._process, self.row, self._found)
            self._found = []
        else:
            self._found = yield from self.page()

    def page(self) -> Steps[list[Name]]:
        """The messages in the next stretch that are stranded, as far as one can tell without an exact header."""
        if self._walks is None:
            yield from self.begin((yield from read_column(self.row, HEADER)))
            return []
        if not self._landed:
            columns = yield from self._walks[0].step(PAGE)
            self._landed = [column.name for column in columns if column.name.id not in self._sight.hidden]
            self.looked += len(columns)
            self._walks = [walk for walk in self._walks if not walk.over]
        stranded = (yield from self._living(self._landed)) if self._landed else []
        self._landed = []
        return stranded

    def begin(self, header: Column | None) -> Steps[None]:
        """Begin with the header as a plain read has just shown it; where nothing has passed, the timers are not read."""
        now, sight = self._process.now(), self._sight
        sight.learn(header.value if header else None, now, header.written if header else None)
        since = ids.LEAST if self._since is None else ids.first_at(self._since)
        seen_to = ids.first_at(now - LAGS[-1])
        untils = [min(head, seen_to) for head in sight.looks.heads]
        slices = [
            Slice(self.row, Type.MESSAGE, level, after=since, until=until, values=False)
            for level, until in enumerate(untils)
            if since < until
        ]
        if slices:
            yield from know(sight, now)
        self._walks = [Walk.through(wanted, now, self._strides, whole=not self._strides.known) for wanted in slices]

    def _living(self, names: list[Name]) -> Steps[list[Name]]:
        """Those of one priority that are not dead; read after the messages."""
        first, last = names[0], names[-1]
        dead = yield from read_one(Slice(self.row, Type.DEAD, first.priority, after=first.id, until=ids.behind(last.id), values=False))
        buried = {column.name.id for column in dead}
        return [name for name in names if name.id not in buried]
