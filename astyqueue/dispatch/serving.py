"""A thread that claims, settles and renews for one seat, whatever the store does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.dispatch.telling import in_words, tell, tell_mistake
from astyqueue.errors import AstyqueueError, Closed, NotFound, StoreError, StoreGone
from astyqueue.queue.claimer import Claimer
from astyqueue.queue.holding import Seat
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.terms import reason_of
from astyqueue.wakeup import Wakeup

#: After an error it serves again so much later, doubled with each further one up to the second figure.
_PAUSE: Final = SECOND // 10
_LONGEST: Final = 5 * SECOND
#: ... and no later than after this part of a lease, so that those in hand can still be renewed.
_PART_OF_LEASE: Final = 10
#: What went well for so long has recovered.
_RECOVERED: Final = 10 * SECOND
#: Pauses before the tries to record the last outcomes.
_TRIES: Final = (0, SECOND // 10, SECOND)
#: Seconds that a drain waits for a hook that is just hearing of an outcome in another thread.
_TELLING: Final = 5.0


class Serving:
    """Leads the claimer of one queue until it is ended.

    Whatever is raised meanwhile, by the store, by what a row or a message holds or by a program's own code, is logged, and it
    goes on after a pause: what one message holds must not end the work on all others. Only a store that was removed or replaced,
    or a queue that was dropped, ends the dispatcher: it would work for nobody.
    """

    def __init__(self, queue: MessageQueue, seat: Seat, on_end: Callable[[Exception | None], None]) -> None:
        """`on_end` is called when there is nothing to go on with: the queue was closed (None), or it or the store is gone (why)."""
        self._queue = queue
        self._core = queue.core
        self._seat = seat
        self._on_end = on_end
        self._wakeup = Wakeup(queue.clock)
        self._over = False
        self._failures = 0

    def run(self) -> None:
        """Serve until the end, or until the queue is closed."""
        while not self._ended():
            began = self._queue.clock.monotonic()
            try:
                self._queue.run(self._core.claimer.serve(self._seat, self._ended))
            except Closed:
                break
            except StoreGone as error:
                self._give_up(error)
                return
            except BaseException as error:  # noqa: BLE001 - as said above
                self._recover(error, began)
        if not self._over and self._core.following.gone:
            message = (
                f"queue {self._queue.name!r} is not in the store any more: it was dropped, and maybe made anew, or the store was emptied. "
                "Restart this process"
            )
            self._give_up(NotFound(message))
        elif not self._over:
            tell(logging.ERROR, "closed", queue=self._queue.name, hint="its queue was closed before the dispatcher was stopped")
            self._on_end(None)

    def _give_up(self, error: AstyqueueError) -> None:
        tell(logging.CRITICAL, "gone", queue=self._queue.name, error=reason_of(error), hint="the dispatcher is stopped")
        self._on_end(error)

    def _ended(self) -> bool:
        return self._over or self._core.closed or self._core.following.gone

    def end(self) -> None:
        """Have the thread leave."""
        self._over = True
        self._wakeup.set()
        self._core.claimer.wake()

    def _recover(self, error: BaseException, began: int) -> None:
        """Log an error and rest; each one in a row makes the rest longer. One that is none of the store's is logged with its traceback."""
        if self._queue.clock.monotonic() - began > _RECOVERED:
            self._failures = 0
        longest = min(_LONGEST, self._queue.settings.behaviour.lease_us // _PART_OF_LEASE)
        pause = min(longest, _PAUSE << min(self._failures, 10))
        self._failures += 1
        tell(logging.ERROR, "unserved", queue=self._queue.name, error=reason_of(error), again_in=in_words(pause))
        if not isinstance(error, AstyqueueError):
            tell_mistake(error, queue=self._queue.name)
        rest(self._wakeup, self._queue.clock, pause, unless=lambda: self._over)


def rest(wakeup: Wakeup, clock: Clock, pause: int, *, unless: Callable[[], bool]) -> None:
    """Let so many microseconds pass, or less if a signal comes with which `unless` is true."""
    until = clock.monotonic() + pause
    while clock.monotonic() < until and not unless():
        wakeup.wait(until)


def flush(queue: MessageQueue, claimer: Claimer) -> None:
    """Record everything that was handed in, and have hooks hear of it.

    A store that fails gets a few tries; then the log says what that means.
    """
    problem: AstyqueueError = StoreError()
    for pause in _TRIES:
        rest(Wakeup(queue.clock), queue.clock, pause, unless=_never)
        try:
            queue.run(claimer.flush())
        except Closed as error:
            problem = error
            break
        except StoreError as error:
            problem = error
        else:
            claimer.finish_telling(_TELLING)
            return
    hint = "messages whose outcome is not recorded are handed out again when their leases run out"
    tell(logging.ERROR, "unrecorded", queue=queue.name, error=reason_of(problem), hint=hint)


def _never() -> bool:
    """Nothing shortens this rest."""
    return False
