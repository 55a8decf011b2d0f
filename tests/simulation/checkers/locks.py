"""What has to hold of row locks. That they decide nothing but who goes first is seen by all other judgements, which hold under them too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.engine.history import Evidence, Oracle

#: Once all is well, who is kept out longer than the timeout by so much was kept out too long: a manager's answer is waited for
#: half a second, and who finds a row busy reads its header every half second.
_SLACK: Final = 2 * SECOND


def no_lock_stops_a_row_for_ever(evidence: Evidence) -> Iterator[str]:
    """A row that somebody finds locked is claimed from after the timeout, whatever became of who has its lock."""
    locks = evidence.locks
    for stop in locks.stops if locks else ():
        stopped = (stop.asked if stop.until is None else stop.until) - stop.since
        if locks and stop.who in locks.in_peace and stopped > locks.timeout + _SLACK:
            yield f"{stop.who} was kept out of row {stop.row} for {stopped / SECOND:.3f} s by a lock of {locks.timeout / SECOND} s"


def locks_are_honoured(evidence: Evidence) -> Iterator[str]:
    """Nobody goes round a lock that has not kept him out for its timeout."""
    locks = evidence.locks
    for stop in locks.stops if locks else ():
        if locks and stop.went_round and stop.until is not None and stop.until - stop.known < locks.timeout:
            waited = (stop.until - stop.known) / SECOND
            yield f"{stop.who} went round the lock of row {stop.row} after {waited:.3f} s instead of {locks.timeout / SECOND} s"


def locks_are_let_go_of(evidence: Evidence) -> Iterator[str]:
    """At the end no lock column stands in a row. Whom no fault befell deletes his own, and tells a manager once for each yes."""
    locks = evidence.locks
    if locks is None:
        return
    yield from locks.kept
    for left in locks.left:
        if left.stands:
            yield f"a lock column of {left.holder} in row {left.row} stands at the end"
        elif left.holder in locks.in_peace:
            yield f"{left.holder} left a lock column in row {left.row} to its time"


LOCK_ORACLES: Final[tuple[Oracle, ...]] = (no_lock_stops_a_row_for_ever, locks_are_honoured, locks_are_let_go_of)
