"""The doorbell of a queue as one process rings and hears it."""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.clock import SECOND, Clock
from astyqueue.protocol import bell
from astyqueue.protocol.bell import Wish
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps, read
from astyqueue.store import Column, Slice

#: A ring speaks for what is sent in the next five milliseconds as well.
_SPEAKS_FOR: Final = SECOND // 200
#: What was sent just after a ring is looked for so much later.
_ECHO: Final = 3 * SECOND // 100
#: Between two times of listening at least: while there is traffic, for a while after it, and when it is long ago; and how
#: many times as long as listening takes, so that a store that is far away is not asked all the time.
_PACES: Final = ((SECOND, SECOND // 1_000, 5), (60 * SECOND, 3 * SECOND // 1_000, 5), (1 << 62, SECOND // 40, 100))
#: Whoever is busy listens only for wishes.
_BUSY: Final = SECOND // 20


class Heard(NamedTuple):
    """The places of the current rows to glance at, and a wish that is new."""

    places: set[int]
    wish: Wish | None


class Doorbell:
    """Rung by whoever sends, in any thread; heard by the leader of each process's claimer."""

    def __init__(self, ring: Ring, clock: Clock) -> None:
        """Nobody has rung."""
        self._ring = ring
        self._clock = clock
        self._lock = threading.Lock()
        self._untold: set[int] = set()
        self._rung = 0
        self._heard: bell.Heard | None = None
        self._next = 0
        self._cost = 0
        self._echo: int | None = None

    def ring(self, rows: list[str]) -> Steps[None]:
        """Tell other processes that these rows were sent to."""
        if not self._ring.shared:
            return
        now = self._clock.now()
        told = self._to_be_told({place for row in rows if (place := self._ring.place(row, now)) is not None})
        if told:
            yield from bell.ring(self._ring.queue, told, ids.nonce())

    def _to_be_told(self, places: set[int]) -> set[int]:
        """The places to name now, if it is time for a ring."""
        with self._lock:
            self._untold |= places
            if self._clock.monotonic() < self._rung + _SPEAKS_FOR:
                return set()
            self._rung = self._clock.monotonic()
            told, self._untold = self._untold, set()
            return told

    def want(self, wish: Wish) -> Steps[None]:
        """Ask the owner of a row to leave it alone for a moment."""
        yield from bell.want(self._ring.queue, wish, ids.nonce())

    @property
    def next_time(self) -> int:
        """The monotonic moment to listen again."""
        return self._next if self._echo is None else min(self._next, self._echo)

    def pace(self, quiet: int, *, busy: bool) -> None:
        """Set the next time, by how long ago there was traffic."""
        pause, times = next((pause, times) for least, pause, times in _PACES if quiet < least)
        self._next = self._clock.monotonic() + max(_BUSY if busy else pause, times * self._cost)

    def listen(self, *also: Slice) -> Steps[tuple[Heard, list[list[Column]]]]:
        """What is new at the bell, and the columns of other slices, read together with it."""
        began = self._clock.monotonic()
        cells, *found = yield from read(bell.cells(self._ring.queue), *also)
        self._cost = self._clock.monotonic() - began
        heard = bell.heard(cells)
        before = self._heard or heard  # whatever is there at first may be old, and is no news
        self._heard = heard
        wish = bell.wish_in(heard.wanted) if heard.wanted and heard.wanted != before.wanted else None
        return Heard(self._places(heard.bell if heard.bell != before.bell else None, began), wish), found

    def _places(self, rung: bytes | None, now: int) -> set[int]:
        everywhere = set(range(self._ring.width))
        echo = self._echo is not None and now >= self._echo
        if rung is None:
            self._echo = None if echo else self._echo
            return everywhere if echo else set()
        if self._echo is None or echo:
            self._echo = now + _ECHO
        named = bell.rung_for(rung)
        return everywhere if echo or named is None else named & everywhere
