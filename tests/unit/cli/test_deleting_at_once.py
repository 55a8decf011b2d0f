"""Deleting all of a queue once it is confirmed: nothing is counted before."""

from __future__ import annotations

from itertools import takewhile

import pytest

from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Read
from astyqueue.queue.connection import Connection
from astyqueue.store import Slice
from astyqueue.stores import open_store
from astyqueue.testing import Recording
from tests.unit.cli.conftest import Shell


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    """The stores that commands open from now on, which record what is asked of them."""
    opened = list[Recording]()

    def recording(*arguments: object, **options: object) -> Recording:
        opened.append(Recording(open_store(*arguments, **options)))  # type: ignore[arg-type]  # as given
        return opened[-1]

    monkeypatch.setattr("astyqueue.queue.connection.open_store", recording)
    return opened


@pytest.mark.parametrize("command", ["clear", "drop"])
def test_what_is_confirmed_is_not_counted_first(
    shell: Shell, connection: Connection, stores: list[Recording], command: str
) -> None:
    queue = connection.queue("emails")
    queue.send_many([1, 2])
    shell(command, "emails", "--yes")
    [store] = stores
    before = takewhile(lambda request: not isinstance(request, Commit), store.requests)
    looks = [one for read in before if isinstance(read, Read) for one in read.wanted]
    # The one look at messages is for those that the commit deletes.
    assert [one.row for one in looks if isinstance(one, Slice) and one.type == Type.MESSAGE] == ["emails:0:0"]
    assert queue.counts().total == 0
