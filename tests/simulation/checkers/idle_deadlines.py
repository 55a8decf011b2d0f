"""When messages into idle queues have to begin at the latest, by what decision 46 states and what hinders them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.cassandra.unreliable_log import WrittenNotice

#: A notice that reads return this long after its moment at most is in every read's overlap, or in one of each second's.
_PROMPT: Final = SECOND // 10
_IN_TIME: Final = 3 * SECOND // 4
#: A queue is called this long after such a notice can be read: the log is read eight times a second.
_CALLED: Final = 3 * SECOND // 10
_CALLED_BY_LONG_READ: Final = SECOND + _CALLED
#: A queue has its turn once in this time for each queue of the process: every two seconds, and the read that gives it.
_TURN: Final = 9 * SECOND // 4
#: How long a queue that was called or has its turn takes to claim a message, and one that knows when it is due.
_CLAIMED: Final = 3 * SECOND // 10
#: A poll of a row shows its next message. What is due after that is shown by a poll this long after it began at most.
_POLLED_AGAIN: Final = 12 * SECOND // 10
#: A message behind the head, because its sender's clock is behind, is found by the scan ten seconds behind, which
#: reads every five.
_LATE_SCAN: Final = 15 * SECOND
#: One way between two nodes takes this long at most. A read of the bell takes two ways to its node and back, two for
#: each page of its quorum, and two for a repair.
_WAY: Final = 3 * SECOND // 2_000
#: In a queue in use without traffic of the process for a minute, reading the bell takes a hundredth of the time.
_UNHURRIED: Final = 100
#: A row whose time shard ended less than a minute ago is read once in this time in a queue in use.
_PAST_ROW: Final = 2 * SECOND


@dataclass(frozen=True, slots=True)
class AwaitedMessage:
    """A message whose send returned at `sent` and that is due at `due`, in true time.

    `place` is the moment in its id, which is earlier than `sent` if the clock of its sender is behind. `notice` is the
    one that stands for it: the last of its sender in this queue. `unhurried`: the queue was in use, but had no traffic
    of its process for a minute; `past`: the queue was in use when the send returned, but the time shard of the row had
    ended; `future`: that time shard had not begun by the clock of the sender, which does not ring for such a row. Turns
    find it `turns_from` this moment: senders do not ring for a queue of one concurrency shard, so its turns poll the
    row once its time shard has begun.
    """

    number: int
    queue: str
    row: str
    sent: int
    due: int
    place: int
    notice: WrittenNotice | None
    unhurried: bool = False
    past: bool = False
    future: bool = False
    turns_from: int = 0


@dataclass(frozen=True, slots=True)
class _Hindrance:
    """A time in which a queue is not served, or not told of notices; all queues if none is named."""

    queue: str | None
    begin: int
    end: int


class IdleDeadlines:
    """The deadlines of messages into the queues of one process, from what hindered them and what began in them."""

    def __init__(self, queues: int, *, cells: int, turns: int = 1) -> None:
        """Of this number of queues; nothing has happened.

        A page of a read has this number of `cells`. All rows of a queue are polled within this number of `turns`.
        """
        self._queues = queues
        self._turns = turns
        # The bell has one cell. A page that it fills is followed by another one.
        pages = 2 if cells == 1 else 1
        self._bell_read = _WAY * 2 * (pages + 2)
        self._hindrances: list[_Hindrance] = []
        self._last_begins: dict[str, int] = {}

    def hinder(self, queue: str | None, begin: int, end: int) -> None:
        """Note a time in which a queue, or each if none is named, is not served or not told of notices."""
        self._hindrances.append(_Hindrance(queue, begin, end))

    def forget_before(self, moment: int) -> None:
        """Forget the hindrances that have ended by this moment."""
        self._hindrances = [each for each in self._hindrances if each.end > moment]

    def begins(self, row: str, moment: int) -> None:
        """Note that a message in this row begins for the first time."""
        self._last_begins[row] = moment

    def of(self, one: AwaitedMessage) -> int:
        """When a message has to begin at the latest, by what hindered its queue until now."""
        found = self._found(one, one.sent)
        if one.due > one.sent and one.row in self._last_begins:
            found = max(found, self._last_begins[one.row] + _POLLED_AGAIN)
        if one.place < self._last_begins.get(one.row, one.place):
            found = max(found, one.place + _LATE_SCAN)
        deadline = max(one.due, found) + _CLAIMED
        for hindrance in sorted(self._hindrances, key=lambda each: each.begin):
            if hindrance.queue in (None, one.queue) and hindrance.begin <= deadline and hindrance.end >= one.sent:
                deadline = max(deadline, self._found(one, hindrance.end) + _CLAIMED)
        return deadline

    def _found(self, one: AwaitedMessage, since: int) -> int:
        """When the process finds a message, if nothing hinders its queue `since` this moment."""
        called = self._called(one, since)
        if one.unhurried:
            called = max(called, since + _UNHURRIED * self._bell_read)
        return called + _PAST_ROW if one.past else called

    def _called(self, one: AwaitedMessage, since: int) -> int:
        """When the queue is called by the notice, or has its turn."""
        turns = self._turns if one.future else 1
        turn = max(since, one.turns_from) + _TURN * self._queues * turns + _CALLED
        if one.notice is None or one.notice.readable is None:
            return turn
        late = one.notice.readable - one.notice.moment
        if late > _IN_TIME:
            return turn
        return max(since, one.notice.readable) + (_CALLED if late <= _PROMPT else _CALLED_BY_LONG_READ)
