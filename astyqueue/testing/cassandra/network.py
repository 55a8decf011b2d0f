"""The addresses of a cluster: where clients reach it, and loopback addresses reserved for its nodes.

Each cluster has loopback addresses of its own, so that several fit on one machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from astyqueue.stores.cassandra.connection.settings import PORT, parsed_contact_points
from astyqueue.testing.cassandra.errors import AddressesTaken

_LOCK: Final = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW
_NETWORKS: Final = tuple(f"127.0.{number}" for number in range(8))


class Network:
    """Addresses that end in .1, .2, …, reserved for this process until `close`, or until it ends."""

    def __init__(self, nodes: int, ports: tuple[int, ...]) -> None:
        """Reserve the first network, from 127.0.0 on, with these ports free on `nodes` addresses; or AddressesTaken."""
        for network in _NETWORKS:
            self.addresses = tuple(f"{network}.{node}" for node in range(1, nodes + 1))
            with contextlib.suppress(OSError):  # in a shared temporary folder another user may have the file
                self._lock = os.open(
                    Path(tempfile.gettempdir()) / f"astyqueue-{os.getuid()}-{network}.lock", _LOCK, 0o600
                )
                if _locked(self._lock) and _free(self.addresses, ports):
                    return
                self.close()
        raise AddressesTaken(_NETWORKS, ports)

    def close(self) -> None:
        """Release the addresses."""
        os.close(self._lock)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _free(addresses: Iterable[str], ports: Iterable[int]) -> bool:
    return all(_bindable(address, port) for address in addresses for port in ports)


def _bindable(address: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT counts as free
        try:
            tried.bind((address, port))
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Contacts:
    """The addresses of a cluster, and their common port."""

    contact_points: tuple[str, ...]
    port: int = PORT

    @classmethod
    def parse(cls, written: str) -> Self:
        """The contact points in `host,host` or `host:port,host:port`; several ports or other text raise BadSetting."""
        return cls(*parsed_contact_points(written))

    def url(self, keyspace: str) -> str:
        """The URL of a store in this keyspace."""
        port = "" if self.port == PORT else f":{self.port}"
        return f"cassandra://{','.join(address + port for address in self.contact_points)}/{keyspace}"
