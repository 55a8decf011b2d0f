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
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.errors import SliceTooLong, StoreError
from astyqueue.ids import Id
from astyqueue.model.message import FORMAT
from astyqueue.protocol.columns import HEADER, Entry, State, Timer, Type, dead_name
from astyqueue.protocol.looks import LAGS
from astyqueue.protocol.outcomes import with_value
from astyqueue.protocol.pages import PAGE
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import MOST, Plan, Raising
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Send, Steps, read_column, read_one
from astyqueue.store import Batch, Column, Name, Named, Put, Slice

#: The cell of a row that says when it was last rescanned: a hint beside the header, which no commit touches.
RESCANNED: Final = Name(Type.LOCK, 0, ids.LEAST, 1)
_RESCANNED: Final = struct.Struct(">QQ")
#: The first stretch leaves out this part of the time that is left, the next one the same part of that, and so on: deleted
#: messages lie close together in the latest of it.
_LATEST: Final = 16
#: What is left is no longer divided when it is this short.
_SHORT: Final = 60 * SECOND
#: A stretch that the store gave up is divided by this. Those behind it grow by such a part, so that few are given up.
_SHORTER: Final = 4
_GROWTH: Final = 16


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


@dataclass(slots=True)
class _Span:
    """What is still to be read of one priority. `whole`: in one slice, for most of a row's whole past was cleared away long ago."""

    level: int
    after: Id
    until: Id
    whole: bool
    width: int | None = None

    @property
    def end(self) -> Id:
        """Where the next stretch ends."""
        if self.whole:
            return self.until
        left = ids.moment(self.until) - self._start
        width = left - left // _LATEST if self.width is None else self.width
        return self.until if width + _SHORT >= left and self.width is None else min(self.until, ids.first_at(self._start + width))

    @property
    def _start(self) -> int:
        return max(0, ids.moment(self.after))

    def go_on_from(self, reached: Id) -> None:
        """Everything before this id was read."""
        self.after = reached
        if self.width is not None:
            self.width += self.width // _GROWTH + 1

    def shorten(self) -> bool:
        """Have a shorter stretch next; False if there is none."""
        if self.whole:
            self.whole = False
            return True
        self.width = (ids.moment(self.end) - self._start) // _SHORTER
        return self.width > 0


class RowRescan:
    """One rescan of one row, a page at a time.

    It knows the timers from its beginning: a message that was hidden then never waits again, whatever becomes of it. Up to
    the last ten minutes, which the ordinary looks see to. `looked` counts the ids it read, `listed` those it had listed.
    """

    def __init__(self, process: Process, row: str, levels: int, since: int | None = None) -> None:
        """From the moment `since` on, in microseconds, or from the beginning."""
        self.row = row
        self.looked = 0
        self.listed = 0
        self._process = process
        self._since = since
        self._sight = Sight(row, levels)
        self._spans: list[_Span] | None = None
        self._found: list[Name] = []

    @property
    def over(self) -> bool:
        """Whether there is nothing left to read or to list."""
        return self._spans == [] and not self._found

    def go_on(self) -> Steps[None]:
        """Read a page, or list what the last one showed. Stopped or failed half-way, it can go on from there."""
        if self._found:
            self.listed += yield from list_late(self._process, self.row, self._found)
            self._found = []
        else:
            self._found = yield from self.page()

    def page(self) -> Steps[list[Name]]:
        """The messages in the next stretch that are stranded, as far as one can tell without an exact header."""
        if self._spans is None:
            yield from self.begin((yield from read_column(self.row, HEADER)))
            return []
        span = self._spans[0]
        end = span.end
        wanted = Slice(self.row, Type.MESSAGE, span.level, after=span.after, until=end, limit=PAGE, values=False)
        try:
            columns = yield from read_one(wanted)
        except SliceTooLong:
            if not span.shorten():
                raise
            return []
        landed = [column.name for column in columns if column.name.id not in self._sight.hidden]
        stranded = (yield from self._living(landed)) if landed else []
        self.looked += len(columns)
        span.go_on_from(end if len(columns) < PAGE else ids.behind(columns[-1].name.id))
        self._spans = [span for span in self._spans if span.after < span.until]
        return stranded

    def begin(self, header: Column | None) -> Steps[None]:
        """Begin with the header as a plain read has just shown it; where nothing has passed, the timers are not read."""
        now, sight = self._process.now(), self._sight
        sight.learn(header.value if header else None, now, header.written if header else None)
        since = ids.LEAST if self._since is None else ids.first_at(self._since)
        seen_to = ids.first_at(now - LAGS[-1])
        spans = [_Span(level, since, min(head, seen_to), self._since is None) for level, head in enumerate(sight.looks.heads)]
        spans = [span for span in spans if span.after < span.until]
        if spans:
            yield from know(sight, now)
        self._spans = spans

    def _living(self, names: list[Name]) -> Steps[list[Name]]:
        """Those of one priority that are not dead; read after the messages."""
        first, last = names[0], names[-1]
        dead = yield from read_one(Slice(self.row, Type.DEAD, first.priority, after=first.id, until=ids.behind(last.id), values=False))
        buried = {column.name.id for column in dead}
        return [name for name in names if name.id not in buried]
