"""Reading past tombstones: a slice that would pass more of them than the store allows is read in parts.

A replicated store keeps a tombstone for each deleted column for a day, and aborts a read that passes too many. So a
long slice is read in parts of time, in ascending order, until the requested number of columns is found or the end is
reached.

The length of a part follows from the rate of ids that this process has seen in the row. A process that has seen none
begins with short parts and doubles them. A part that the store aborts is read again in shorter ones, and its length is
remembered as a limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Column, Slice
from astyqueue.units import NEVER, SECOND

#: Approximate bytes of messages that one claim reads. A store returns this amount well within its time limit, and a
#: commit costs little beside it; 200 messages of a mebibyte each exceed what Cassandra's nodes send to each other.
READ_BUDGET: Final = 4 << 20
#: Assumed size of a message before any was read: the default limit of a body.
_LARGE: Final = 256 << 10

#: Ids that the first part of a read passes, and the most that any part passes. Cassandra aborts a read at 100 000
#: tombstones; the margin covers a rate that was higher than the one seen.
_FIRST: Final = 10_000
_MOST: Final = 40_000
#: The first part when no rate is known.
_CAUTIOUS: Final = 30 * SECOND
#: Factors: a part is divided by _SHORTER after a failure, multiplied by _LONGER after a success.
_SHORTER: Final = 16
_LONGER: Final = 2
#: What lies ahead of the present is tried in one read. Each time that fails, a part is read in advance that is this
#: many times longer than the one before.
_FURTHER: Final = 4
#: A length that failed is remembered as a limit, which rises by 1/_RISES with each successful part of that length.
_RISES: Final = 1_024
#: A longer pause between two claims counts as one of this length: the rate describes busy times.
_PAUSE: Final = 60 * SECOND
#: Highest rate assumed, in ids per second: no row sustains more, and a burst sent at one moment would show any rate.
_FASTEST: Final = 3_000
#: Time over which the rate is averaged, approximately.
_REMEMBERED: Final = 600 * SECOND
#: Before this age, a store has purged most tombstones: parts grow without limit.
_PURGED: Final = 48 * 3_600 * SECOND


@dataclass(slots=True)
class ReadWindow:
    """The allowed length of a read's parts, for one type of column in one row; all times in microseconds.

    Wrong numbers cost extra reads, never a missed column. `like`: the window of similar rows, whose rate counts until
    one is seen here. `crowded_until`: a moment in the future; columns up to it are read in parts, the rest in one read.
    """

    like: ReadWindow | None = None
    crowded_until: int = 0
    _ids: float = 0
    _time: float = 0
    _last: int = _CAUTIOUS
    _limit: int = NEVER

    def saw(self, count: int, after: Id, last: Id) -> None:
        """Record `count` ids beyond `after`, up to `last`: the rate is computed from them."""
        self._ids += count
        self._time += max(0, min(ids.moment(last) - ids.moment(after), _PAUSE))
        if self._time > _REMEMBERED:
            self._ids, self._time = self._ids / 2, self._time / 2
        if self.like:
            self.like.saw(count, after, last)

    @property
    def known(self) -> bool:
        """Whether a rate was measured, in this row or in similar ones."""
        return self._ids > 0 or (self.like is not None and self.like.known)

    def lasts(self, count: int) -> int:
        """The time in which `count` ids arrive at the measured rate; NEVER if there is none."""
        if self._ids > 0:
            return count * max(int(self._time / self._ids), SECOND // _FASTEST)
        return self.like.lasts(count) if self.like else NEVER

    @property
    def longest(self) -> int:
        """The maximum length of a part."""
        return max(1, min(self._limit, self.lasts(_MOST)))

    @property
    def first(self) -> int:
        """The length of the first part of a read."""
        return max(1, min(self._limit, self.lasts(_FIRST) if self.known else self._last))

    @property
    def at_once(self) -> int:
        """The longest slice that is read whole, without parts."""
        return self.longest if self.known else self.first

    def went_well(self, length: int) -> None:
        """Record that a part of this length was read."""
        self._last = max(self._last, length)
        if length >= self._limit:
            self._limit += max(1, self._limit // _RISES)

    def failed(self, length: int) -> None:
        """Record that the store aborted a part of this length."""
        self._last = max(1, min(self._last, length // _SHORTER))
        self._limit = max(1, min(self._limit, length // 2))


class BoundedRead(NamedTuple):
    """The columns read.

    `long`: by the rate of ids seen here, or because the store aborted a read, one read would pass too many tombstones.
    """

    columns: list[Column]
    long: bool


def read_bounded(
    wanted: Slice, now: int, window: ReadWindow, *, whole: bool = False, exact: bool = False
) -> Steps[BoundedRead]:
    """The columns of a slice of one priority, read upwards in as many parts as needed.

    With `whole` one read is tried first: for slices that normally contain few tombstones. A slice that begins at the
    start of the row, where no scan has been yet, is tried in one read as well.
    """
    reading = ReadInParts.through(wanted, now, window, whole=whole, exact=exact)
    found: list[Column] = []
    while not reading.over and (wanted.limit is None or len(found) < wanted.limit):
        found += yield from reading.step(None if wanted.limit is None else wanted.limit - len(found))
    return BoundedRead(found, reading.long)


def read_in_pages(wanted: Slice, page: int, window: ReadWindow, *, exact: bool = False) -> Steps[list[Column]]:
    """Every column of a slice, upwards, `page` columns per read; most of the slice lies in the future."""
    found: list[Column] = []
    while True:
        part = replace(wanted, limit=page)
        columns, _ = yield from read_bounded(part, ids.moment(part.after), window, whole=True, exact=exact)
        found += columns
        if len(columns) < page:
            return found
        wanted = replace(wanted, after=columns[-1].name.id, beyond=True)


@dataclass(slots=True, kw_only=True)
class ReadInParts:
    """One slice, read step by step: up to `end` in parts, the rest in one read.

    The last part and the rest share one read, unless the rest is to be read `apart`. `long`: as of `BoundedRead`.
    """

    wanted: Slice
    window: ReadWindow
    now: int
    exact: bool
    start: int
    end: int
    length: int
    whole: bool
    apart: bool
    long: bool
    over: bool = False
    _further: int = 0

    @classmethod
    def through(
        cls, wanted: Slice, now: int, window: ReadWindow, *, whole: bool = False, exact: bool = False
    ) -> ReadInParts:
        """Begin a read; with `whole`, or at the start of the row, one read of the whole slice is tried first."""
        bound = ids.moment(wanted.until)
        start = max(0, ids.moment(wanted.after))
        crowded = now < window.crowded_until and start < window.crowded_until
        end = max(start, min(window.crowded_until if crowded else now, bound))
        whole = (whole or start == 0) and not (crowded and now < bound)
        span = max(1, end - start)
        return cls(
            wanted=wanted,
            window=window,
            now=now,
            exact=exact,
            start=start,
            end=end,
            length=span if whole or span <= window.at_once else window.first,
            whole=whole,
            apart=crowded and end < bound,
            long=not whole and window.known and span > window.longest,
        )

    def step(self, limit: int | None) -> Steps[list[Column]]:
        """Read the next part, or its first `limit` columns; if the store aborts it, none: the next part is shorter."""
        if not self.whole:
            self.length = min(self.length, self._longest_part())
        part = self._part(limit)
        try:
            columns = yield from read_one(part, exact=self.exact)
        except SliceTooLong:
            if not self._shorten(part):
                raise
            self.whole = False
            return []
        if limit is not None and len(columns) == limit:
            self.wanted = replace(self.wanted, after=columns[-1].name.id, beyond=True)
            self.start = max(self.start, ids.moment(columns[-1].name.id))
        elif part.until == self.wanted.until:
            self.over = True
        else:
            self._go_on(part.until)
        return columns

    def _part(self, limit: int | None) -> Slice:
        """The next part, or its first `limit` columns; the whole slice as it is, if nothing of it is left out."""
        until = self._until()
        if until == self.wanted.until and limit == self.wanted.limit:
            return self.wanted
        return replace(self.wanted, until=until, limit=limit)

    def _longest_part(self) -> int:
        purged = self.now - _PURGED
        return self.window.longest if self.start >= purged else purged - self.start

    def _until(self) -> Id:
        rest = self.start >= self.end or (not self.apart and self.start + self.length >= self.end)
        return (
            self.wanted.until if rest else min(self.wanted.until, ids.first_at(min(self.start + self.length, self.end)))
        )

    def _shorten(self, part: Slice) -> bool:
        """Continue with a shorter part, or read some of the rest in parts first; False if there is no shorter part."""
        self.long = True
        if self.start >= self.end:
            self._further = self._further * _FURTHER or self.window.first
            self.end = self.start + self._further
            self.window.crowded_until = max(self.window.crowded_until, self.end)
            self.length, self.apart = self.window.first, True
            return True
        span = min(self.length, self.end - self.start)
        if part.until == self.wanted.until and self.end < ids.moment(self.wanted.until):
            self.apart = True  # all the tombstones may lie in the rest
        elif 0 < (older := self.now - _PURGED - self.start) < span:
            self.length = older
            return True
        elif span <= 1:
            return False
        else:
            self.window.failed(span)
        self.length = max(1, min(self.window.first, span // _SHORTER))
        return True

    def _go_on(self, reached: Id) -> None:
        at = ids.moment(reached)
        self.window.went_well(at - self.start)
        self.start, self.length = at, self.length * _LONGER
        self.wanted = replace(self.wanted, after=reached, beyond=False)


@dataclass(slots=True)
class MessageSizes:
    """The average size of a queue's messages, from those that this process has read."""

    average: float = _LARGE
    _known: bool = False

    def saw(self, read: int, count: int) -> None:
        """Record `read` bytes in `count` messages. The average rises at once, but falls by at most half per call."""
        mean = max(1.0, read / count)
        self.average = max(mean, self.average / 2) if self._known else mean
        self._known = True

    def within(self, budget: int) -> int:
        """How many messages of average size fit into `budget` bytes."""
        return max(0, int(budget / self.average))

    def forget(self) -> None:
        """Assume large messages again, after a read that failed: it may have been too large."""
        self.average, self._known = _LARGE, False
