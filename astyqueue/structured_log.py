"""Log lines that tools can read: `event name=value ...`, with the same facts as fields of the record.

An event's name is in snake case, and says what happened. A formatter finds the parts as `record.event` and
`record.facts`; `astyqueue worker --log-format json` writes them as fields.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import traceback
from collections.abc import Callable
from typing import ParamSpec

from astyqueue.printable import facts_line

P = ParamSpec("P")


def log_safely(method: Callable[P, None]) -> Callable[P, None]:
    """Report an error in logging on stderr, as `logging` reports its own errors, instead of raising it."""

    @functools.wraps(method)
    def logged(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:  # noqa: BLE001 - a program's own filters and formatters may raise anything
            if logging.raiseExceptions:
                with contextlib.suppress(Exception):
                    traceback.print_exc()

    return logged


def log_event(
    logger: logging.Logger, level: int, event: str, /, *, exc_info: BaseException | None = None, **facts: object
) -> None:
    """Log an event with its facts, and with `exc_info` the traceback of an error; safe for any text in a fact."""
    if logger.isEnabledFor(level):
        line = facts_line(event, facts)
        logger.log(level, "%s", line, exc_info=exc_info, extra={"event": event, "facts": facts}, stacklevel=2)
