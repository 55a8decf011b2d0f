"""Proxies in front of the nodes of a local ring, which pass on or hold all traffic of nodes and clients.

Only its proxy knows the address at which a node listens; other nodes and clients get the address of the proxy. A node
begins each connection by sending its own address, so a proxy knows whose bytes it holds. Held bytes are not lost: they
arrive late, as from a network that was broken for a while.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

#: The opener of every connection that no node opens.
CLIENTS: Final = "clients"
#: The first bytes that a node sends: a magic number, flags, the length of what follows, its address and its port.
_HANDSHAKE: Final = struct.Struct(">IIB4sH")
#: The proxy of the node at 127.0.0.1 listens at 127.0.0.101.
_PROXIES_FROM: Final = 100


class Way(NamedTuple):
    """All connections that one side opens to another: addresses of proxies, or CLIENTS for the opener."""

    asking: str
    asked: str


class _End(asyncio.Protocol):
    """One end of a connection: passes on what it reads, unless the way is held or the other end's buffer is full."""

    def __init__(self) -> None:
        self.other: _End | None = None
        self.held = False
        self.full = False
        self._transport: asyncio.Transport | None = None
        self._waits: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        for piece in self._waits:
            transport.write(piece)
        self.listen()

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.say(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the reason makes no difference
        if self.other is not None:
            self.other.hang_up()

    def pause_writing(self) -> None:
        self._crowded(full=True)

    def resume_writing(self) -> None:
        self._crowded(full=False)

    def say(self, data: bytes) -> None:
        """Write it now, or once the connection is made."""
        if self._transport is None:
            self._waits.append(data)
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

    def _crowded(self, *, full: bool) -> None:
        if self.other is not None:
            self.other.full = full
            self.other.listen()


class _Asking(_End):
    """The end towards the opener of a connection; a node sends its address first, a client does not."""

    def __init__(self, introduced: Callable[[_Asking, str, bytes], None], *, client: bool) -> None:
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
            self.other.say(data)
            return
        self._heard += data
        if len(self._heard) >= _HANDSHAKE.size:
            *_, address, _ = _HANDSHAKE.unpack_from(self._heard)
            self._introduced(self, str(IPv4Address(address)), self._heard)


class NodeProxies:
    """All proxies of one ring, opened when the configuration of its nodes is written.

    Every method may be called from any thread, and has taken effect when it returns.
    """

    def __init__(self, *ports: int, client_port: int) -> None:
        """Proxies with these ports for nodes, and one port for clients; none is open yet."""
        self._ports = ports
        self._client_port = client_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._ends: dict[Way, set[_End]] = defaultdict(set)
        self._held: set[Way] = set()

    def open(self, address: str) -> str:
        """Open a proxy in front of the node that listens at this address; returns the proxy's address."""
        network, _, number = address.rpartition(".")
        proxy_address = f"{network}.{int(number) + _PROXIES_FROM}"
        for port in (*self._ports, self._client_port):
            asyncio.run_coroutine_threadsafe(self._serve(proxy_address, address, port), self._loop).result()
        return proxy_address

    def hold(self, ways: Iterable[Way]) -> None:
        """Let nothing through on these ways, neither requests nor answers."""
        self._do(lambda: self._change(ways, held=True))

    def pass_on(self, ways: Iterable[Way]) -> None:
        """Let everything through again, what was held before anything new."""
        self._do(lambda: self._change(ways, held=False))

    def cut(self, ways: Iterable[Way]) -> None:
        """Abort every connection that exists on these ways."""
        ends = [end for way in ways for end in tuple(self._ends[way])]
        self._do(lambda: _each(_End.hang_up, ends))

    def close(self) -> None:
        """Close all connections and all proxies."""
        self.cut(tuple(self._ends))
        self._do(lambda: _each(asyncio.Server.close, self._servers))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _do(self, act: Callable[[], object]) -> None:
        async def acted() -> None:
            act()

        asyncio.run_coroutine_threadsafe(acted(), self._loop).result()

    def _change(self, ways: Iterable[Way], *, held: bool) -> None:
        for way in ways:
            (self._held.add if held else self._held.discard)(way)
            for end in self._ends[way]:
                end.held = held
                end.listen()

    async def _serve(self, proxy_address: str, address: str, port: int) -> None:
        def introduced(asking: _Asking, who: str, heard: bytes) -> None:
            self._connect(asking, Way(who, proxy_address), target=(address, port), heard=heard)

        def end() -> _Asking:
            return _Asking(introduced, client=port == self._client_port)

        self._servers.append(await self._loop.create_server(end, proxy_address, port))

    def _connect(self, asking: _Asking, way: Way, *, target: tuple[str, int], heard: bytes) -> None:
        asked = _Asked(self._ends[way])
        asking.other, asked.other = asked, asking
        asking.held = asked.held = way in self._held
        self._ends[way] |= {asking, asked}
        asking.listen()
        if heard:
            asked.say(heard)
        task = self._loop.create_task(self._reach(asked, target))
        asked.reaching = task

    async def _reach(self, asked: _Asked, target: tuple[str, int]) -> None:
        """Connect to the node; if that fails, the connection of the opener is aborted."""
        try:
            await self._loop.create_connection(lambda: asked, *target)
        except OSError as error:
            asked.connection_lost(error)


T = TypeVar("T")


def _each(act: Callable[[T], None], all_: Iterable[T]) -> None:
    for one in all_:
        act(one)


class _Asked(_End):
    """The end towards the node; once it is lost, the connection is forgotten."""

    def __init__(self, ends: set[_End]) -> None:
        super().__init__()
        self._ends = ends
        self.reaching: asyncio.Task[None] | None = None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._ends.discard(self)
        if self.other is not None:
            self._ends.discard(self.other)
