"""Doors in front of every node of a local ring: all that nodes and clients say to each other goes through them, or is held there.

A node listens at an address that nobody else is told; what is told is the address of its door. Nodes begin each connection
by saying who they are, so a door knows whose words it holds back. Held words are not lost: like those of a broken network
that is mended in time, they arrive late.
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

#: What is not said by a node.
CLIENTS: Final = "clients"
#: A node's first words: a magic number, flags, the length of what follows, its address and its port.
_FIRST_WORDS: Final = struct.Struct(">IIB4sH")
#: The door of the node that listens at 127.0.0.1 is 127.0.0.101.
_DOORS_FROM: Final = 100


class Way(NamedTuple):
    """From whom to whom: addresses of doors, or CLIENTS."""

    asking: str
    asked: str


class _End(asyncio.Protocol):
    """One end of a connection: what it hears is written to the other end, unless the way is held or the other end is full."""

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

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - the end is the end
        if self.other is not None:
            self.other.hang_up()

    def pause_writing(self) -> None:
        self._crowded(full=True)

    def resume_writing(self) -> None:
        self._crowded(full=False)

    def say(self, data: bytes) -> None:
        """Say it now, or once there is a connection."""
        if self._transport is None:
            self._waits.append(data)
        else:
            self._transport.write(data)

    def hang_up(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def listen(self) -> None:
        """Listen if what is heard can be passed on."""
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
    """The end of whoever asks, who may have to say first who that is."""

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
        if len(self._heard) >= _FIRST_WORDS.size:
            *_, address, _ = _FIRST_WORDS.unpack_from(self._heard)
            self._introduced(self, str(IPv4Address(address)), self._heard)


class Doors:
    """All doors of one ring, opened as its nodes are described; every method may be called from any thread and acts at once."""

    def __init__(self, *ports: int, client_port: int) -> None:
        """Doors with these ports for nodes, and one for clients; none is there yet."""
        self._ports = ports
        self._client_port = client_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="doors", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._ends: dict[Way, set[_End]] = defaultdict(set)
        self._held: set[Way] = set()

    def open(self, address: str) -> str:
        """Open a door in front of the node that listens here; the address of the door."""
        network, _, number = address.rpartition(".")
        door = f"{network}.{int(number) + _DOORS_FROM}"
        for port in (*self._ports, self._client_port):
            asyncio.run_coroutine_threadsafe(self._serve(door, address, port), self._loop).result()
        return door

    def hold(self, ways: Iterable[Way]) -> None:
        """Let nothing through on these ways, in the direction of whoever is asked and in answer to it."""
        self._do(lambda: self._change(ways, held=True))

    def pass_on(self, ways: Iterable[Way]) -> None:
        """Let everything through again, what was held first."""
        self._do(lambda: self._change(ways, held=False))

    def cut(self, ways: Iterable[Way]) -> None:
        """End every connection there is on these ways."""
        ends = [end for way in ways for end in tuple(self._ends[way])]
        self._do(lambda: _each(_End.hang_up, ends))

    def close(self) -> None:
        """Close every door."""
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

    async def _serve(self, door: str, address: str, port: int) -> None:
        def introduced(asking: _Asking, who: str, heard: bytes) -> None:
            self._connect(asking, Way(who, door), target=(address, port), heard=heard)

        def end() -> _Asking:
            return _Asking(introduced, client=port == self._client_port)

        self._servers.append(await self._loop.create_server(end, door, port))

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
        """Connect to whoever is asked; if he is not there, whoever asks is hung up on."""
        try:
            await self._loop.create_connection(lambda: asked, *target)
        except OSError as error:
            asked.connection_lost(error)


T = TypeVar("T")


def _each(act: Callable[[T], None], all_: Iterable[T]) -> None:
    for one in all_:
        act(one)


class _Asked(_End):
    """The end of whoever is asked; with it the connection is forgotten."""

    def __init__(self, ends: set[_End]) -> None:
        super().__init__()
        self._ends = ends
        self.reaching: asyncio.Task[None] | None = None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._ends.discard(self)
        if self.other is not None:
            self._ends.discard(self.other)
