"""History expires: a reader that continues where it stopped must not have been away for longer than history is kept."""

from __future__ import annotations

from astyqueue.clock import instant
from astyqueue.errors import AstyqueueError
from astyqueue.text import duration_setting_text


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
