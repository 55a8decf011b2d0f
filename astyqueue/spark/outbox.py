"""What a task sends: gathered by row, a commit full at a time, several rows at once, and not faster than the queue wants it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.model.event import Kind
from astyqueue.protocol.lookup import leave_hints
from astyqueue.protocol.raising import MOST
from astyqueue.protocol.repeatable import Repeating
from astyqueue.queue.queue import MessageQueue
from astyqueue.spark.addressing import Addressed
from astyqueue.spark.opening import Pace

#: Between two looks at how much waits in a queue that is full.
_LOOK: Final = SECOND // 4
#: Nothing is sent to a queue that was full before so great a part of it is free: a look costs as much as there are messages.
_PART: Final = 10


class Outbox:
    """Sends messages of many rows; used by one thread, which waits when it is ahead of the store.

    Each row has one commit under way at most, for two would only refuse each other.
    """

    def __init__(self, queue: MessageQueue, *, in_flight: int, pace: Pace, depth: int | None = None) -> None:
        """At most `in_flight` commits at once, and none that would leave more than `depth` messages to be claimed."""
        self._queue = queue
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="astyqueue:outbox")
        self._in_flight = in_flight
        self._pace = pace
        self._depth = depth
        self._full = MOST if depth is None else min(MOST, depth)
        self._room = 0
        self._gathered: dict[str, list[Addressed]] = {}
        self._rows: dict[str, Repeating] = {}
        self._busy: dict[str, tuple[int, Future[int]]] = {}
        self.put = 0

    def send(self, messages: Iterable[Addressed]) -> int:
        """Send all of these, and say how many they were; they are in the store when this returns. `put` of them are new there."""
        count = 0
        try:
            for count, message in enumerate(messages, 1):  # noqa: B007 - the last number is how many there were
                self._gather(message)
            for row in list(self._gathered):
                self._dispatch(row)
            while self._busy:
                self._await_one()
        finally:
            self._pool.shutdown(cancel_futures=True)
        return count

    def _gather(self, message: Addressed) -> None:
        gathered = self._gathered.setdefault(message.row, [])
        gathered.append(message)
        if len(gathered) >= self._full:
            self._dispatch(message.row)

    def _dispatch(self, row: str) -> None:
        messages = self._gathered.pop(row)
        while row in self._busy or len(self._busy) >= self._in_flight:
            self._await_one()
        self._hold_back(len(messages))
        self._busy[row] = len(messages), self._pool.submit(self._commit, row, messages)

    def _await_one(self) -> None:
        """Wait for a commit to end."""
        wait([future for _, future in self._busy.values()], return_when=FIRST_COMPLETED)
        self._collect()

    def _collect(self) -> None:
        """Let go of the commits that ended; an error of one is raised here."""
        for row in [row for row, (_, future) in self._busy.items() if future.done()]:
            _, future = self._busy.pop(row)
            self.put += future.result()

    def _commit(self, row: str, messages: list[Addressed]) -> int:
        """Send messages of one row; how many were not there before."""
        queue, core = self._queue, self._queue.core
        queue.run(leave_hints(core.process, [(one.composed.key, one.id) for one in messages if one.composed.key is not None]))
        repeating = self._rows.setdefault(row, Repeating(core.process, row))
        put = {one.id for one in queue.run(repeating.send([one.message for one in messages]))}
        if put:
            queue.run(core.rounds.survey.doorbell.ring([row]))
        self._tell(messages)
        return len(put)

    def _tell(self, sent: list[Addressed]) -> None:
        """Have the history tell of these messages, if it is to.

        Those that were there before are told of as well: whoever put them may have died before this. An event that is there takes
        its own place again.
        """
        history = self._queue.core.claimer.history
        if history.wants(Kind.SENT):
            self._queue.run(history.write([history.events.of_sending(one.id, one.composed) for one in sent]))

    def _hold_back(self, count: int) -> None:
        """Wait while this is too fast, or the queue too full."""
        self._pace.keep(count)
        if self._depth is None:
            return
        if count > self._room:
            while (room := self._seen_room(self._depth)) < max(count, self._depth // _PART):
                self._pace.rest(_LOOK)
            self._room = room
        self._room -= count

    def _seen_room(self, depth: int) -> int:
        """How many messages the queue takes now; those under way count as if they were there besides, for they may not be seen yet."""
        self._collect()
        under_way = sum(count for count, _ in self._busy.values())
        return depth - under_way - self._queue.counts().waiting
