"""History goes by itself after a while: who reads on from where they were must not have been away for longer."""

from __future__ import annotations

from astyqueue.clock import instant
from astyqueue.errors import AstyqueueError
from astyqueue.model.wording import spelled_duration


class HistoryGone(AstyqueueError):
    """A part of a queue's history that was never read is kept no longer; nothing was read."""

    def __init__(self, queue: str, *, read: int, oldest: int, kept: int) -> None:
        """Say up to when it was read, from when on there is anything, and what to do."""
        self.queue = queue
        super().__init__(
            f"the history of queue {queue!r} was read up to {instant(read):%Y-%m-%dT%H:%M:%SZ}, and is kept for {spelled_duration(kept)} "
            f"only, so that what happened before {instant(oldest):%Y-%m-%dT%H:%M:%SZ} is gone. To go on without it, say so "
            "(failOnDataLoss=false, --accept-gap); to have more time, astyqueue queues set "
            f"{queue} history_kept=..."
        )


def check_kept(queue: str, *, read: int, now: int, kept: int) -> None:
    """HistoryGone if a reader that has read up to `read` (microseconds) finds that what comes next is not there any more."""
    if read < now - kept:
        raise HistoryGone(queue, read=read, oldest=now - kept, kept=kept)
