"""Units of time: moments and durations are whole microseconds everywhere below the command line."""

from __future__ import annotations

from typing import Final

SECOND: Final = 1_000_000
#: Later than any real moment.
NEVER: Final = 1 << 62
