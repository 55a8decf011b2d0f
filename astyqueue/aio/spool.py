"""The spool of a queue, for tasks of an event loop: its calls read the disk and wait in threads."""

from __future__ import annotations

import asyncio
from typing import Final

from astyqueue.durations import Duration
from astyqueue.spool import Spool as Blocking
from astyqueue.spool import SpoolStatus
from astyqueue.waiting import in_thread


class Spool:
    """What waits on the disk to be forwarded to the store."""

    def __init__(self, spool: Blocking) -> None:
        """`queue.spool` makes one."""
        self._spool: Final = spool

    async def status(self) -> SpoolStatus:
        """What waits now; it reads the folder."""
        return await in_thread(self._spool.status)

    async def drain(self, timeout: Duration = "1m") -> bool:  # noqa: ASYNC109 - how long to wait, as for threads
        """Wait until this process has forwarded all it may: its own messages, and those that dead processes left.

        False if that takes longer. Processes that live forward theirs themselves.
        """
        return await asyncio.to_thread(self._spool.drain, timeout)
