"""A spool that outlived its queue: the store no longer has the queue, or has one of another layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue import MessageQueue
from astyqueue.clock import SystemClock
from astyqueue.errors import StoreUnavailable
from astyqueue.protocol.steps import Request
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Store
from astyqueue.testing.faults import Faulty
from tests.support.places import ONE_ROW, Place


class Away(Faulty):
    """A store that a test makes unreachable; the test closes it."""

    is_away = False

    def perform(self, request: Request) -> object:
        if self.is_away:
            message = "the network is down"
            raise StoreUnavailable(message)
        return super().perform(request)

    def close(self) -> None:
        pass


@pytest.fixture
def away(place: Place) -> Away:
    return Away(place.store(SystemClock()))


def plain(store: Store, **layout: int) -> QueueBuilder[MessageQueue]:
    return MessageQueue.builder().store(store).name("emails").options(**layout)


def test_a_queue_that_only_its_spool_knows_is_created_with_its_settings_once_the_store_is_back(
    away: Away, tmp_path: Path
) -> None:
    with plain(away, priorities=3, **ONE_ROW).spool(tmp_path).max_attempts(7).build():
        pass
    with plain(away).build() as operator:
        operator.drop()
    away.is_away = True
    with plain(away).spool(tmp_path).build() as queue:
        queue.send("urgent", priority=2)
        away.is_away = False
        assert queue.spool.drain("20s")
        assert queue.spool.status().refused == 0
    with plain(away).existing().build() as reader:
        assert (reader.settings.layout.priorities, reader.settings.behaviour.max_attempts) == (3, 7)
        assert [delivery.body for delivery in reader.receive()] == ["urgent"]


def test_messages_that_a_process_left_for_rows_of_an_earlier_layout_are_set_aside(away: Away, tmp_path: Path) -> None:
    with plain(away, time_shards=1, concurrency_shards=8).spool(tmp_path, drain=0).build() as queue:
        away.is_away = True
        rows = [queue.send("in order", group=group).id.row for group in "abcdefgh"]
    away.is_away = False
    with plain(away).build() as operator:
        operator.drop()
    with plain(away, **ONE_ROW).build() as anew, plain(away).existing().spool(tmp_path).build() as later:
        gone = [row for row in rows if row not in anew.counts().rows]
        assert gone
        assert later.spool.drain("20s")
        status = later.spool.status()
        assert (status.messages, status.refused) == (0, len(gone))
        assert "the message was sent to another layout" in status.last_refusal
        assert anew.counts().total == len(rows) - len(gone)
