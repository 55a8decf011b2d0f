"""The open queues of an app, for tasks of an event loop."""

from __future__ import annotations

import asyncio

from astyqueue.aio.queue import MessageQueue
from astyqueue.queue.queue import MessageQueue as Blocking
from astyqueue.tasks.base_app import AppRuntime


class AwaitedQueues:
    """The queues that an app has opened, each with calls that are awaited. The store is opened in a thread."""

    def __init__(self, app: AppRuntime) -> None:
        """None is open yet."""
        self._app = app
        self._awaited: dict[Blocking, MessageQueue] = {}

    async def open(self, name: str) -> MessageQueue:
        """The queue of this name, which is opened at first."""
        queue = self._app.opened(name)
        if queue is None:
            queue = await asyncio.to_thread(self._app.open, name)
        if (awaited := self._awaited.get(queue)) is None:
            awaited = self._awaited[queue] = MessageQueue(queue.core, queue.store)
        return awaited

    async def close(self) -> None:
        """Close the store of the app, and end the threads in which its requests were made."""
        await asyncio.to_thread(self._app.close)
        while self._awaited:
            _, queue = self._awaited.popitem()
            await queue.store.close()
