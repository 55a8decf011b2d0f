"""Units of time: moments and durations are whole microseconds everywhere below the command line.

Moments of the wall clock (microseconds since 1970) and durations are `int`. A moment of the monotonic clock is an `int`
at run time and a `MonotonicUs` to type checkers, which refuse it where any other number belongs, and the other way
round. docs/decisions/0040-monotonic-moments-have-a-type.md says why only this one has a type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, cast, overload

SECOND: Final = 1_000_000
#: Later than any real moment of the wall clock.
NEVER: Final = 1 << 62

if TYPE_CHECKING:

    class MonotonicUs(Protocol):
        """A moment of the monotonic clock of one process: durations move it, and it is compared with its like.

        The difference of two is a duration. `int` gives the bare number, for a report.
        """

        #: No number has it, so no other number is taken for such a moment.
        of_the_monotonic_clock: None

        def __add__(self, duration: int) -> MonotonicUs: ...
        @overload
        def __sub__(self, other: MonotonicUs) -> int: ...
        @overload
        def __sub__(self, other: int) -> MonotonicUs: ...
        def __int__(self) -> int: ...
        def __lt__(self, other: MonotonicUs) -> bool: ...
        def __le__(self, other: MonotonicUs) -> bool: ...
        def __gt__(self, other: MonotonicUs) -> bool: ...
        def __ge__(self, other: MonotonicUs) -> bool: ...
        def __hash__(self) -> int: ...

else:
    MonotonicUs = int

#: Before and after every moment that a monotonic clock shows.
BEGINNING: Final = cast("MonotonicUs", 0)
ENDLESS: Final = cast("MonotonicUs", NEVER)
