"""Who wants deliveries, and who gets which: first come, first served."""

from __future__ import annotations

import threading
from typing import Final

from astyqueue.clock import Clock
from astyqueue.protocol.picking import Held
from astyqueue.queue.holding import Handed, Hold, Seat

_EVER: Final = 1 << 62
#: How many messages a seat was promised, taken down as it gets them.
Shares = dict[Seat, int]


class Seats:
    """The takers of a queue in this process, in the order in which they came."""

    def __init__(self, clock: Clock) -> None:
        """Nobody sits."""
        self.full_for = _EVER
        self._clock = clock
        self._full_since: int | None = None
        self._lock = threading.Lock()
        self._seats: list[Seat] = []

    def sit(self, seat: Seat) -> None:
        """Come last."""
        with self._lock:
            self._seats.append(seat)

    def leave(self, seat: Seat) -> None:
        """Want nothing more."""
        at = self._clock.monotonic()
        with self._lock:
            self._seats.remove(seat)
            if not self._seats:
                self._note(at, full=True)

    def shares(self) -> Shares:
        """What each asks for now; what is claimed for it then is its own, unless it has left. Only the leader asks for credit."""
        shares = {seat: credit for seat in self._seated() if (credit := seat.credit()) > 0}
        at = self._clock.monotonic()
        with self._lock:
            self._note(at, full=shares.keys().isdisjoint(self._seats))
        return shares

    def _note(self, at: int, *, full: bool) -> None:
        """Remember how long nobody could take anything, the last time that was so; `full_for` is that, in microseconds."""
        if not full and self._full_since is not None:
            self.full_for, self._full_since = at - self._full_since, None
        elif full and self._full_since is None:
            self._full_since = at

    def fail(self, error: Exception, shares: Shares) -> bool:
        """End one wait with an error, that of the first seat of those with a share if there are any; whether anybody waits."""
        with self._lock:
            waiting = [seat for seat in self._seats if seat in shares] or self._seats
            seat = next((seat for seat in waiting if seat.error is None), None)
            if seat is None:
                return bool(waiting)
            seat.error = error
        seat.told()
        return True

    def deal(self, row: str, held: list[Held], hold: Hold | None, *, shares: Shares) -> list[tuple[Seat, list[Handed]]]:
        """Who gets which of these messages; those left over belong to nobody."""
        dealt: list[tuple[Seat, list[Handed]]] = []
        first = 0
        for seat in self._seated():
            share = held[first : first + shares.get(seat, 0)]
            if share:
                dealt.append((seat, [seat.hands(row, one, hold) for one in share]))
                shares[seat] -= len(share)
                first += len(share)
        return dealt

    def accept(self, dealt: list[tuple[Seat, list[Handed]]]) -> list[Handed]:
        """Hand it over, and say what was left by those who have gone: who leaves is never handed anything afterwards."""
        unwanted: list[Handed] = []
        for seat, deliveries in dealt:
            if not self._handed(seat, deliveries):
                unwanted += deliveries
        return unwanted

    def _handed(self, seat: Seat, deliveries: list[Handed]) -> bool:
        with self._lock:
            if seat not in self._seats:
                return False
            seat.accept(deliveries)
        seat.told()
        return True

    def _seated(self) -> tuple[Seat, ...]:
        with self._lock:
            return tuple(self._seats)
