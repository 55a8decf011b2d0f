"""Keeping this process's idea of the time in step with the store's."""

from __future__ import annotations

import contextlib
import random
from typing import Final

from astyqueue import ids
from astyqueue.clock import SECOND, Clock, Comparison, CorrectedClock
from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Steps
from astyqueue.protocol.storetime import ahead

#: How often a process compares its clock with the store's: what claims and fires does about once a minute, what only sends once an
#: hour. Clocks that drift do so by less than a millisecond in a minute. The moments differ from process to process, for all of them
#: ask for the same cell.
_EVERY: Final = 60 * SECOND
_EVERY_FOR_SENDERS: Final = 3_600 * SECOND
#: When the store gave no answer it is asked again after so long.
_AGAIN: Final = 20 * SECOND
#: A clock that was set by more than this is compared at once.
_SET: Final = SECOND


class Timekeeping:
    """Corrects this machine's clock by the store's; a clock that somebody handed in is taken as it is.

    All queues of a connection have one clock, so it is compared once for all of them.
    """

    def __init__(self, clock: Clock) -> None:
        """Compare at the first opportunity."""
        self._clock = clock if isinstance(clock, CorrectedClock) else None
        self._spread = random.uniform(0.75, 1.25)
        self._not_before = 0

    def follow(self, *, only_sends: bool = False) -> Steps[None]:
        """Ask the store what time it is if that is due; an answer that does not come leaves things as they are."""
        clock = self._clock
        if clock is None:
            return
        now = clock.comparison()
        if clock.compared is not None and self._holds(clock.compared, now, _EVERY_FOR_SENDERS if only_sends else _EVERY):
            return
        if now.at < self._not_before:
            return
        before, clock.compared = clock.compared, now
        here, told = clock.ahead, None
        try:
            with contextlib.suppress(StoreUnavailable):  # whoever came here to do something will hear of that by itself
                told = yield from ahead(lambda: clock.now() - here, here, nonce=ids.nonce())
        finally:
            if told is None:
                clock.compared, self._not_before = before, now.at + _AGAIN
            else:
                clock.ahead = told

    def _holds(self, last: Comparison, now: Comparison, every: int) -> bool:
        return now.at < last.at + every * self._spread and abs(now.shift - last.shift) <= _SET
