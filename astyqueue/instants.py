"""Instants as people hand them in: aware datetimes, which become whole microseconds since 1970 UTC.

Every instant from outside enters here, so that an id can stand for it and a datetime can show it. The sums that are made of it
afterwards (a delay or a lease added to it, a hundred years at most) stay within both as well.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from astyqueue.clock import microseconds
from astyqueue.errors import BadInput

_FIRST: Final = datetime(1600, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(5000, 1, 1, tzinfo=UTC)
#: The first and the last instant that is taken, in microseconds since 1970.
EARLIEST: Final = microseconds(_FIRST)
LATEST: Final = microseconds(_LAST)


def instant_of(moment: object) -> int:
    """Microseconds since 1970 of an aware datetime from the year 1600 up to 5000; anything else raises BadInput."""
    if not isinstance(moment, datetime):
        problem = f"{moment!r:.120} is not a datetime: give an aware one, for example datetime.now(UTC)"
        raise BadInput(problem)
    if moment.tzinfo is None or moment.utcoffset() is None:
        problem = f"{moment!r} has no time zone: give an aware datetime, for example datetime.now(UTC)"
        raise BadInput(problem)
    found = microseconds(moment)
    if not EARLIEST <= found <= LATEST:
        problem = f"{moment.isoformat()} is out of range: an instant lies between {_FIRST.isoformat()} and {_LAST.isoformat()}"
        raise BadInput(problem)
    return found


def upper_bound_of(moment: object) -> int:
    """As `instant_of`, of a moment until which something lasts: a later one than any, which stands for "for ever", counts as the last."""
    endless = isinstance(moment, datetime) and moment.tzinfo is not None and microseconds(moment) > LATEST
    return LATEST if endless else instant_of(moment)
