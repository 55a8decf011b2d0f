"""Schedules whose triggers raise, or that cannot be read, stop no others; and what operators may not do with them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from astyqueue.clock import instant
from astyqueue.errors import BadInput, UnknownTrigger
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.schedule_column import trigger_name
from astyqueue.protocol.scheduling.schedule_commands import occurrences_between
from astyqueue.protocol.steps import Commit, perform
from astyqueue.queue.admin.schedules import handle_of
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Put, Slice, Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every, Once, Triggers
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW
from tests.unit.protocol.stage import Unanswered


def take(queue: MessageQueue) -> list[object]:
    """The bodies of what is due, acked."""
    with queue.receive(limit=100) as batch:
        return [delivery.body for delivery in batch]


def opened(store: Store, clock: TimeMachine, triggers: Triggers | None = None) -> MessageQueue:
    builder = MessageQueue.builder().store(store).clock(clock).name("mail").options(**ONE_ROW)
    return builder.triggers(triggers or Triggers()).build()


def test_a_trigger_that_raises_stops_no_other_schedule_and_is_asked_again_after_a_minute(
    store: Store, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    triggers, broken = Triggers(), False

    def minutely(moment: datetime) -> datetime:
        if broken:
            raise ZeroDivisionError
        return moment + timedelta(minutes=1)

    queue = opened(store, clock, triggers)
    schedules = Schedules(queue)
    schedules.add("broken", triggers.register("minutely")(minutely)(), "of the broken one")
    schedules.add("sound", Every("1m", delay="1m"), "of the sound one")
    broken = True
    clock.advance("1m")
    assert take(queue) == ["of the sound one"]
    [failure] = [record for record in caplog.records if "schedule_trigger_failed" in record.getMessage()]
    assert "schedule=broken" in failure.getMessage()
    assert failure.exc_info is not None
    assert failure.exc_info[0] is ZeroDivisionError
    broken = False
    clock.advance("30s")
    assert take(queue) == []
    clock.advance("30s")
    assert sorted(map(str, take(queue))) == ["of the broken one", "of the sound one"]
    stored = schedules.get("broken").stored
    assert (stored.occurrences, stored.fired) == (2, 1)


def damage(queue: MessageQueue, name: str) -> str:
    """Store a schedule as this version cannot read it; returns its row."""
    row = handle_of(queue.core, name).row
    queue.store.commit(Batch(row, (Put(trigger_name(name), b"\x63newer"),)), ())
    return row


def test_dropping_a_queue_drops_the_schedules_that_cannot_be_read_too(store: Store, clock: TimeMachine) -> None:
    queue = opened(store, clock)
    Schedules(queue).add("digest", Once(delay="1m"), "hello")
    row = damage(queue, "digest")
    queue.drop()
    assert store.read((Slice(row, Type.TRIGGER), Slice(row, Type.TIMER))) == [[], []]
    again = opened(store, clock)
    clock.advance("1m")
    assert (take(again), Schedules(again).all()) == ([], [])


@pytest.mark.parametrize("applied", [True, False])
def test_a_schedule_that_cannot_be_read_is_deleted_though_the_outcome_is_unknown_and_another_process_commits_then(
    store: Store, clock: TimeMachine, *, applied: bool
) -> None:
    def instead(request: Commit) -> None:
        if applied:
            perform(request, store)
        Schedules(queue).add("another", Once(delay="1m"), "hello")

    queue, unsure = opened(store, clock), Unanswered(store, instead)
    Schedules(queue).add("digest", Once(delay="1m"), "hello")
    damage(queue, "digest")
    schedules = Schedules(opened(unsure, clock))
    assert unsure.commits == 0
    assert schedules.delete("digest")
    assert [one.stored.name for one in schedules.all()] == ["another"]
    assert not schedules.delete("digest")


def test_a_backfill_of_more_than_ten_thousand_occurrences_sends_none(store: Store, clock: TimeMachine) -> None:
    queue, now = opened(store, clock), instant(clock.now())
    schedules, trigger = Schedules(queue), Every("1s", start=now - timedelta(hours=3))
    schedules.add("digest", trigger, "hello")
    with pytest.raises(BadInput, match=r"more than 10000 occurrences .* backfill them in parts"):
        schedules.backfill("digest", now - timedelta(seconds=10_000), now)
    assert queue.counts().total == 0
    assert len(occurrences_between(trigger, clock.now() - 9_999 * SECOND, clock.now())) == 10_000


def test_a_schedule_of_a_trigger_that_is_not_known_here_is_not_said_to_be_missing(
    store: Store, clock: TimeMachine
) -> None:
    triggers = Triggers()
    soon = triggers.register("soon")(lambda moment: moment + timedelta(minutes=1))
    Schedules(opened(store, clock, triggers)).add("digest", soon(), "hello")
    stranger = Schedules(opened(store, clock))
    stranger.pause("digest")
    with pytest.raises(UnknownTrigger, match="soon"):
        stranger.resume("digest")
