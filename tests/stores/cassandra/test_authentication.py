"""A login that was refused: for the driver a connection to be tried again, and not a node to be given up."""

from __future__ import annotations

import pytest
from cassandra import AuthenticationFailed
from cassandra.cluster import DefaultConnection
from cassandra.connection import ConnectionException, DefaultEndPoint

from astyqueue.stores.cassandra.connection import authentication

NODE, OTHER = DefaultEndPoint("127.0.0.1"), DefaultEndPoint("127.0.0.2")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[DefaultEndPoint]:
    """Where a login was tried; it is refused everywhere."""
    tried: list[DefaultEndPoint] = []

    def refuse(endpoint: DefaultEndPoint, *_: object, **__: object) -> None:
        tried.append(endpoint)
        message = "Bad credentials"
        raise AuthenticationFailed(message)

    monkeypatch.setattr(DefaultConnection, "factory", refuse)
    return tried


def test_it_is_an_error_after_which_the_driver_tries_again(tried: list[DefaultEndPoint]) -> None:
    with pytest.raises(ConnectionException, match="Bad credentials") as raised:
        authentication.of_one_cluster().factory(NODE, 5.0)
    assert not isinstance(raised.value, AuthenticationFailed)
    assert tried == [NODE]


def test_a_node_is_not_asked_to_check_the_password_again_at_once(tried: list[DefaultEndPoint]) -> None:
    here, elsewhere = authentication.of_one_cluster(), authentication.of_one_cluster()
    for connection, node in ((here, NODE), (here, NODE), (here, OTHER), (elsewhere, NODE), (here, NODE)):
        with pytest.raises(ConnectionException, match="Bad credentials"):
            connection.factory(node, 5.0)
    assert tried == [NODE, OTHER, NODE]
