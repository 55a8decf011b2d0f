"""The open queues of an app, for tasks of an event loop."""

from __future__ import annotations

import asyncio

from astyqueue.aio.queue import MessageQueue
from astyqueue.queue.queue import MessageQueue as Blocking
from astyqueue.tasks.base_app import AppRuntime
from astyqueue.waiting import in_thread


class AwaitedQueues:
    """The queues that an app has opened, each with calls that are awaited. The store is opened in a thread."""

    def __init__(self, app: AppRuntime) -> None:
        """No queue is open yet."""
        self._app = app
        self._awaited: dict[str, tuple[Blocking, MessageQueue]] = {}

    async def open(self, name: str) -> MessageQueue:
        """The queue of this name, which is opened at first, and again after it was closed."""
        queue = self._app.opened(name)
        if queue is None:
            queue = await asyncio.to_thread(self._app.open, name)
        if name not in self._awaited or self._awaited[name][0] is not queue:
            self._awaited[name] = queue, MessageQueue(queue.core, queue.store)
        return self._awaited[name][1]

    async def close(self) -> None:
        """Close the store of the app, and end the threads in which its requests were made."""
        await in_thread(self._app.close)
        while self._awaited:
            _, (_, queue) = self._awaited.popitem()
            await queue.store.close()
