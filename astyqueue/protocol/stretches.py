"""Reading past what was deleted: stretch by stretch, where one slice passes more of it than the store puts up with.

A row whose cursors are lost (or that nobody looked at while others deleted in it) is walked from the start, over the graves
of everything that was ever settled there. A store of many machines gives such a read up. So it is read in slices of time:
shorter ones after a failure, longer ones after a success, until the asked number is found or the end is reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from astyqueue import ids
from astyqueue.errors import SliceTooLong
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Slice

#: After a failure a stretch is so many times shorter, after a success so many times longer.
_SHORTER: Final = 16
_LONGER: Final = 2


def read_through(wanted: Slice, now: int) -> Steps[tuple[list[Column], bool]]:
    """The columns of a slice of one priority, and whether they had to be read in stretches."""
    try:
        return (yield from read_one(wanted)), False
    except SliceTooLong:
        return (yield from _in_stretches(wanted, now)), True


def _in_stretches(wanted: Slice, now: int) -> Steps[list[Column]]:
    """What is later than now was never claimed, so it was hardly deleted: that is the last stretch, whole."""
    found: list[Column] = []
    start, end = max(0, ids.moment(wanted.after)), max(now, ids.moment(wanted.after) + 1)
    width = end - start
    while wanted.limit is None or len(found) < wanted.limit:
        until = min(wanted.until, ids.first_at(start + width)) if start + width < end else wanted.until
        part = replace(wanted, until=until, limit=None if wanted.limit is None else wanted.limit - len(found))
        columns = yield from _stretch(part, last=width <= 1)
        if columns is None:
            width = max(1, width // _SHORTER)
            continue
        found += columns
        if until == wanted.until:
            break
        wanted, start, width = replace(wanted, after=max(wanted.after, until), beyond=wanted.after >= until), start + width, width * _LONGER
    return found


def _stretch(part: Slice, *, last: bool) -> Steps[list[Column] | None]:
    """The columns of one stretch; None if it is too long, unless there is no shorter one."""
    try:
        return (yield from read_one(part))
    except SliceTooLong:
        if last:
            raise
        return None
