"""What a worker says of itself: one line an event on the logger `astyqueue.worker`, the same facts as fields of the record."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import traceback
from collections.abc import Callable
from typing import Final, ParamSpec

from astyqueue.clock import SECOND

P = ParamSpec("P")
LOG: Final = logging.getLogger("astyqueue.worker")
#: How often the same is said again.
REMIND: Final = 60 * SECOND
#: As many names are said within that.
_NAMES: Final = 100
#: Characters of a name.
_NAME: Final = 200


def harmless(method: Callable[P, None]) -> Callable[P, None]:
    """Let a log line that cannot be made or written stop nothing: it is reported on stderr, as `logging` reports its own errors."""

    @functools.wraps(method)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception:  # noqa: BLE001 - a program's own filters and formatters may raise anything
            if logging.raiseExceptions:
                with contextlib.suppress(Exception):
                    traceback.print_exc()

    return told


@harmless
def tell(level: int, event: str, /, **facts: object) -> None:
    """Log `event name=value ...`; a formatter finds the parts as `record.event` and `record.facts`."""
    if LOG.isEnabledFor(level):
        line = " ".join((event, *(f"{name}={_shown(value)}" for name, value in facts.items())))
        LOG.log(level, "%s", line, extra={"event": event, "facts": facts})


@harmless
def tell_trace(error: BaseException, **facts: object) -> None:
    """Log where an error came from, for whoever asked for that much."""
    if LOG.isEnabledFor(logging.DEBUG):
        told = " ".join(f"{name}={_shown(value)}" for name, value in facts.items())
        LOG.debug("trace %s", told, exc_info=error, extra={"event": "trace", "facts": facts})


@harmless
def tell_mistake(error: BaseException, **facts: object) -> None:
    """Log the traceback of an error that is no failure of the store: somebody has to mend a program, or remove what is in a row."""
    told = " ".join(f"{name}={_shown(value)}" for name, value in facts.items())
    LOG.error("mistake %s", told, exc_info=error, extra={"event": "mistake", "facts": facts})


class Lately:
    """What was said within the last minute, so that it is not said again, nor more than so much: senders choose the names of tasks."""

    def __init__(self) -> None:
        """Nothing was said."""
        self._said: dict[str | None, int] = {}
        self._lock = threading.Lock()

    def may_say(self, name: str | None, now: int) -> bool:
        """Whether to say something of this name at this moment (microseconds)."""
        with self._lock:
            self._said = {other: at for other, at in self._said.items() if 0 <= now - at < REMIND}
            if name in self._said or self.full:
                return False
            self._said[name] = now
            return True

    @property
    def full(self) -> bool:
        """Whether no further name is said for now."""
        return len(self._said) >= _NAMES


def short(name: str | None) -> str | None:
    """A name that a message gives, as much of it as a person reads."""
    return name if name is None or len(name) <= _NAME else f"{name[: _NAME - 1]}…"


def in_words(microseconds: int) -> str:
    """A duration as a person reads it: to the second, below ten seconds to the tenth."""
    seconds = microseconds / 1_000_000
    return f"{seconds:.0f}s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f}s"  # noqa: PLR2004 - as said above


def _shown(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not any(sign in text for sign in ' "=') else repr(text)
