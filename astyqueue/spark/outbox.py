"""What a task sends: gathered by row, a commit full at a time, several rows at once, and not faster than the queue wants it."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.ids import Id
from astyqueue.model.event import Kind
from astyqueue.model.message import MessageId
from astyqueue.protocol.lookup import leave_hints
from astyqueue.protocol.raising import MOST
from astyqueue.protocol.recall import told_sent
from astyqueue.protocol.repeatable import Repeating
from astyqueue.queue.queue import MessageQueue
from astyqueue.spark.addressing import Addressed
from astyqueue.spark.opening import Pace

#: Between two looks at how much waits in a queue that is full.
_LOOK: Final = SECOND // 4
#: Nothing is sent to a queue that was full before so great a part of it is free: a look costs as much as there are messages.
_PART: Final = 10
#: By how much clocks of tasks may differ.
_APART: Final = 60 * SECOND


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
        self._tell(messages, put)
        return len(put)

    def _tell(self, sent: list[Addressed], put: set[Id]) -> None:
        """Have the history tell that these messages were sent, if it is to; the moment of sending is the batch's, in `sent`.

        An event lies in history at the moment at which it is written: a batch may take hours, and whoever reads on from a later moment
        than that at which it was begun would never see it. So it has no place of its own that it could take again, and those
        messages are looked up that were there before: the task that put them may have died before it told of them.
        """
        history = self._queue.core.claimer.history
        if not history.wants(Kind.SENT):
            return
        before = [one for one in sent if one.message.id not in put]
        told = self._told_of(before) if before else set()
        now = self._queue.core.process.now()
        events = [replace(history.events.of_sending(one.id, one.composed), at=now) for one in sent if one.id not in told]
        self._queue.run(history.write(events))

    def _told_of(self, messages: list[Addressed]) -> set[MessageId]:
        """Those of these messages that history tells the sending of, whoever wrote it; their clock may be ahead of ours."""
        core = self._queue.core
        begun = min(one.composed.sent for one in messages)
        return self._queue.run(told_sent(core.ring, [one.id for one in messages], since=begun - _APART, until=core.process.now() + _APART))

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
