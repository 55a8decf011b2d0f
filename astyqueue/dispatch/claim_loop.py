"""The steps that claim, settle and renew for one queue of a dispatcher, and go on after errors of the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from astyqueue.dispatch.worker_log import log_event, log_unexpected_error
from astyqueue.errors import AstyqueueError, Closed, NotFound, StoreError, StoreGone
from astyqueue.protocol.steps import Steps
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.delivery.base_delivery import Waiter
from astyqueue.queue.queue import MessageQueue
from astyqueue.text import length_text, reason_of
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Rest, Wakeup

#: The pause after an error, doubled with each further one up to the second figure.
_PAUSE: Final = SECOND // 10
_LONGEST: Final = 5 * SECOND
#: ... and at most this part of a lease, so that current leases can still be renewed.
_PART_OF_LEASE: Final = 10
#: After this long without an error the pause is short again.
_RECOVERED: Final = 10 * SECOND
#: Pauses before the tries to record the last outcomes.
_TRIES: Final = (0, SECOND // 10, SECOND)
#: Seconds that a drain waits for a hook that is running in another thread.
_HOOK_TIMEOUT: Final = 5.0


class ClaimLoop:
    """Leads the claimer of one queue until it is ended.

    Errors of the store, of the content of a row or message, or of the program's own code are logged, and the claims go
    on after a pause: one bad message must not end the work on all others. Only a store that was removed or replaced, or
    a queue that was dropped, ends the dispatcher, which could never do useful work again.
    """

    def __init__(self, queue: MessageQueue, waiter: Waiter, on_end: Callable[[Exception | None], None]) -> None:
        """`on_end` is called with None if the queue was closed, or with an error if the queue or the store is gone."""
        self._queue = queue
        self._core = queue.core
        self._waiter = waiter
        self._on_end = on_end
        self._wakeup = Wakeup(queue.clock)
        self._over = False
        self._finished = threading.Event()
        self._failures = 0
        #: Whether it takes part in the claims: between errors and the pauses after them.
        self.takes_part = False

    def __repr__(self) -> str:
        """The queue, and whether it claims or how many errors came in a row."""
        state = "ended" if self._ended() else f"{self._failures} errors" if self._failures else "claims"
        return f"<ClaimLoop of {self._queue.name}: {state}>"

    def steps(self) -> Steps[None]:
        """Serve until the end, or until the queue is closed."""
        try:
            yield from self._serve()
        finally:
            self.takes_part = False
            self._finished.set()

    def _serve(self) -> Steps[None]:
        while not self._ended():
            began = self._queue.clock.monotonic()
            try:
                self.takes_part = True
                yield from self._core.claimer.serve(self._waiter, self._ended)
            except Closed:
                break
            except StoreGone as error:
                self.takes_part = False
                self._give_up(error)
                return
            except GeneratorExit:
                raise
            except BaseException as error:  # noqa: BLE001 - as said above
                self.takes_part = False
                yield from self._recover(error, began)
        self.takes_part = False
        if not self._over and self._core.settings_sync.gone:
            message = (
                f"queue {self._queue.name!r} is no longer in the store: "
                "it was dropped (and perhaps recreated), or the store was emptied. Restart this process"
            )
            self._give_up(NotFound(message))
        elif not self._over:
            log_event(
                logging.ERROR,
                "closed",
                queue=self._queue.name,
                hint="stop the dispatcher before you close its queue",
            )
            self._on_end(None)

    def _give_up(self, error: AstyqueueError) -> None:
        log_event(
            logging.CRITICAL, "gone", queue=self._queue.name, error=reason_of(error), effect="the dispatcher is stopped"
        )
        self._on_end(error)

    def _ended(self) -> bool:
        return self._over or self._core.closed or self._core.settings_sync.gone

    def end(self) -> None:
        """End the claims soon, from any thread."""
        self._over = True
        self._wakeup.set()
        self._core.claimer.wake()

    @property
    def ending(self) -> bool:
        """Whether it is to end, and has not yet."""
        return self._over and not self._finished.is_set()

    def finished(self, timeout: float = 0) -> bool:
        """Wait up to `timeout` seconds until the claims have ended: what the last one brought is handed over then."""
        return self._finished.wait(timeout)

    def _recover(self, error: BaseException, began: MonotonicUs) -> Steps[None]:
        """Log an error and pause; each one in a row doubles the pause. Unexpected ones are logged with a traceback."""
        if self._queue.clock.monotonic() - began > _RECOVERED:
            self._failures = 0
        longest = min(_LONGEST, self._queue.settings.behaviour.lease_us // _PART_OF_LEASE)
        pause = min(longest, _PAUSE << min(self._failures, 10))
        self._failures += 1
        log_event(
            logging.ERROR, "claim_failed", queue=self._queue.name, error=reason_of(error), again_in=length_text(pause)
        )
        if not isinstance(error, AstyqueueError):
            log_unexpected_error(error, queue=self._queue.name)
        until = self._queue.clock.monotonic() + pause
        while self._queue.clock.monotonic() < until and not self._over:
            yield Rest(self._wakeup, until)


def flush(queue: MessageQueue, claimer: Claimer) -> None:
    """Record all outcomes that were handed in, and run the hooks for them.

    Store errors are retried twice; then the log says `outcomes_not_recorded`.
    """
    problem: AstyqueueError = StoreError()
    wakeup = Wakeup(queue.clock)  # nothing sets it: it wakes when the clock of the queue has come so far
    for pause in _TRIES:
        until = queue.clock.monotonic() + pause
        while queue.clock.monotonic() < until:
            wakeup.wait(until)
        try:
            queue.run(claimer.flush())
        except Closed as error:
            problem = error
            break
        except StoreError as error:
            problem = error
        else:
            claimer.notifier.finish(_HOOK_TIMEOUT)
            return
    effect = "messages whose outcome is not recorded are handed out again when their leases run out"
    log_event(logging.ERROR, "outcomes_not_recorded", queue=queue.name, error=reason_of(problem), effect=effect)
