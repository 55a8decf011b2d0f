"""What a proxy lets through and what it keeps, seen from both of its sides."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from tests.support.proxy import Proxy

PATIENCE = 20.0


class Sides(NamedTuple):
    proxy: Proxy
    client: socket.socket
    server: socket.socket


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE)
        yield listening


@pytest.fixture
def sides(listening: socket.socket) -> Iterator[Sides]:
    with Proxy(*listening.getsockname()) as proxy:
        client = connected(proxy)
        server, _ = listening.accept()
        server.settimeout(PATIENCE)
        with client, server:
            client.sendall(b".")
            assert server.recv(1) == b"."  # both sides are connected now, not only known to the kernel
            yield Sides(proxy, client, server)


def connected(proxy: Proxy) -> socket.socket:
    return socket.create_connection((proxy.host, proxy.port), PATIENCE)


def ended(side: socket.socket) -> bool:
    """Whether the connection is over; nothing is heard before that."""
    try:
        return side.recv(1) == b""
    except ConnectionResetError:
        return True


def silent(side: socket.socket) -> bool:
    """Whether nothing has come so far."""
    side.setblocking(False)  # noqa: FBT003 - the name of the argument is the method's
    try:
        side.recv(1)
    except BlockingIOError:
        side.settimeout(PATIENCE)
        return True
    return False


def test_both_ways_are_open_at_first(sides: Sides) -> None:
    sides.client.sendall(b"question")
    assert sides.server.recv(100) == b"question"
    sides.server.sendall(b"answer")
    assert sides.client.recv(100) == b"answer"


def test_the_server_knows_it_by_its_ports(sides: Sides) -> None:
    assert sides.proxy.ports == {sides.server.getpeername()[1]}


def test_an_answer_that_is_held_comes_in_the_end(sides: Sides) -> None:
    sides.proxy.hold_answers()
    sides.client.sendall(b"question")
    assert sides.server.recv(100) == b"question"
    sides.server.sendall(b"answer")
    assert silent(sides.client)
    sides.proxy.pass_on()
    assert sides.client.recv(100) == b"answer"


def test_a_question_that_is_held_and_cut_is_never_heard(sides: Sides) -> None:
    sides.proxy.hold_questions()
    sides.client.sendall(b"question")
    assert silent(sides.server)
    sides.proxy.cut()
    assert ended(sides.server)
    assert ended(sides.client)


def test_it_cuts_at_the_next_answer_and_takes_connections_again(sides: Sides, listening: socket.socket) -> None:
    sides.proxy.cut_at_next_answer()
    sides.client.sendall(b"question")
    assert sides.server.recv(100) == b"question"
    sides.server.sendall(b"answer")
    assert ended(sides.client)
    with connected(sides.proxy) as again, closing(listening.accept()[0]) as server:
        server.sendall(b"answer")
        assert again.recv(100) == b"answer"


def test_it_cuts_at_the_answer_to_what_is_asked_about_and_not_at_others_before(sides: Sides) -> None:
    sides.proxy.cut_at_next_answer(b"row")
    sides.client.sendall(b"alive?")
    assert sides.server.recv(100) == b"alive?"
    sides.server.sendall(b"yes")
    assert sides.client.recv(100) == b"yes"
    sides.client.sendall(b"the row")
    assert sides.server.recv(100) == b"the row"
    sides.server.sendall(b"answer")
    assert ended(sides.client)


def test_it_cuts_at_the_question_about_something_and_not_at_others_before(sides: Sides) -> None:
    sides.proxy.cut_at_next_question(b"row")
    sides.client.sendall(b"alive?")
    assert sides.server.recv(100) == b"alive?"
    sides.client.sendall(b"the row")
    assert ended(sides.server)


def test_it_cuts_at_the_next_question(sides: Sides) -> None:
    sides.proxy.cut_at_next_question()
    sides.client.sendall(b"question")
    assert ended(sides.server)
    assert ended(sides.client)


def test_who_leaves_takes_the_other_side_along(sides: Sides) -> None:
    sides.server.close()
    assert ended(sides.client)


def test_nobody_is_let_in_where_no_server_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = gone.getsockname()
    with Proxy(*address) as proxy, connected(proxy) as client:
        assert ended(client)


def test_a_closed_proxy_takes_nobody(sides: Sides) -> None:
    sides.proxy.close()
    assert ended(sides.client)
    sides.proxy.close()
    with pytest.raises(ConnectionRefusedError):
        connected(sides.proxy)
