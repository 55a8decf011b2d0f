"""What a queue may be called."""

from __future__ import annotations

import re
from typing import Final

from astyqueue.errors import BadInput

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def check_queue_name(name: object) -> str:
    """The name, if a queue may have it; any other raises BadInput."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    message = f"{name!r:.120} cannot be a queue's name: take 1 to 100 letters (A to Z, a to z), digits, '.', '_' and '-'"
    raise BadInput(message)
