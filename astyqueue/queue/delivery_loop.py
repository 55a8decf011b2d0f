"""The endless loop over deliveries, for threads, and the renewal of leases during it; tasks renew by the same steps.

A thread can renew only while the interpreter lets threads run: code that holds the interpreter lock longer than 60 %
of a lease (a C extension that does not release it) stops every thread of the process, and the lease runs out. Choose
leases longer than that, or run such code in a process of its own.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Final, NamedTuple

from astyqueue.clock import Clock
from astyqueue.errors import AstyqueueError, Closed
from astyqueue.protocol.steps import Steps
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.delivery.delivery import Delivery, Received
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND
from astyqueue.waiting import Rest, Wakeup

_log: Final = logging.getLogger("astyqueue.queue")


def renew_until_stopped(claimer: Claimer, clock: Clock, stopped: Callable[[], bool], pause: Wakeup) -> Steps[None]:
    """Take part without receiving, so that leases are renewed; after an error, try again in one second.

    Setting `pause` ends that second.
    """
    while not stopped():
        try:
            yield from claimer.renew_leases(stopped)
        except Closed:
            return
        except AstyqueueError as error:
            log_event(_log, logging.ERROR, "renewal_failed", exc_info=error)
            yield Rest(pause, clock.monotonic() + SECOND)


class RenewalThread:
    """Runs `keeping` in a thread of its own while any thread is inside this context manager."""

    def __init__(
        self, keeping: Callable[[Callable[[], bool], Wakeup], None], wake: Callable[[], None], clock: Clock
    ) -> None:
        """`keeping` gets a function, true once it must stop, and a wakeup for its pauses; `wake` makes it check."""
        self._keeping = keeping
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._inside = 0
        self._stop, self._pause = threading.Event(), Wakeup(clock)
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> None:
        """Start the thread unless another caller did; one that cannot is not inside, so that the next caller tries."""
        with self._lock:
            if not self._inside:
                self._stop, self._pause = threading.Event(), Wakeup(self._clock)
                args = self._stop.is_set, self._pause
                thread = threading.Thread(target=self._keeping, args=args, name="astyqueue:renewal", daemon=True)
                thread.start()
                self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the thread when the last caller leaves; the next caller starts another."""
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._stop.set()
                self._pause.set()
        self._wake()

    def join(self) -> None:
        """Wait until every thread that was started here has ended; close the queue first, so that they end."""
        with self._lock:
            self._pause.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


class Later(NamedTuple):
    """Acks that no thread waits for: `ack` buffers one, `flush` commits all that are buffered."""

    ack: Callable[[Delivery], None]
    flush: Callable[[], None]


def delivery_loop(
    receive: Callable[[], Received], keeper: Callable[[], RenewalThread], later: Later | None
) -> Generator[Delivery, None, None]:
    """Deliveries one after the other, each acked before the next unless it was settled, until the queue is closed.

    `receive` waits for the next ones; what `keeper` returns when the loop begins renews leases meanwhile. Without
    `later`, each ack is committed before the next delivery is returned.
    """
    with keeper(), contextlib.suppress(Closed):
        try:
            while True:
                yield from _in_turn(receive(), later)
        finally:
            if later:  # this may be the last thread in the queue: no other would commit the buffered acks
                later.flush()


def _in_turn(received: Received, later: Later | None) -> Generator[Delivery, None, None]:
    with received:
        for delivery in received:
            yield delivery
            if later is None:
                received.ack_if_unsettled(delivery)
            elif not delivery.settled:
                later.ack(delivery)
