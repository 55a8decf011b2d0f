"""Proxies in front of a node that is a plain server here, which echoes what it reads."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address

import pytest

from tests.support.proxy import CLIENTS, NodeProxies, Way

NODE = "127.0.0.9"
PROXY = "127.0.0.109"
OTHER = "127.0.0.110"
ANOTHER = "127.0.0.111"
PATIENCE_SECONDS = 10
A_WHILE_SECONDS = 0.1


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while heard := self.request.recv(4096):
            self.request.sendall(heard)


@contextmanager
def serving() -> Iterator[int]:
    """A port at which a node listens."""
    with socketserver.ThreadingTCPServer((NODE, 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


@pytest.fixture
def ports() -> Iterator[tuple[int, int]]:
    """Those for nodes and for clients."""
    with serving() as nodes, serving() as clients:
        yield nodes, clients


@pytest.fixture
def proxies(ports: tuple[int, int]) -> Iterator[NodeProxies]:
    with NodeProxies(ports[0], client_port=ports[1]) as proxies:
        assert proxies.open(NODE) == PROXY
        yield proxies


def connected(port: int) -> socket.socket:
    return socket.create_connection((PROXY, port), PATIENCE_SECONDS)


def introduced(who: str, port: int) -> socket.socket:
    """A connection of a node, which sends its handshake first, and gets it back from the echo here."""
    connection = connected(port)
    words = struct.pack(">IIB4sH", 0xCA552DFA, 0, 6, IPv4Address(who).packed, 7000)
    connection.sendall(words)
    assert heard(connection, len(words)) == words
    return connection


def heard(connection: socket.socket, count: int) -> bytes:
    return connection.recv(count, socket.MSG_WAITALL)


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(A_WHILE_SECONDS)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(PATIENCE_SECONDS)


def test_what_is_said_passes_and_what_is_held_comes_late(proxies: NodeProxies, ports: tuple[int, int]) -> None:
    with connected(ports[1]) as client:
        client.sendall(b"one")
        assert heard(client, 3) == b"one"
        proxies.hold([Way(CLIENTS, PROXY)])
        client.sendall(b"two")
        assert hears_nothing(client)
        proxies.pass_on([Way(CLIENTS, PROXY)])
        assert heard(client, 3) == b"two"


def test_nodes_are_distinguished_by_their_handshake(proxies: NodeProxies, ports: tuple[int, int]) -> None:
    with introduced(OTHER, ports[0]) as held, introduced(ANOTHER, ports[0]) as free:
        proxies.hold([Way(OTHER, PROXY)])
        for node in (held, free):
            node.sendall(b"gossip")
        assert heard(free, 6) == b"gossip"
        assert hears_nothing(held)
        proxies.pass_on([Way(OTHER, PROXY)])
        assert heard(held, 6) == b"gossip"


def test_who_comes_while_a_way_is_held_waits_as_well(proxies: NodeProxies, ports: tuple[int, int]) -> None:
    proxies.hold([Way(CLIENTS, PROXY)])
    with connected(ports[1]) as client:
        client.sendall(b"late")
        assert hears_nothing(client)
        proxies.pass_on([Way(CLIENTS, PROXY)])
        assert heard(client, 4) == b"late"


def test_what_is_cut_is_over_and_what_comes_later_passes(proxies: NodeProxies, ports: tuple[int, int]) -> None:
    with connected(ports[1]) as client:
        client.sendall(b"one")
        assert heard(client, 3) == b"one"
        proxies.cut([Way(CLIENTS, PROXY)])
        assert heard(client, 1) == b""
    with connected(ports[1]) as client:
        client.sendall(b"two")
        assert heard(client, 3) == b"two"
