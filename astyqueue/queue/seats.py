"""Who wants deliveries, and who gets which: first come, first served."""

from __future__ import annotations

import threading

from astyqueue.protocol.picking import Held
from astyqueue.queue.holding import Handed, Hold, Seat

#: How many messages a seat was promised, taken down as it gets them.
Shares = dict[Seat, int]


class Seats:
    """The takers of a queue in this process, in the order in which they came."""

    def __init__(self) -> None:
        """Nobody sits."""
        self._lock = threading.Lock()
        self._seats: list[Seat] = []

    def sit(self, seat: Seat) -> None:
        """Come last."""
        with self._lock:
            self._seats.append(seat)

    def leave(self, seat: Seat) -> None:
        """Want nothing more."""
        with self._lock:
            self._seats.remove(seat)

    def shares(self) -> Shares:
        """What each asks for now; what is claimed for it then is its own, unless it has left."""
        return {seat: credit for seat in self._seated() if (credit := seat.credit()) > 0}

    def deal(self, row: str, held: list[Held], hold: Hold | None, *, shares: Shares) -> list[tuple[Seat, list[Handed]]]:
        """Who gets which of these messages; those left over belong to nobody."""
        dealt: list[tuple[Seat, list[Handed]]] = []
        first = 0
        for seat in self._seated():
            share = held[first : first + shares.get(seat, 0)]
            if share:
                dealt.append((seat, [seat.kind(row, one, hold) for one in share]))
                shares[seat] -= len(share)
                first += len(share)
        return dealt

    def _seated(self) -> tuple[Seat, ...]:
        with self._lock:
            return tuple(self._seats)
