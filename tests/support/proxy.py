"""A TCP proxy in front of a server, for tests of a failing network: it holds back what passes, or cuts connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_PIECE: Final = 1 << 16


#: The reader of one connection, and the writer of another.
_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Way:
    """One direction through the proxy: from clients to the server, or back."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.cuts = False


class _Client:
    """A client's connection: the tasks that serve it, and the port from which they connect to the server."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.port: int | None = None


class Proxy:
    """Listens at an address of its own and passes everything on to a server and back, until a method changes that.

    `host` and `port` are where clients connect. After `hold_answers`, the server gets requests and carries them out,
    but clients get no answers; after `hold_questions`, the server gets no requests. `pass_on` delivers what was held,
    `cut` loses it together with the connections. Every method affects all connections, later ones as well, and has
    taken effect when it returns.
    """

    def __init__(self, host: str, port: int, *, at: str = "127.0.0.1") -> None:
        """A proxy for the server at this address, which need not run yet; listens `at` an address of this machine."""
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._questions = _Way()
        self._answers = _Way()
        self._clients: set[_Client] = set()
        self._server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._let_in, at, 0), self._loop).result()
        self.host, self.port = self._server.sockets[0].getsockname()[:2]

    def hold_questions(self) -> None:
        """Let nothing reach the server."""
        self._do(self._questions.open.clear)

    def hold_answers(self) -> None:
        """Let nothing reach the clients."""
        self._do(self._answers.open.clear)

    def pass_on(self) -> None:
        """Let everything through again, what was held before anything new."""
        self._do(self._let_through)

    def cut(self) -> None:
        """Close every connection; what was held is lost, and what comes later passes."""
        self._do(self._cut)

    def cut_at_next_question(self) -> None:
        """Cut as soon as a client sends something, which the server does not get."""
        self._do(lambda: setattr(self._questions, "cuts", True))

    def cut_at_next_answer(self) -> None:
        """Cut as soon as the server sends something, which its client does not get."""
        self._do(lambda: setattr(self._answers, "cuts", True))

    @property
    def ports(self) -> frozenset[int]:
        """The ports from which the proxy is connected to the server now; the server knows its clients by these."""
        return frozenset(client.port for client in tuple(self._clients) if client.port is not None)

    def close(self) -> None:
        """Cut all connections, and stop listening; closing twice is allowed."""
        if not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `close`."""
        self.close()

    def _do(self, act: Callable[[], object]) -> None:
        """Act in the thread of the event loop, between two pieces of data, and wait until that is done."""

        async def acted() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result()

    def _let_through(self) -> None:
        for way in (self._questions, self._answers):
            way.open.set()
            way.cuts = False

    def _cut(self) -> None:
        for task in self._tasks():
            task.cancel()
        self._let_through()  # no task is left that could pass on what was held

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for client in self._clients for task in client.tasks]

    async def _ended(self) -> None:
        self._server.close()
        self._cut()
        if tasks := self._tasks():
            await asyncio.wait(tasks)

    async def _let_in(self, asks: asyncio.StreamReader, hears: asyncio.StreamWriter) -> None:
        """Serve one client until its connection ends, which is at once if the server cannot be reached."""
        client = _Client()
        client.tasks.append(asyncio.ensure_future(self._connected(client, asks, hears)))
        self._clients.add(client)
        try:
            await asyncio.wait(client.tasks)
        finally:
            self._clients.remove(client)
            hears.transport.abort()

    async def _connected(self, client: _Client, asks: asyncio.StreamReader, hears: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            answers, asked = await asyncio.open_connection(*self._target)
            client.port = asked.get_extra_info("sockname")[1]
            await self._both(client, (asks, asked), (answers, hears))

    async def _both(self, client: _Client, questions: _Stream, answers: _Stream) -> None:
        """Pass data on until either side ends its connection, then end the other."""
        ways = [
            asyncio.ensure_future(self._until_its_end(self._questions, questions)),
            asyncio.ensure_future(self._until_its_end(self._answers, answers)),
        ]
        client.tasks += ways
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            questions[1].transport.abort()

    async def _until_its_end(self, way: _Way, stream: _Stream) -> None:
        with contextlib.suppress(OSError):
            await self._pass(way, *stream)

    async def _pass(self, way: _Way, said: asyncio.StreamReader, heard: asyncio.StreamWriter) -> None:
        while piece := await said.read(_PIECE):
            if way.cuts:
                self._cut()
                return
            await way.open.wait()
            heard.write(piece)
            await heard.drain()
