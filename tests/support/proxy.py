"""TCP proxies in front of servers, for tests of a failing network: they hold back what passes, or cut connections.

`Proxy` stands in front of one server, and distinguishes requests from answers. `NodeProxies` stand in front of the
nodes of a local ring, and distinguish by which node or client a connection was opened. Held bytes are not lost: they
arrive late, as from a network that was broken for a while.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

T = TypeVar("T")

#: The opener of every connection that no node opens.
CLIENTS: Final = "clients"
#: The first bytes that a node sends: a magic number, flags, the length of what follows, its address and its port.
_HANDSHAKE: Final = struct.Struct(">IIB4sH")
#: The proxy of the node at 127.0.0.1 listens at 127.0.0.101.
_PROXIES_FROM: Final = 100


class _End(asyncio.Protocol):
    """One end of a connection: passes on what it reads, unless it is held or the other end's buffer is full."""

    def __init__(self) -> None:
        self.other: _End | None = None
        self.held = False
        self.full = False
        self.lost = False
        #: Called before data is passed on; False: the data is dropped.
        self.admits: Callable[[bytes], bool] = lambda _: True
        self._transport: asyncio.Transport | None = None
        self._unsent: list[bytes] = []

    @property
    def port(self) -> int | None:
        """The local port of the connection; None before it is made."""
        return None if self._transport is None else int(self._transport.get_extra_info("sockname")[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for piece in self._unsent:
            transport.write(piece)
        self.listen()

    def data_received(self, data: bytes) -> None:
        if self.other is not None and self.admits(data):
            self.other.say(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the reason makes no difference
        self.lost = True
        if self.other is not None:
            self.other.hang_up()

    def pause_writing(self) -> None:
        self._crowded(full=True)

    def resume_writing(self) -> None:
        self._crowded(full=False)

    def say(self, data: bytes) -> None:
        """Write it now, or once the connection is made."""
        if self._transport is None:
            self._unsent.append(data)
        else:
            self._transport.write(data)

    def hang_up(self) -> None:
        """Abort the connection."""
        if self._transport is not None:
            self._transport.abort()

    def listen(self) -> None:
        """Read from the connection if what is read can be passed on; otherwise pause reading."""
        if self._transport is None or self._transport.is_closing():
            return
        if self.held or self.full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def hold(self, *, held: bool) -> None:
        """Pass nothing on from now on, or everything again."""
        self.held = held
        self.listen()

    def _crowded(self, *, full: bool) -> None:
        if self.other is not None:
            self.other.full = full
            self.other.listen()


class _Opener(_End):
    """The end towards the opener of a connection; a node sends its address first, a client does not."""

    def __init__(self, introduced: Callable[[_Opener, str, bytes], None], *, client: bool) -> None:
        super().__init__()
        self._introduced = introduced
        self._client = client
        self._heard = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._client:
            self._introduced(self, CLIENTS, b"")

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        self._heard += data
        if len(self._heard) >= _HANDSHAKE.size:
            *_, address, _ = _HANDSHAKE.unpack_from(self._heard)
            self._introduced(self, str(IPv4Address(address)), self._heard)


class _Target(_End):
    """The end towards the server. Both ends are in `ends` until the connection is lost."""

    def __init__(self, opener: _Opener, ends: set[_End]) -> None:
        super().__init__()
        self.other, opener.other = opener, self
        self._opener = opener
        self._ends = ends
        ends |= {opener, self}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._opener.lost:
            self.hang_up()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._ends -= {self, self._opener}

    async def reach(self, address: tuple[str, int]) -> None:
        """Connect to the server; if that fails, the connection of the opener is aborted."""
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, *address)
        except OSError as error:
            self.connection_lost(error)


class _Listeners(ABC):
    """Listening sockets and their connections, served by an event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._connecting: set[asyncio.Task[None]] = set()

    def _run(self, steps: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result()

    def _do(self, act: Callable[[], object]) -> None:
        """Act in the thread of the event loop, between two pieces of data, and wait until that is done."""

        async def acted() -> None:
            act()

        self._run(acted())

    def _listen(self, opener: Callable[[], _Opener], address: str, port: int) -> asyncio.Server:
        server = self._run(self._serve(opener, address, port))
        self._servers.append(server)
        return server

    async def _serve(self, opener: Callable[[], _Opener], address: str, port: int) -> asyncio.Server:
        return await self._loop.create_server(opener, address, port)

    def _reach(self, target: _Target, address: tuple[str, int]) -> None:
        task = self._loop.create_task(target.reach(address))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    @abstractmethod
    def _abort(self) -> None:
        """Close every connection."""

    def close(self) -> None:
        """Abort all connections, and stop listening; closing twice is allowed."""
        if self._loop.is_closed():
            return
        self._do(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._connecting):
            task.cancel()
        self._abort()

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """As `close`."""
        self.close()


class Proxy(_Listeners):
    """Listens at an address of its own and passes everything on to a server and back, until a method changes that.

    `host` and `port` are where clients connect. After `hold_answers`, the server gets requests and carries them out,
    but clients get no answers; after `hold_questions`, the server gets no requests. `pass_on` delivers what was held,
    `cut` loses it together with the connections. Every method affects all connections, later ones as well, and has
    taken effect when it returns.
    """

    def __init__(self, host: str, port: int, *, at: str = "127.0.0.1") -> None:
        """A proxy for the server at this address, which need not run yet; listens `at` an address of this machine."""
        super().__init__()
        self._address = (host, port)
        self._ends: set[_End] = set()
        self._held: set[type[_End]] = set()
        self._cuts: dict[type[_End], bytes] = {}
        self._asked: _End | None = None
        server = self._listen(lambda: _Opener(self._connect, client=True), at, 0)
        self.host, self.port = server.sockets[0].getsockname()[:2]

    def hold_questions(self) -> None:
        """Let nothing reach the server."""
        self._do(lambda: self._hold(_Opener))

    def hold_answers(self) -> None:
        """Let nothing reach the clients."""
        self._do(lambda: self._hold(_Target))

    def pass_on(self) -> None:
        """Let everything through again, what was held before anything new."""
        self._do(self._let_through)

    def cut(self) -> None:
        """Close every connection; what was held is lost, and what comes later passes."""
        self._do(self._abort)

    def cut_at_next_question(self, about: bytes = b"") -> None:
        """Cut as soon as a client sends something with these bytes in it, which the server does not get."""
        self._do(lambda: self._cuts.update({_Opener: about}))

    def cut_at_next_answer(self, about: bytes = b"") -> None:
        """Cut as soon as the server answers a client that sent something with these bytes, which does not get that.

        A driver of its own accord asks whether its connections live, and what tables there are.
        """
        self._do(lambda: self._cuts.update({_Target: about}))

    @property
    def ports(self) -> frozenset[int]:
        """The ports from which the proxy is connected to the server now; the server knows its clients by these."""
        ports = [end.port for end in tuple(self._ends) if isinstance(end, _Target)]
        return frozenset(port for port in ports if port is not None)

    def _connect(self, opener: _Opener, _who: str, _heard: bytes) -> None:
        target = _Target(opener, self._ends)
        for end in (opener, target):
            end.admits = partial(self._admits, end)
            end.hold(held=type(end) in self._held)
        self._reach(target, self._address)

    def _admits(self, end: _End, data: bytes) -> bool:
        """Whether data that this end has read is passed on; otherwise all connections are cut."""
        if isinstance(end, _Opener) and (wanted := self._cuts.get(_Target)) and wanted in data:
            self._asked = end
        about = self._cuts.get(type(end))
        if about is None:
            return True
        if about and not (about in data if isinstance(end, _Opener) else end.other is self._asked):
            return True
        self._abort()
        return False

    def _hold(self, kind: type[_End]) -> None:
        self._held.add(kind)
        for end in self._ends:
            end.hold(held=type(end) in self._held)

    def _let_through(self) -> None:
        self._held.clear()
        self._cuts.clear()
        self._asked = None
        for end in self._ends:
            end.hold(held=False)

    def _abort(self) -> None:
        for end in tuple(self._ends):
            end.hang_up()
        self._let_through()


class Way(NamedTuple):
    """All connections that one side opens to another: addresses of proxies, or CLIENTS for the opener."""

    opener: str
    target: str


class NodeProxies(_Listeners):
    """All proxies of one ring, opened when the configuration of its nodes is written.

    Only its proxy knows the address at which a node listens; other nodes and clients get the address of the proxy. A
    node begins each connection by sending its own address, so a proxy knows whose bytes it holds. Every method may be
    called from any thread, and has taken effect when it returns.
    """

    def __init__(self, *ports: int, client_port: int) -> None:
        """Proxies with these ports for nodes, and one port for clients; none is open yet."""
        super().__init__()
        self._ports = ports
        self._client_port = client_port
        self._ends: dict[Way, set[_End]] = defaultdict(set)
        self._held: set[Way] = set()

    def open(self, address: str) -> str:
        """Open a proxy in front of the node that listens at this address; returns the proxy's address."""
        network, _, number = address.rpartition(".")
        known_as = f"{network}.{int(number) + _PROXIES_FROM}"
        for port in (*self._ports, self._client_port):
            connect = partial(self._connect, known_as, (address, port))
            self._listen(partial(_Opener, connect, client=port == self._client_port), known_as, port)
        return known_as

    def hold(self, ways: Iterable[Way]) -> None:
        """Let nothing through on these ways, neither requests nor answers."""
        self._do(lambda: self._change(ways, held=True))

    def pass_on(self, ways: Iterable[Way]) -> None:
        """Let everything through again, what was held before anything new."""
        self._do(lambda: self._change(ways, held=False))

    def cut(self, ways: Iterable[Way]) -> None:
        """Abort every connection that exists on these ways."""
        self._do(lambda: self._abort_ways(ways))

    def _change(self, ways: Iterable[Way], *, held: bool) -> None:
        for way in ways:
            (self._held.add if held else self._held.discard)(way)
            for end in self._ends[way]:
                end.hold(held=held)

    def _abort_ways(self, ways: Iterable[Way]) -> None:
        for way in ways:
            for end in tuple(self._ends[way]):
                end.hang_up()

    def _abort(self) -> None:
        self._abort_ways(tuple(self._ends))

    def _connect(self, known_as: str, address: tuple[str, int], opener: _Opener, who: str, heard: bytes) -> None:
        way = Way(who, known_as)
        target = _Target(opener, self._ends[way])
        for end in (opener, target):
            end.hold(held=way in self._held)
        if heard:
            target.say(heard)
        self._reach(target, address)
