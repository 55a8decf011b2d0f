"""Checkers of row locks.

A lock decides only which process claims first. All other checkers show that, since they hold under row locks too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from astyqueue.units import SECOND
from tests.simulation.engine.history import Checker, RunRecord

#: After the faults have ended, a lock may keep a process out for this much longer than the timeout: the process waits
#: half a second for a manager's answer, and reads the header of a busy row every half second.
_SLACK: Final = 2 * SECOND


def no_lock_stops_a_row_for_ever(record: RunRecord) -> Iterator[str]:
    """A process that finds a row locked claims from it after the timeout, whatever became of the lock's holder."""
    locks = record.locks
    for stop in locks.waits if locks else ():
        stopped = (stop.last_refused if stop.until is None else stop.until) - stop.since
        if locks and stop.client_name in locks.fault_free and stopped > locks.timeout + _SLACK:
            lasted = f"for {stopped / SECOND:.3f} s by a lock of {locks.timeout / SECOND} s"
            yield f"{stop.client_name} was kept out of row {stop.row} {lasted}"


def locks_are_honoured(record: RunRecord) -> Iterator[str]:
    """No process bypasses a lock that has not kept it out for the timeout."""
    locks = record.locks
    for stop in locks.waits if locks else ():
        if locks and stop.bypassed and stop.until is not None and stop.until - stop.known < locks.timeout:
            waited = f"after {(stop.until - stop.known) / SECOND:.3f} s instead of {locks.timeout / SECOND} s"
            yield f"{stop.client_name} bypassed the lock of row {stop.row} {waited}"


def locks_are_let_go_of(record: RunRecord) -> Iterator[str]:
    """At the end no row has a lock column.

    A process that no fault hit deletes its own lock columns, and releases a manager's lock once for each grant.
    """
    locks = record.locks
    if locks is None:
        return
    yield from locks.unreleased
    for left in locks.left:
        if left.visible:
            yield f"a lock column of {left.holder} in row {left.row} is still visible at the end"
        elif left.holder in locks.fault_free:
            yield f"{left.holder} left a lock column in row {left.row} to its time"


LOCK_CHECKERS: Final[tuple[Checker, ...]] = (no_lock_stops_a_row_for_ever, locks_are_honoured, locks_are_let_go_of)
