"""The modules of `astyqueue.aio` that are written from modules for threads, and what differs in each of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tools.async_classes.rewriting import as_coroutines, with_differences, without_methods

ROOT: Final = Path(__file__).parents[2]
#: What carries out steps in a thread, and in a task.
_RUNNERS: Final = {"run": "arun"}
#: Modules that differ too much to be written from each other; what imports the first imports the second for tasks.
_BY_HAND: Final = {
    "astyqueue.queue.delivery_loop": "astyqueue.aio.delivery_loop",
    "astyqueue.dispatch.dispatcher": "astyqueue.dispatch.asyncio_dispatcher",
}
_RUFF: Final = (sys.executable, "-m", "ruff")


@dataclass(frozen=True, slots=True)
class Twin:
    """A module for threads, and the module for tasks that is written from it.

    `left_out` are methods that tasks do not have, `differences` are passages of the first that are others in the
    second; besides these, `awaited` calls get an `await` and what contains them becomes a coroutine. `imports` are what
    the second needs on top.
    """

    threads: str
    tasks: str
    differences: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def written(self, root: Path = ROOT) -> str:
        """The text of the module for tasks, as it should be."""
        text = (root / self.origin).read_text(encoding="utf-8")
        text = without_methods(text, self.left_out)
        text = with_differences(text, self.differences, of=self.origin)
        modules = {twin.threads: twin.tasks for twin in TWINS} | _BY_HAND
        text = as_coroutines(text, awaited={*_RUNNERS, *self.awaited}, renamed=_RUNNERS | modules)
        future = "from __future__ import annotations\n"
        text = text.replace(future, "\n".join((future, *self.imports, "")), 1)
        origin = f"# Written by `make aio` from {self.origin}: change that, or tools/async_classes/twins.py.\n"
        return self._tidied(origin + text)

    @property
    def origin(self) -> str:
        """The file of the module for threads, from the root of the project."""
        return _path(self.threads)

    @property
    def path(self) -> str:
        """The file of the module for tasks, from the root of the project."""
        return _path(self.tasks)

    def _tidied(self, text: str) -> str:
        """The text with its imports sorted, those that it does not use left out, and formatted."""
        for command in (("check", "--fix", "--quiet", "--select", "I,F401"), ("format", "--quiet")):
            text = subprocess.run(  # noqa: S603 - it runs ruff
                [*_RUFF, *command, "--stdin-filename", self.path, "-"],
                input=text,
                capture_output=True,
                text=True,
                check=True,
                cwd=ROOT,
            ).stdout
        return text


def _path(module: str) -> str:
    return module.replace(".", "/") + ".py"


TWINS: Final = (
    Twin(
        threads="astyqueue.queue.queue_admin",
        tasks="astyqueue.aio.queue_admin",
        differences={
            "for threads": "for tasks of an event loop",
            "in this thread": "in this task",
            "store: Store)": "store: AsyncStore, blocking: Store)",
            "they read and write.": "they read and write; `blocking`: for threads.",
            # Other threads carry out what a task awaits: they would wait for a transaction of the loop's thread.
            "store.refuse_in_transaction if isinstance(store,": (
                "blocking.refuse_in_transaction if isinstance(blocking,"
            ),
            "import Store, TransactionalStore": "import AsyncStore, Store, TransactionalStore",
            "-> Iterator[Event]": "-> AsyncGenerator[Event, None]",
            "-> Iterator[Found]": "-> AsyncGenerator[Found, None]",
            "yield from self.run(inspection.next_browsed(self.core, browser))": (
                "for found in self.run(inspection.next_browsed(self.core, browser)):\n                    yield found"
            ),
        },
        imports=("from collections.abc import AsyncGenerator",),
    ),
    Twin(
        threads="astyqueue.queue.delivery.delivery",
        tasks="astyqueue.aio.delivery",
        differences={
            "for threads": "for tasks of an event loop",
            "Outcome]]], list[BaseDelivery]]": "Outcome]]], Awaitable[list[BaseDelivery]]]",
        },
        awaited=("self._settler", "delivery.ack"),
        imports=("from collections.abc import Awaitable",),
    ),
    Twin(
        threads="astyqueue.queue.queue",
        tasks="astyqueue.aio.queue",
        # A transaction keeps all others from writing, so it must not wait for an event loop; a task renews.
        left_out=("transaction", "_keeper", "_wake"),
        differences={
            "for threads": "for tasks of an event loop",
            "from many threads": "from many tasks",
            "`connect(url)": "`(await connect(url))",
            "call `build()`": "`await ….build()`",
            "QueueBuilder[MessageQueue]": "QueueBuilder[Awaitable[MessageQueue]]",
            "__init__(core, store)": "__init__(core, as_async(store), store)\n        self._blocking = store",
            "    @property\n    def clock(self)": (
                "    @property\n    def blocking(self) -> Blocking:\n"
                '        """The same queue for threads: its calls block."""\n'
                "        return Blocking(self._core, self._blocking)\n\n    @property\n    def clock(self)"
            ),
            "        self._keepers: dict[int, RenewalThread] = {}\n": "",
            "            if self._core.closed:\n                self._keeper().join()\n": "",
            "import Later, RenewalThread, delivery_loop, renew_until_stopped": "import Deliveries, Later, complete",
            "        except BaseException:  # an interrupt or a cancellation may come when the steps have ended": (
                "        except asyncio.CancelledError:\n            core.give_back(request)\n"
                "            if request.given_back:  # perhaps no other task takes part, and would commit it\n"
                "                await complete(lambda: self.run(core.claimer.flush(request.given_back)))\n"
                "            raise\n"
                "        except BaseException:  # an interrupt may come when the steps have ended"
            ),
            "        return self.run(self.core.claimer.settle(outcomes))": (
                "        try:\n            return self.run(self.core.claimer.settle(outcomes))\n"
                "        except asyncio.CancelledError:  # perhaps no other task takes part, and would commit them\n"
                "            await complete(lambda: self.run("
                "self.core.claimer.flush([delivery for delivery, _ in outcomes])))\n            raise"
            ),
            # Closing the deliveries cancels the task that renews, so nothing else ends its pause.
            "Callable[[], bool], pause: Wakeup": "Callable[[], bool]",
            "stopped, pause": "stopped, Wakeup(self.clock)",
            "-> Generator[Delivery, None, None]": "-> Deliveries",
            "delivery_loop(receive, self._keeper,": "Deliveries(receive, self._keep,",
            # Nothing closes an async generator when its loop is left, until the event loop does.
            "given back at once.": "given back: under\n        `contextlib.aclosing` before the loop is left, "
            "otherwise soon after, when the event loop closes it.",
            "items: Iterable[object],": "items: Iterable[object] | AsyncIterable[object],",
            "ids come back in order.\n\n        Not one transaction: after": "ids come back in order.\n\n        "
            "`items` may be an async generator; its messages are sent whenever it has yielded 1000, and when it ends. "
            "Not one\n        transaction: after",
            "        return self.run(self.core.send_many(items, defaults))": (
                "        if isinstance(items, AsyncIterable):\n            return await send_as_they_come("
                "items, lambda chunk: self.run(self.core.send_many(chunk, defaults)))\n"
                "        return self.run(self.core.send_many(items, defaults))"
            ),
            # The store is opened, and closed after an error, by a call that blocks.
            "    store = builder.open_store()": (
                "    if builder.owns_store:\n        store = await opened_in_thread(builder.open_store)\n"
                "    else:\n        store = await asyncio.to_thread(builder.open_store)"
            ),
            "observers), store, ": "observers), as_async(store), ",
            "        core.start_spool()": "        await asyncio.to_thread(core.start_spool)",
            "return self.core.spool": "return Spool(self.core.spool)",
            "from astyqueue.spool import": "from astyqueue.aio.spool import",
            "    store.close()\n        raise": "    await asyncio.to_thread(store.close)\n        raise",
        },
        awaited=("self.run", "self.store.close"),
        imports=(
            "import asyncio",
            "from collections.abc import AsyncIterable, Awaitable",
            "from astyqueue.queue.delivery_loop import renew_until_stopped",
            "from astyqueue.queue.producing.producer import send_as_they_come",
            "from astyqueue.queue.queue import MessageQueue as Blocking",
            "from astyqueue.stores.async_adapter import as_async, opened_in_thread",
        ),
    ),
    Twin(
        threads="astyqueue.schedules.schedules",
        tasks="astyqueue.aio.schedules",
        differences={
            'the schedules of a queue."""\n\nfrom': 'the schedules of a queue, for tasks of an event loop."""\n\nfrom',
            "`Schedules(queue).add": "`await Schedules(queue).add",
        },
        awaited=("self._queue.run",),
    ),
    Twin(
        threads="astyqueue.queue.connection",
        tasks="astyqueue.aio.connection",
        differences={
            "connect(url).": "(await connect(url)).",
            "Use `connect(url)`": "Use `await connect(url)`",
            "QueueBuilder[MessageQueue]": "QueueBuilder[Awaitable[MessageQueue]]",
            "self.store = store": "self._blocking = store\n        self.store = as_async(store)",
            ".store(self.store)": ".store(self._blocking)",
            "    return Connection(open_store(url, clock=used, create=create), clock,": (
                "    opened = await opened_in_thread(partial(open_store, url, clock=used, create=create))\n"
                "        return Connection(opened, clock,"
            ),
            "self._spools.close()": "await in_thread(self._spools.close)",
            "    def queue(self, name: str,": (
                "    @property\n    def blocking(self) -> Blocking:\n"
                '        """The same connection for threads: its calls block."""\n'
                "        given = self._blocking, self.clock, self.triggers, self._observers\n"
                "        return Blocking(*given, hooks=self._hooks, spools=self._spools)\n\n"
                "    def queue(self, name: str,"
            ),
        },
        awaited=(
            "self.store.close",
            "self._builder(name, settings).build",
            "self._builder(name, settings).existing().build",
            "queue.close",
        ),
        imports=(
            "from collections.abc import Awaitable",
            "from functools import partial",
            "from astyqueue.queue.connection import Connection as Blocking",
            "from astyqueue.stores.async_adapter import as_async, opened_in_thread",
            "from astyqueue.waiting import in_thread",
        ),
    ),
    Twin(
        threads="astyqueue.tasks.task",
        tasks="astyqueue.tasks.awaited.task",
        differences={
            "Tasks: a call of one": "Tasks of asyncio: a call of one",
            "Calling it runs it in this thread; `send` lets a worker run it.": (
                "Calling it runs it; `await task.send(...)` lets a worker run it.\n\n    "
                "`task.blocking.send(...)` does so in `def` tasks and other code outside of event loops."
            ),
            "[[str], MessageQueue]": "[[str], Awaitable[MessageQueue]]",
            # An app makes both from one function, and a worker runs either of them.
            "MessageQueue]]\n    ) -> None:": "MessageQueue]], blocking: Blocking[P, R_co]\n    ) -> None:",
            "super().__init__(function, options)\n": "super().__init__(function, options)\n"
            "        #: The same task for threads.\n        self.blocking = blocking\n",
        },
        awaited=(
            "self.using().send",
            "self.using().send_many",
            "self.using().then",
            "self._opened",
            "queue.send",
            "queue.send_many",
        ),
        imports=("from collections.abc import Awaitable", "from astyqueue.tasks.task import Task as Blocking"),
    ),
    Twin(
        threads="astyqueue.tasks.app",
        tasks="astyqueue.tasks.awaited.app",
        differences={
            "An app: tasks, the queues": "An app for tasks of an event loop: tasks, the queues",
            "from many threads.": "from many tasks.",
            "options = AppOptions(": "blocking = Blocking(",
            "        self.core = AppRuntime(options)": (
                "        self.core = blocking.core\n"
                "        #: The same app for threads: the same tasks, queues and store.\n"
                "        self.blocking = blocking\n"
                "        self._queues = AwaitedQueues(self.core)"
            ),
            "Tasks and their queues in one store": "Tasks whose sends are awaited, and their queues in one store",
            "`run()` it, or `start()` and later `drain()` it.": "`async with await app.worker():`, for example.\n\n"
            "        Its `async def` tasks run in this event loop, all others as in a worker.",
            "self.core.open(name)": "await self._queues.open(name)",
            "serve(self.core, Dispatcher.builder(), queues, **options)": (
                "await asyncio.to_thread(lambda: serve(self.core, Dispatcher.builder(), queues, **options))"
            ),
            "self.core.schedules.reconcile(queue,": (
                "await asyncio.to_thread(self.core.schedules.reconcile, queue.blocking,"
            ),
            "self.core.reconcile_all(": "await asyncio.to_thread(self.core.reconcile_all, ",
            "self.core.close()": "await self._queues.close()",
            "Task(function, options, self.open)": (
                "Task(function, options, self.open, BlockingTask(function, options, self.core.open))"
            ),
        },
        awaited=("builder.build",),
        imports=(
            "import asyncio",
            "from astyqueue.tasks.app import App as Blocking",
            "from astyqueue.tasks.awaited.queues import AwaitedQueues",
            "from astyqueue.tasks.task import Task as BlockingTask",
        ),
    ),
)
