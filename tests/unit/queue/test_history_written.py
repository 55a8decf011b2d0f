"""When a queue's history is written, what that costs, and how it is read by time."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from astyqueue import Delivery, Message, MessageQueue
from astyqueue.clock import instant
from astyqueue.errors import BadInput, OutcomeUnknown, StoreUnavailable
from astyqueue.model.event import FLAT, Event, Kind
from astyqueue.protocol.history import HistorySlice, history_slices, read_history_slice
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Commit, Read, Request, Send, run
from astyqueue.queue.admin.dead_letters import redrive_page
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.store import ENTRIES, HISTORY, Named, Store
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Failing, Faulty, Recording
from astyqueue.triggers import Every
from tests.support.places import Place

Builder = QueueBuilder[MessageQueue]


@pytest.fixture
def queue(builder: Builder) -> MessageQueue:
    return builder.options(history="all").build()


def kinds(queue: MessageQueue, message: object = None, **asked: object) -> list[str]:
    return [event.kind.value for event in queue.history(message, **asked)]  # type: ignore[arg-type]  # each test asks rightly


@pytest.mark.every_store
def test_the_history_is_in_the_store_before_the_settle(store: Store, builder: Builder) -> None:
    recorded = Recording(store)
    queue = builder.store(recorded).options(history="all").build()
    queue.send("hello")
    [delivery] = queue.receive()
    recorded.requests.clear()
    delivery.ack()
    changes = [request for request in recorded.requests if not isinstance(request, Read)]
    assert [type(request) for request in changes] == [Send, Commit]
    assert isinstance(changes[0], Send)
    assert {batch.table for batch in changes[0].batches} == {HISTORY}


def test_when_the_history_cannot_be_written_nothing_is_settled_and_trying_again_is_right(
    store: Store, builder: Builder
) -> None:
    queue = builder.options(history="all").build()
    sent = queue.send("hello")
    queue.close()
    failing = Failing(store, StoreUnavailable("the store is away"), of=(Send,))
    queue = MessageQueue.builder().store(failing).name("emails").clock(queue.clock).build()
    [delivery] = queue.receive()
    with pytest.raises(StoreUnavailable):
        delivery.ack()
    assert queue.get(sent.id).standing == "in_flight"
    delivery.ack()
    assert kinds(queue, sent.id)[-1] == "done"


def failed_unprintably(queue: MessageQueue) -> Delivery:
    """A delivery whose handler raised an error that Python cannot print."""
    queue.send("hello")
    [delivery] = queue.receive()
    place: Any = ("page.html", 1, "a column that is no number", "<a>")
    delivery.error = SyntaxError("no end", place)
    return delivery


def test_an_error_that_cannot_be_printed_costs_its_event_and_not_the_outcome(
    queue: MessageQueue, caplog: pytest.LogCaptureFixture
) -> None:
    delivery = failed_unprintably(queue)
    delivery.fail("a bad page")
    assert (delivery.settled, queue.counts().backing_off) == ("released", 1)
    assert f"history_event_dropped queue=emails id={delivery.message_id}" in caplog.text
    assert {"failed", "retried"}.isdisjoint(kinds(queue))


def test_a_log_that_raises_for_an_event_that_was_dropped_costs_no_outcome(
    queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = failed_unprintably(queue)
    shown: list[str] = []

    def refuse(record: logging.LogRecord) -> bool:
        shown.append(record.__dict__["event"])
        raise KeyError

    monkeypatch.setattr(logging.getLogger("astyqueue.queue"), "filters", [refuse])
    delivery.fail("a bad page")
    assert shown == ["history_event_dropped"]
    assert (delivery.settled, queue.counts().backing_off) == ("released", 1)


def test_a_send_that_fails_half_way_leaves_events_only_of_what_is_there(
    store: Store, builder: Builder, clock: TimeMachine
) -> None:
    """Keys in twenty shards are twenty batches, which go eight at a time."""
    builder.options(history="all").concurrency_shards(20).build().close()
    many = [Message(number, key=f"key-{number}") for number in range(200)]
    failing = FailingThird(store)
    queue = MessageQueue.builder().store(failing).name("emails").clock(clock).build()
    with pytest.raises(StoreUnavailable):
        queue.send_many(many)
    there = {str(found.id) for found in queue.peek(500)}
    told = {str(event.message) for event in queue.history(kinds=["sent"])}
    assert 0 < len(there) < 200
    assert told == there


class FailingThird(Faulty):
    """Fails the third request that sends messages."""

    sends = 0

    def perform(self, request: Request) -> object:
        if isinstance(request, Send) and request.batch.table == ENTRIES and ":key:" not in request.batch.row:
            self.sends += request.batch.puts[0].name.type == Type.MESSAGE
            if self.sends == 3:
                self.sends += 1
                message = "the store is away"
                raise StoreUnavailable(message)
        return super().perform(request)


def test_a_crash_between_history_and_settle_leaves_an_event_of_an_attempt_that_comes_again(
    store: Store, builder: Builder, clock: TimeMachine
) -> None:
    queue = builder.options(history="all").build()
    sent = queue.send("hello")
    crashing = (
        MessageQueue.builder()
        .store(Failing(store, StoreUnavailable("gone"), of=(Commit,), at=2))
        .name("emails")
        .clock(clock)
        .build()
    )
    [delivery] = crashing.receive()
    with pytest.raises(StoreUnavailable):
        delivery.ack()
    clock.advance("31s")
    queue.receive()[0].ack()
    done = list(queue.history(sent.id, kinds=["done"]))
    assert [event.attempt for event in done] == [1, 2]  # the last one counts


def test_what_is_written_again_takes_its_own_place(store: Store, builder: Builder, clock: TimeMachine) -> None:
    queue = builder.options(history="all").build()
    sent = queue.send("hello")
    queue.close()
    unanswered = Failing(store, OutcomeUnknown("no answer"), of=(Send,), applied=True)
    queue = MessageQueue.builder().store(unanswered).name("emails").clock(clock).build()
    queue.receive()[0].ack()
    assert kinds(queue, sent.id) == ["sent", "claimed", "done"]


@pytest.mark.every_store
def test_a_history_can_be_asked_by_time_kind_and_number(queue: MessageQueue, clock: TimeMachine) -> None:
    start = instant(clock.now())
    for _ in range(3):
        queue.send("hello", key="k")
        clock.advance("1h")
    assert [event.at for event in queue.history(key="k")] == sorted(event.at for event in queue.history(key="k"))
    assert len(kinds(queue, key="k", since=start + timedelta(minutes=30))) == 2
    assert len(kinds(queue, key="k", until=start + timedelta(minutes=30))) == 1
    assert len(kinds(queue, since=start + timedelta(minutes=30), until=start + timedelta(minutes=90))) == 1
    assert kinds(queue, limit=2) == ["sent", "sent"]
    assert kinds(queue, kinds=["done"]) == []
    with pytest.raises(BadInput, match="not a kind of event"):
        queue.history(kinds=["sunk"])
    with pytest.raises(BadInput, match="not both"):
        queue.history("emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21", key="k")


def test_a_history_goes_over_days_in_order(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello", delay="20d", key="k")
    for _ in range(10):
        clock.advance("2d")
        queue.send("other")
    with queue.receive(20) as received:
        assert sent.id.id in [delivery.id for delivery in received]
    for found in (queue.history(sent.id), queue.history(key="k")):
        assert [event.kind for event in found] == [Kind.SENT, Kind.CLAIMED, Kind.DONE]
    everything = [event.at for event in queue.history()]
    assert everything == sorted(everything)
    assert len(everything) == 33


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.every_store
def test_more_events_than_a_page_come_each_once_and_in_order(builder: Builder, shards: int) -> None:
    queue = builder.options(history="all", concurrency_shards=shards).build()
    sent = queue.send_many(range(2_500))
    found = list(queue.history(kinds=["sent"]))
    assert sorted(event.message for event in found if event.message) == sorted(id_ for id_ in sent.ids if id_)
    assert [event.at for event in found] == sorted(event.at for event in found)


@pytest.mark.parametrize("shards", [1, 3])
def test_more_events_of_a_key_than_a_page_come_each_once_and_in_order(
    builder: Builder, clock: TimeMachine, shards: int
) -> None:
    queue = builder.options(history="all", concurrency_shards=shards).build()
    sent: list[object] = []
    for _ in range(3):
        sent += queue.send_many([Message(number, key="k") for number in range(1_200)]).ids  # all of one moment
        clock.advance("11h")
    found = list(queue.history(key="k", kinds=["sent"]))
    assert sorted(str(event.message) for event in found) == sorted(map(str, sent))
    assert [event.at for event in found] == sorted(event.at for event in found)


def test_the_first_events_of_a_key_are_found_without_reading_all_of_it(
    store: Store, builder: Builder, clock: TimeMachine
) -> None:
    recorded = Recording(store)
    queue = builder.store(recorded).options(history="all").build()
    for _ in range(40):
        queue.send_many([Message(number, key="k") for number in range(100)])
        clock.advance("1m")
    recorded.requests.clear()
    assert len(kinds(queue, key="k", limit=5)) == 5
    named = [
        wanted
        for request in recorded.requests
        if isinstance(request, Read)
        for wanted in request.wanted
        if isinstance(wanted, Named)
    ]
    assert sum(len(wanted.names) for wanted in named) <= 500


def test_what_waits_while_the_store_is_away_is_written_later_and_of_too_much_the_oldest_is_forgotten(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    history = queue.core.claimer.history
    message = queue.send("hello").id
    made = [
        replace(history.events.of_command(Kind.CLAIMED, message, None, why=str(number)), at=clock.now() + number)
        for number in range(3)
    ]
    history.note(Kind.CLAIMED, lambda: made)
    flushing = history.flush()
    next(flushing)
    history.note(Kind.CLAIMED, lambda: [made[2]] * 9_998)
    with pytest.raises(StopIteration):
        flushing.throw(StoreUnavailable("the store is away"))
    queue.run(history.flush())
    clock.advance("1s")
    assert [event.why for event in queue.history(message, kinds=["claimed"])] == ["1", "2"]


def test_what_was_put_back_is_told_although_more_could_not_be(store: Store, builder: Builder) -> None:
    queue = builder.options(concurrency_shards=2).build()
    letters = [queue.send(number).id for number in range(2)]
    for _ in letters:
        queue.receive()[0].reject()
    with pytest.raises(StoreUnavailable):
        run(
            redrive_page(queue.core, letters, force=False, dry_run=False),
            Failing(store, StoreUnavailable("the store is away"), at=2, of=(Commit,)),
        )
    assert [event.message for event in queue.history(kinds=["redriven"])] == letters[:1]


def test_occurrences_that_were_skipped_before_the_store_failed_are_reported(
    store: Store, builder: Builder, clock: TimeMachine
) -> None:
    queue = builder.build()
    Schedules(queue).add("digest", Every("1m", delay="1m"), "hello", overlap="skip", misfire="all")
    clock.advance("2h")
    failing = Failing(store, StoreUnavailable("the store is away"), at=2, of=(Commit,))
    another = MessageQueue.builder().store(failing).name("emails").clock(clock).build()
    with pytest.raises(StoreUnavailable):
        another.receive()
    another.close()
    assert len(list(queue.history(key="digest", kinds=["skipped"]))) == 50  # all of the commit that went through


def test_all_events_are_in_parts_that_can_be_read_by_as_many_at_once(builder: Builder, clock: TimeMachine) -> None:
    queue = builder.options(history="all", concurrency_shards=3).build()
    since = clock.now()
    for _ in range(3):
        queue.send_many(range(40))
        clock.advance("1d")
    found: list[Event] = []
    for part in history_slices(Ring("emails", queue.settings.layout), since, clock.now() + 1):
        left: HistorySlice | None = part
        while left is not None:
            events, left = queue.run(read_history_slice(left, 32))
            found += events
    assert len(found) == len({event.message for event in found}) == 120
    assert set(found[0].flat()) == set(FLAT)


@pytest.mark.stores("memory", "sqlite")
def test_events_are_gone_after_their_time(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(history_kept="1d")
    sent = queue.send("hello")
    clock.advance("23h")
    assert kinds(queue, sent.id) == ["sent"]
    clock.advance("2h")
    assert kinds(queue, sent.id, since=datetime(2000, 1, 1, tzinfo=UTC)) == []


@pytest.mark.parametrize("history", ["none", "failures"])
def test_a_history_that_keeps_no_successes_costs_them_nothing(store: Store, builder: Builder, history: str) -> None:
    recorded = Recording(store)
    queue = builder.store(recorded).options(history=history).build()
    recorded.requests.clear()
    queue.send("hello")
    queue.receive()[0].ack()
    assert [request for request in recorded.requests if _tells(request)] == []


def test_keeping_everything_costs_one_request_a_settle_and_none_a_send_or_a_claim(
    store: Store, builder: Builder
) -> None:
    counts = {history: _requests(builder, store, history) for history in ("none", "all")}
    (sends, claims, settles), (kept_sends, kept_claims, kept_settles) = counts["none"], counts["all"]
    assert (kept_sends, kept_claims, kept_settles) == (sends, claims, settles + 1)


def _requests(builder: Builder, store: Store, history: str) -> tuple[int, int, int]:
    recorded = Recording(store)
    queue = builder.store(recorded).name(f"emails-{history}").options(history=history).build()
    queue.send_many(range(100))
    queue.receive(50)[0].ack()
    counted: list[int] = []
    recorded.requests.clear()
    queue.send_many(range(100))
    counted.append(len(recorded.requests))
    received = queue.receive(50)
    counted.append(len(recorded.requests) - sum(counted))
    with received:
        pass
    counted.append(len(recorded.requests) - sum(counted))
    return counted[0], counted[1], counted[2]


def _tells(request: object) -> bool:
    return isinstance(request, Send) and any(batch.table == HISTORY for batch in request.batches)


def test_a_lone_claim_is_told_a_second_later_by_whoever_takes_part(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello")
    queue.receive()
    assert kinds(queue, sent.id) == ["sent"]
    clock.advance("1100ms")
    queue.receive()
    assert kinds(queue, sent.id) == ["sent", "claimed"]


def test_what_cannot_be_read_is_an_event_that_says_so(place: Place, clock: TimeMachine) -> None:
    store = place.store(clock)
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).options(history="all").build()
    sent = queue.send("hello")
    [part] = history_slices(Ring("emails", queue.settings.layout), clock.now(), clock.now() + 1)
    [[column]] = store.read((part.slice(),))
    from astyqueue.store import Batch, Put  # noqa: PLC0415 - only this test writes past the queue

    store.send(Batch(part.row, (Put(column.name, b"\x02{}"),), table=HISTORY))
    [event], _ = run(read_history_slice(part, 10), store)
    assert (event.kind, event.at) == (Kind.UNKNOWN, clock.now())
    assert "cannot be read" in event.reason
    assert kinds(queue, sent.id) == []
