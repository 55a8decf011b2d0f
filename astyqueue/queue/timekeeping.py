"""Keeping this process's idea of the time in step with the store's."""

from __future__ import annotations

import contextlib
from typing import Final

from astyqueue import ids
from astyqueue.clock import SECOND, Clock, CorrectedClock
from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Steps
from astyqueue.protocol.storetime import ahead

#: How often the store is asked what time it is. Clocks that drift do so by less than a millisecond in that time.
_EVERY: Final = 60 * SECOND


class Timekeeping:
    """Corrects this machine's clock by the store's; a clock that somebody handed in is taken as it is."""

    def __init__(self, clock: Clock) -> None:
        """Ask at the first opportunity."""
        self._clock = clock if isinstance(clock, CorrectedClock) else None
        self._next = 0

    def follow(self) -> Steps[None]:
        """Ask the store what time it is, once a minute; an answer that does not come leaves things as they are."""
        clock = self._clock
        if clock is None or clock.monotonic() < self._next:
            return
        self._next = clock.monotonic() + _EVERY
        here = clock.ahead
        with contextlib.suppress(StoreUnavailable):  # whoever came here to do something will hear of that by itself
            told = yield from ahead(lambda: clock.now() - here, here, nonce=ids.nonce())
            clock.ahead = here if told is None else told
