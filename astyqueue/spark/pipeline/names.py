"""Names that a producer chooses, such as those of tasks and tenants, with a bound on their length.

This module needs no Spark, because reports use it too.
"""

from __future__ import annotations

import hashlib
from typing import Final

#: Characters of a name.
LONGEST: Final = 200
#: A longer one is its first characters, this mark, and the first digits of its SHA-256: different names stay different.
MARK: Final = "\N{HORIZONTAL ELLIPSIS}"
DIGITS: Final = 16
KEPT: Final = LONGEST - len(MARK) - DIGITS


def shortened(name: str) -> str:
    """The name, cut if it is too long, as `marked` cuts it in Spark."""
    if len(name) <= LONGEST:
        return name
    return f"{name[:KEPT]}{MARK}{hashlib.sha256(name.encode()).hexdigest()[:DIGITS]}"
