"""Whether a process can forward its spool, and if not, since when and why: for its log, and for other processes."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Final, NamedTuple

from pydantic_core import from_json, to_json

from astyqueue.clock import Clock
from astyqueue.files import replace_file
from astyqueue.structured_log import log_event, log_safely
from astyqueue.text import reason_of
from astyqueue.units import BEGINNING, SECOND

#: The file beside a journal that has the outage of the process that writes the journal.
_FILE: Final = "failing.json"
#: The pauses between two tries, the first and the longest.
_FIRST_PAUSE_US: Final = SECOND // 10
_LONGEST_PAUSE_US: Final = 5 * SECOND
_log: Final = logging.getLogger("astyqueue.spool")


class StoredOutage(NamedTuple):
    """Since when a process could not forward (microseconds since 1970), and the last error."""

    since_us: int
    error: str


def load_outage(folder: Path) -> StoredOutage | None:
    """The outage of the process that has the journal in this folder, or had it last; None if it could forward."""
    try:
        found = from_json((folder / _FILE).read_bytes())
        return StoredOutage(int(found["since_us"]), str(found["error"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def forget_outage(folder: Path) -> None:
    """Remove what is stored of an outage that ended."""
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink(missing_ok=True)


class Outage:
    """Whether forwarding fails, since when and why; logs the beginning and the end."""

    def __init__(self, queue: str, clock: Clock) -> None:
        """Nothing has failed yet."""
        self.last_error = ""
        self.since_us: int | None = None
        self._began_at = BEGINNING
        self._queue: Final = queue
        self._clock: Final = clock
        self._pause_us = _FIRST_PAUSE_US
        self._may_be_stored = True  # by the process that had the journal before

    def failed(self, error: Exception, folder: Path) -> int:
        """Note an error, also in the `folder` of the own journal; returns for how long to pause, in microseconds."""
        reason = reason_of(error)
        is_new = self.since_us is None or reason != self.last_error
        self.last_error = reason
        if self.since_us is None:
            self.since_us, self._began_at = self._clock.now(), self._clock.monotonic()
            self._log_beginning()
        if is_new:
            self._store(StoredOutage(self.since_us, reason), folder)
        pause, self._pause_us = self._pause_us, min(2 * self._pause_us, _LONGEST_PAUSE_US)
        return pause

    @log_safely
    def _log_beginning(self) -> None:
        log_event(
            _log,
            logging.WARNING,
            "spool_cannot_forward",
            queue=self._queue,
            error=self.last_error,
            effect="messages wait in the spool",
        )

    def passed_one(self) -> None:
        """Note that what failed was set aside: the next error is another one, which is tried again soon."""
        self._pause_us = _FIRST_PAUSE_US

    def _store(self, outage: StoredOutage, folder: Path) -> None:
        self._may_be_stored = True
        # The text of a driver, or the name of a file in one, may have half a surrogate pair.
        storable = outage._replace(error=outage.error.encode(errors="backslashreplace").decode())
        with contextlib.suppress(OSError):  # the disk may be what fails: the log has it too
            # A slow disk must not hold up the thread that forwards.
            replace_file(folder / _FILE, to_json(storable._asdict()), durable=False)

    def ended(self, folder: Path) -> None:
        """Note that nothing that could be tried has failed; `folder` is that of the own journal."""
        if self.since_us is not None:
            self._log_end()
        if self._may_be_stored:
            forget_outage(folder)
            self._may_be_stored = False
        self.last_error = ""
        self.since_us = None
        self._pause_us = _FIRST_PAUSE_US

    @log_safely
    def _log_end(self) -> None:
        away = (self._clock.monotonic() - self._began_at) // SECOND
        log_event(_log, logging.WARNING, "spool_forwards_again", queue=self._queue, after_seconds=away)
