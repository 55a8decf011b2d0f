"""A spool that outlived its queue: the store no longer has the queue, or has one of another layout."""

from __future__ import annotations

from pathlib import Path

from astyqueue import MessageQueue
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from tests.support.places import ONE_ROW
from tests.unit.spool.conftest import Gate


def opened_on(store: Store, **layout: int) -> QueueBuilder[MessageQueue]:
    return MessageQueue.builder().store(store).name("emails").options(**layout)


def test_a_queue_that_only_its_spool_knows_is_created_with_its_settings_once_the_store_is_back(
    store: Gate, tmp_path: Path
) -> None:
    with opened_on(store, priorities=3, **ONE_ROW).spool(tmp_path).max_attempts(7).build():
        pass
    with opened_on(store).build() as operator:
        operator.drop()
    store.is_away = True
    with opened_on(store).spool(tmp_path).build() as queue:
        queue.send("urgent", priority=2)
        store.is_away = False
        assert queue.spool.drain("20s")
        assert queue.spool.status().refused == 0
    with opened_on(store).existing().build() as reader:
        assert (reader.settings.layout.priorities, reader.settings.behaviour.max_attempts) == (3, 7)
        assert [delivery.body for delivery in reader.receive()] == ["urgent"]


def test_messages_that_a_process_left_for_rows_of_an_earlier_layout_are_set_aside(store: Gate, tmp_path: Path) -> None:
    with opened_on(store, time_shards=1, concurrency_shards=8).spool(tmp_path, drain=0).build() as queue:
        store.is_away = True
        rows = [queue.send("in order", group=group).id.row for group in "abcdefgh"]
    store.is_away = False
    with opened_on(store).build() as operator:
        operator.drop()
    with opened_on(store, **ONE_ROW).build() as anew, opened_on(store).existing().spool(tmp_path).build() as later:
        gone = [row for row in rows if row not in anew.counts().rows]
        assert gone
        assert later.spool.drain("20s")
        status = later.spool.status()
        assert (status.messages, status.refused) == (0, len(gone))
        assert "the message was sent to another layout" in status.last_refusal
        assert anew.counts().total == len(rows) - len(gone)
