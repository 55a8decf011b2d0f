"""Errors of jobs on Spark: history that has expired unread, and one sentence out of an error that Spark raised.

Spark's text is pages of Python and Java traceback, of which one line matters. A reader of history that continues where
it stopped must not have been away for longer than history is kept.
"""

from __future__ import annotations

import re
from typing import Final

from astyqueue import errors
from astyqueue.clock import instant
from astyqueue.errors import AstyqueueError
from astyqueue.text import duration_setting_text

#: Our own errors quoted in the text; the one that was raised last comes last.
_OURS: Final = re.compile(r"astyqueue\.(?:errors|spark(?:\.\w+)+)\.(\w+): (.+)")
#: The reasons in a Java stack trace, the root cause last; the first follows the name of the call.
_CAUSE: Final = re.compile(r"^(?:Caused by)?: [\w.$]+: (.+)", re.MULTILINE)
#: What Spark puts around its sentences: the name of the error condition, and the SQLSTATE with all that follows it.
_AROUND: Final = re.compile(r"^\[[A-Z_.]+\] |,? *\(?SQLSTATE: .*| \(start marker at .*")


def reason_of(error: Exception) -> tuple[type[AstyqueueError] | None, str]:
    """The class of our own error that caused an error of Spark, or None, and the sentence that matters."""
    text = str(error)
    if ours := _OURS.findall(text):
        name, sentence = ours[-1]
        return _error_named(name), sentence
    causes = _CAUSE.findall(text)
    sentence = causes[-1] if causes else next((line for line in text.splitlines() if line), type(error).__name__)
    return None, _AROUND.sub("", sentence)


def _error_named(name: str) -> type[AstyqueueError]:
    """Our error class of this name, else AstyqueueError: data may look like one, and the module has other names."""
    kind = getattr(errors, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, AstyqueueError) else AstyqueueError


class HistoryGone(AstyqueueError):
    """Unread events of a queue's history are no longer kept; nothing was read."""

    def __init__(self, queue: str, *, read: int, oldest: int, kept: int) -> None:
        """History was read up to `read`, and begins at `oldest`; it is kept for `kept`. All are microseconds."""
        self.queue = queue
        super().__init__(
            f"the history of queue {queue!r} was read up to {instant(read):%Y-%m-%dT%H:%M:%SZ}, and is kept for "
            f"{duration_setting_text(kept)} "
            f"only: events from before {instant(oldest):%Y-%m-%dT%H:%M:%SZ} are gone. To continue without them, "
            "accept the gap (failOnDataLoss=false, --accept-gap); to keep history longer, astyqueue queues set "
            f"{queue} history_kept=..."
        )


def check_kept(queue: str, *, read: int, now: int, kept: int) -> None:
    """HistoryGone if history between `read` and `now` has expired; it is kept for `kept` (all microseconds)."""
    if read < now - kept:
        raise HistoryGone(queue, read=read, oldest=now - kept, kept=kept)
