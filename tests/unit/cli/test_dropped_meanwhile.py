"""Queues that are dropped after a command listed the queues of the store, and before it opens them."""

from __future__ import annotations

import pytest

from astyqueue.cli.commands import pipeline
from astyqueue.errors import NotFound
from astyqueue.queue.connection import Connection
from tests.support.places import ONE_ROW
from tests.unit.cli.conftest import Shell


@pytest.fixture
def dropped(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A store with queues `emails` and `orders`, where whoever lists the queues sees `emails` for the last time."""
    emails = connection.queue("emails")
    connection.queue("orders", **ONE_ROW)
    list_queues = Connection.queues

    def list_and_drop(listing: Connection) -> list[str]:
        listed = list_queues(listing)
        if "emails" in listed:
            emails.drop()
        return listed

    monkeypatch.setattr(Connection, "queues", list_and_drop)
    return connection


@pytest.mark.every_store
def test_a_queue_that_is_dropped_meanwhile_is_not_listed_and_stays_dropped(shell: Shell, dropped: Connection) -> None:
    assert [one["name"] for one in shell.json("queues", "list")] == ["orders"]
    assert dropped.queues() == ["orders"]


@pytest.mark.parametrize("words", ["peek emails", "clear emails --yes", "send emails 1", "queues set emails lease=5m"])
def test_a_command_on_a_queue_that_is_dropped_meanwhile_fails_and_it_stays_dropped(
    shell: Shell, dropped: Connection, words: str
) -> None:
    assert "there is no queue 'emails' in this store" in shell.error(*words.split(), code=1)
    assert dropped.queues() == ["orders"]


@pytest.mark.stores("sqlite")
def test_a_pipeline_of_all_queues_passes_over_one_that_is_dropped_meanwhile(dropped: Connection, url: str) -> None:
    assert [*pipeline._behaviours(url, ())] == ["orders"]  # noqa: SLF001 - without Spark
    assert dropped.queues() == ["orders"]


@pytest.mark.stores("sqlite")
def test_a_pipeline_of_a_queue_that_is_dropped_meanwhile_fails(dropped: Connection, url: str) -> None:
    with pytest.raises(NotFound, match="there is no queue 'emails' in this store"):
        pipeline._behaviours(url, ("emails",))  # noqa: SLF001 - without Spark
    assert dropped.queues() == ["orders"]
