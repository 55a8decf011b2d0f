"""Sending from a task: messages gathered by row into full commits, several rows at once, within a rate and a depth."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Final

from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.protocol.history import first_sent
from astyqueue.protocol.row.header_commit import COMMIT_MESSAGES
from astyqueue.protocol.sending.idempotent import IdempotentSender
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.queue.queue import MessageQueue
from astyqueue.spark.connections import Pace
from astyqueue.spark.row_mapping import Addressed
from astyqueue.units import SECOND

#: Between two counts of the messages that wait in a full queue.
_LOOK: Final = SECOND // 4
#: To a queue that was full, sending resumes when 1/_PART of its depth is free: the cost of a count grows with the
#: messages.
_PART: Final = 10
#: Microseconds by which the clocks of tasks may differ.
_APART: Final = 60 * SECOND


class Outbox:
    """Sends messages of many rows; used by one thread, which waits when it is ahead of the store.

    Each row has at most one commit under way: of two concurrent commits on one row one would be refused.
    """

    def __init__(self, queue: MessageQueue, *, in_flight: int, pace: Pace, depth: int | None = None) -> None:
        """At most `in_flight` commits at once, and none that would leave more than `depth` claimable messages."""
        self._queue = queue
        self._pool = ThreadPoolExecutor(in_flight, thread_name_prefix="astyqueue:outbox")
        self._in_flight = in_flight
        self._pace = pace
        self._depth = depth
        self._full = COMMIT_MESSAGES if depth is None else min(COMMIT_MESSAGES, depth)
        self._room = 0
        self._gathered: dict[str, list[Addressed]] = {}
        self._rows: dict[str, IdempotentSender] = {}
        self._busy: dict[str, tuple[int, Future[int]]] = {}
        self.put = 0

    def send(self, messages: Iterable[Addressed]) -> int:
        """Send all of these and return their number; on return they are stored, and `put` of them were not before."""
        count = 0
        try:
            for count, message in enumerate(messages, 1):  # noqa: B007 - the last number is their count
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
        """Wait until a commit has ended."""
        wait([future for _, future in self._busy.values()], return_when=FIRST_COMPLETED)
        self._collect()

    def _collect(self) -> None:
        """Forget the commits that ended; the error of one is raised here."""
        for row in [row for row, (_, future) in self._busy.items() if future.done()]:
            _, future = self._busy.pop(row)
            self.put += future.result()

    def _commit(self, row: str, messages: list[Addressed]) -> int:
        """Send messages of one row; returns how many were not in the store before."""
        queue, core = self._queue, self._queue.core
        queue.run(
            write_key_hints(
                core.process, [(one.prepared.key, one.id) for one in messages if one.prepared.key is not None]
            )
        )
        repeating = self._rows.setdefault(row, IdempotentSender(core.process, row))
        put = {one.id for one in queue.run(repeating.send([one.message for one in messages]))}
        if put:
            queue.run(core.claimer.announce([(row, None)]))
        self._record_sent(messages, put)
        return len(put)

    def _record_sent(self, sent: list[Addressed], put: set[Id]) -> None:
        """Write the events of sending to the history, if it keeps them; `sent` in them is the start of the batch.

        An event lies in history at the moment at which it is written: a batch may take hours, and a reader that is past
        the start of the batch would miss events written there. So an event has no fixed place at which writing it again
        would be idempotent. Messages that were in the store before are looked up in the history: the task that put them
        may have died before it wrote their events.
        """
        history = self._queue.core.claimer.history
        if not history.wants(Kind.SENT):
            return
        before = [one for one in sent if one.message.id not in put]
        recorded = self._recorded(before) if before else set()
        now = self._queue.core.process.now()
        missing = [one for one in sent if one.id not in recorded]
        events = [replace(history.events.of_sending(one.id, one.prepared), at=now) for one in missing]
        self._queue.run(history.write(events))

    def _recorded(self, messages: list[Addressed]) -> set[MessageId]:
        """Those of these messages whose sending is in the history; the task that wrote it may have a clock ahead."""
        core = self._queue.core
        begun = min(one.prepared.sent for one in messages)
        return self._queue.run(
            first_sent(core.ring, [one.id for one in messages], since=begun - _APART, until=core.process.now() + _APART)
        )

    def _hold_back(self, count: int) -> None:
        """Wait until the rate and the depth of the queue allow this number of messages."""
        self._pace.keep(count)
        if self._depth is None:
            return
        if count > self._room:
            while (room := self._seen_room(self._depth)) < max(count, self._depth // _PART):
                self._pace.rest(_LOOK)
            self._room = room
        self._room -= count

    def _seen_room(self, depth: int) -> int:
        """How many messages the queue has room for. Those under way are subtracted: the count may not include them."""
        self._collect()
        under_way = sum(count for count, _ in self._busy.values())
        return depth - under_way - self._queue.counts().waiting
