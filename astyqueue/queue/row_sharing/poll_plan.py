"""When each row of a queue is polled next: often while the queue is in use, once and far ahead while it is idle."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from astyqueue.clock import Clock
from astyqueue.protocol.layout.rows import Ring
from astyqueue.queue.row_sharing.deadline_heap import DeadlineHeap
from astyqueue.queue.row_sharing.idle_queues import QueueActivity
from astyqueue.units import NEVER, SECOND, MonotonicUs

#: The pauses between two reads of a row's header. `_CURRENT`: of a current row, or one that just ended, after recent
#: traffic. `_OPEN`: of these without such traffic, of rows with known timers, and the least of others. `_RESTING`: the
#: longest.
_CURRENT: Final = SECOND
_OPEN: Final = 2 * SECOND
_RESTING: Final = 60 * SECOND
#: Rows count as just ended if their time shard ended this long before a look, or since: senders may be slow, and clocks
#: be behind.
_JUST_ENDED: Final = 60 * SECOND
#: A past row is read again when the time since its last change has grown by a tenth: few messages land very late in it.
_PART: Final = 10
#: How long traffic of this process counts as recent.
_TRAFFIC: Final = 60 * SECOND
#: The number of rows in one poll.
_TOGETHER: Final = 32
#: The pause before a poll without an answer is tried again.
_UNANSWERED: Final = 5 * SECOND
#: The deadline of rows that were never polled, and of current rows that a consumer asks for. Only rows whose
#: time shard begins come before: theirs is 0.
_FIRST: Final = 1
#: The number of rows of an idle queue that are polled in its turn. With settings and doorbell that makes about eight
#: queries in a queue with one concurrency shard, and four in one with several.
_IN_TURN: Final = 2
_IN_TURN_OF_SHARED: Final = 1
#: A poll of an idle queue looks this much further ahead than to the row's next turn, and at least this far; it is
#: repeated after these parts of that time if no turn came.
_FURTHER: Final = 1.3
_LEAST_AHEAD: Final = 30 * SECOND
_AGAIN_BY: Final = (0.8, 0.95)


class PollPlan:
    """The moment of the next poll of each row. `current` are the rows that are written to now.

    A row has *just ended* if its time shard ended after this process last looked at the queue, or in the minute before:
    the process may have been suspended, or have had other queues to look at. As no notice names a row, and the bell is
    about current ones, what was sent to them is found by polls.
    """

    def __init__(self, ring: Ring, rows: Iterable[str], activity: QueueActivity, clock: Clock) -> None:
        """Every row as soon as possible."""
        self.current: list[str] = []
        self._ring = ring
        self._rows = list(rows)
        self._activity = activity
        self._clock = clock
        self._polls = DeadlineHeap()
        self.start_anew(clock.now())

    def start_anew(self, now: int) -> None:
        """Poll every row as soon as possible."""
        self._time_shard_ends, self._looked = 0, now
        for row in self._rows:
            self._polls.set(row, _FIRST)

    def begin_use(self, now: int) -> None:
        """The queue is in use again: poll rows within a minute, but for those that `begin_time_shard` polls at once."""
        self._time_shard_ends = 0
        for row in self._rows:
            self._polls.lower(row, now + int(random.random() * _RESTING))

    def end_use(self, now: int) -> None:
        """The queue is idle: poll all rows once more, far ahead."""
        self._looked = now
        for row in self._rows:
            self._polls.lower(row, now)

    def at_rest(self, now: int) -> bool:
        """Whether the queue is idle and each row was polled far ahead."""
        return self._activity.idle and self._polls.next() > now

    def poll_current_next(self) -> None:
        """Poll the current rows before all others."""
        for row in self.current:
            self._polls.set(row, _FIRST)

    def poll_oldest(self, now: int) -> None:
        """In the turn of an idle queue, when the bell was read: poll the rows whose next polls come first.

        Senders do not ring for a queue of one concurrency shard, so its rows that just ended are polled too. After a
        ring such rows are polled as the queue is in use again.
        """
        for row in self._polls.take_several(NEVER - 1, self._in_turn):
            self._polls.set(row, now)
        if not self._ring.shared:
            self._poll_just_ended(now)
        if not self._activity.in_use:
            self._looked = now

    def by(self, row: str, moment: int) -> None:
        """Poll a row at this moment at the latest."""
        self._polls.lower(row, moment)

    def answered(self, row: str, now: int, pause: int) -> None:
        """Plan the next poll of a row that was just polled."""
        self._polls.set(row, now + pause)

    def unprobed(self, row: str, now: int) -> None:
        """Poll a row again soon whose header was read without a probe, because another process works in it."""
        self._polls.lower(row, now + _OPEN)

    @property
    def complete(self) -> bool:
        """Whether every row was polled at least once, and every current row since `poll_current_next`."""
        return self._polls.next() > _FIRST

    def is_overdue(self, now: int) -> bool:
        """Whether a row is to be polled now, as when no consumer of this process received for a while."""
        return self._polls.next() <= now

    def next_event(self) -> int:
        """The moment of the next poll."""
        return self._polls.next() if self._activity.idle else min(self._polls.next(), self._time_shard_ends)

    def begin_time_shard(self, now: int) -> None:
        """When a time shard or the use of the queue begins, poll the current rows, and those that just ended.

        While the queue is idle, only the names of the current rows change: they were polled far ahead. The caller does
        this before it reads the bell, which names current rows by their places.
        """
        if now < self._time_shard_ends:
            return
        first = not self.current
        self.current, self._time_shard_ends = self._ring.current(now), self._ring.closes(now)
        if first or not self._activity.idle:
            for row in self.current:
                self._polls.set(row, 0)
            self._poll_just_ended(now)

    @contextmanager
    def polling(self, now: int) -> Iterator[list[str]]:
        """The rows to poll now. After an error they are polled again soon; those of a cancelled caller at once."""
        rows = self._take(now)
        try:
            yield rows
        except BaseException as error:
            again = now + _UNANSWERED if isinstance(error, Exception) else now
            for row in rows:
                self._polls.lower(row, again)
            raise

    def _take(self, now: int) -> list[str]:
        """Take the rows to poll now; until the answer is applied, they are planned to be polled again."""
        if not self._activity.idle:
            self._looked = now
        rows = self._polls.take_several(now, _TOGETHER)
        for row in rows:
            self._polls.set(row, now + _UNANSWERED)
        return rows

    def _poll_just_ended(self, now: int) -> None:
        for row in self._ring.ended(self._looked - _JUST_ENDED, now):
            self._polls.lower(row, now)

    def _just_ended(self, row: str, now: int) -> bool:
        return self._ring.has_ended(row, self._looked - _JUST_ENDED, now)

    def was_current(self, row: str, now: int) -> bool:
        """Whether a row was written to in the time shard before this one."""
        return row in self._ring.current(now - self._ring.layout.time_shard_us)

    def pause(self, row: str, now: int, unchanged_since: MonotonicUs, *, has_timers: bool) -> int:
        """The pause until a row is polled again: short where new work is likely or timers are pending."""
        if self._activity.idle:
            return int(self._ahead() * random.uniform(*_AGAIN_BY))
        if row in self.current or self._just_ended(row, now):
            return _CURRENT if now - self._activity.last_traffic < _TRAFFIC else _OPEN
        if has_timers:
            return _OPEN
        return min(max(_OPEN, (self._clock.monotonic() - unchanged_since) // _PART), _RESTING)

    def until(self, row: str, now: int) -> int:
        """How far ahead a poll looks for messages: a little beyond the row's next poll, which may be late or repeated.

        Later ones are left to that poll: the tombstones of all delayed messages that were cancelled or debounced may
        lie between the head and the next one.
        """
        longest = self._ahead() if self._activity.idle else _RESTING
        return now + min(max(0, self._polls.at(row) - now), longest) + 2 * _UNANSWERED

    @property
    def _in_turn(self) -> int:
        return _IN_TURN_OF_SHARED if self._ring.shared else _IN_TURN

    def _ahead(self) -> int:
        """How far ahead a row of an idle queue is polled: a little beyond its next turn."""
        turns = -(-len(self._rows) // self._in_turn)
        return max(_LEAST_AHEAD, int(_FURTHER * self._activity.watch.lap * turns))
