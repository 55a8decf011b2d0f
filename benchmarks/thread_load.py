"""A queue under load, and the notes that are kept of it."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from types import TracebackType
from typing import Final, Self

from astyqueue import Delivery, MessageQueue
from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.protocol.steps import Request
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.target import CLOCK

#: What was sent must be handled within this time once the senders have stopped: longer than a lease.
_PATIENCE: Final = 90 * SECOND
_GLANCE: Final = SECOND // 20


class Noted(Faulty):
    """A store that is watched: when each request that failed did so, and how."""

    def __init__(self, store: Store) -> None:
        """Nothing has failed."""
        super().__init__(store)
        self._failed: list[tuple[int, bool]] = []

    def perform(self, request: Request) -> object:
        """Noted if it fails."""
        try:
            return super().perform(request)
        except StoreError as error:
            self._failed.append((int(CLOCK.monotonic()), isinstance(error, OutcomeUnknown)))
            raise

    def counted(self, began: int, ended: int) -> dict[str, float | None]:
        """How many requests were of unknown outcome, how many were not done, how long after `began` the last failed."""
        kinds = Counter(unknown for _, unknown in self._failed)
        last = max((moment for moment, _ in self._failed if began <= moment < ended), default=began)
        return {
            "unknown_outcomes": kinds[True],
            "requests_not_done": kinds[False],
            "last_error_after_s": (last - began) / SECOND,
        }


class Load:
    """Threads that send numbers one by one, and a dispatcher that handles them.

    The threads send for as long as the block; the dispatcher goes on until all is handled.
    """

    def __init__(self, queue: MessageQueue, *, senders: int, threads: int) -> None:
        """Nothing runs yet."""
        self.sent_at: list[int] = []
        self.handled_at: list[int] = []
        self.failed: list[StoreError] = []
        self.stopped_sending = 0
        self._queue = queue
        self._numbers = itertools.count()
        self._sent: set[int] = set()
        self._handled: list[int] = []
        self._stopping = threading.Event()
        self._senders = [threading.Thread(target=self._send, name=f"sender-{number}") for number in range(senders)]
        self._dispatcher = Dispatcher.builder().queue(queue).handler(self._handle, threads=threads).build()

    def __enter__(self) -> Self:
        """Start all processes."""
        self._dispatcher.start()
        for sender in self._senders:
            sender.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sending, wait until everything was handled, and stop."""
        self.stopped_sending = int(CLOCK.monotonic())
        self._stopping.set()
        for sender in self._senders:
            sender.join()
        until = CLOCK.monotonic() + _PATIENCE
        while self.lost() and CLOCK.monotonic() < until:
            Wakeup(CLOCK).wait(CLOCK.monotonic() + _GLANCE)
        self._dispatcher.drain()

    def lost(self) -> int:
        """How many messages whose send returned have not been handled."""
        return len(self._sent.difference(self._handled))

    def twice(self) -> int:
        """How many messages were handled more than once."""
        return sum(times > 1 for times in Counter(self._handled).values())

    def _send(self) -> None:
        while not self._stopping.is_set():
            number = next(self._numbers)
            try:
                self._queue.send(number)
            except StoreError as error:
                self.failed.append(error)
            else:
                self._sent.add(number)
                self.sent_at.append(int(CLOCK.monotonic()))

    def _handle(self, delivery: Delivery) -> None:
        self.handled_at.append(int(CLOCK.monotonic()))
        self._handled.append(int(str(delivery.body)))
