"""Oracles of row locks.

A lock decides only which process claims first. All other oracles show that, since they hold under row locks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.engine.history import Evidence, Oracle

#: After the faults have ended, a lock may keep a process out for this much longer than the timeout: the process waits
#: half a second for a manager's answer, and reads the header of a busy row every half second.
_SLACK: Final = 2 * SECOND


def no_lock_stops_a_row_for_ever(evidence: Evidence) -> Iterator[str]:
    """A process that finds a row locked claims from it after the timeout, whatever became of the lock's holder."""
    locks = evidence.locks
    for stop in locks.stops if locks else ():
        stopped = (stop.asked if stop.until is None else stop.until) - stop.since
        if locks and stop.who in locks.in_peace and stopped > locks.timeout + _SLACK:
            lasted = f"for {stopped / SECOND:.3f} s by a lock of {locks.timeout / SECOND} s"
            yield f"{stop.who} was kept out of row {stop.row} {lasted}"


def locks_are_honoured(evidence: Evidence) -> Iterator[str]:
    """No process goes round a lock that has not kept it out for the timeout."""
    locks = evidence.locks
    for stop in locks.stops if locks else ():
        if locks and stop.went_round and stop.until is not None and stop.until - stop.known < locks.timeout:
            waited = f"after {(stop.until - stop.known) / SECOND:.3f} s instead of {locks.timeout / SECOND} s"
            yield f"{stop.who} went round the lock of row {stop.row} {waited}"


def locks_are_let_go_of(evidence: Evidence) -> Iterator[str]:
    """At the end no row has a lock column.

    A process that no fault hit deletes its own lock columns, and releases a manager's lock once for each grant.
    """
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
