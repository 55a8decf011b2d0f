from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pydantic import BaseModel, field_serializer

from astyqueue import Message, MessageQueue
from astyqueue.errors import BadInput, OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.steps import Read, Request, Send
from astyqueue.queue.builder import QueueBuilder
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Failing, Faulty, Recording
from tests.support.places import Place


def nested(levels: int, kind: type[list[object] | tuple[object, ...]] = list) -> object:
    body: object = 1
    for _ in range(levels):
        body = kind([body])
    return body


class Welcome(BaseModel):
    to: str
    at: datetime


def test_a_model_is_a_body(queue: MessageQueue) -> None:
    queue.send(Welcome(to="ada", at=datetime(2026, 1, 1, tzinfo=UTC)))
    assert queue.receive()[0].body == {"to": "ada", "at": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (object(), "no JSON form"),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, r"body\['when'\]"),
        ([1, {2}], r"body\[1\]"),
        (b"bytes", "bytes"),
        (math.nan, "infinite or nan"),
        ({1: "one"}, "keys are text"),
        ("half \ud800", "not valid Unicode"),
        ({"name": ["half \ud800"]}, r"body\['name'\]\[0\] is not valid"),
        ({"half \ud800": 1}, "a key of body"),
        pytest.param(10**5000, "number out of range", id="digits"),
        (nested(200), "recursion limit"),
        (nested(200, tuple), "recursion limit"),
        (nested(2000), "contains itself"),
        ("x" * (256 * 1024), "store the large part elsewhere"),
    ],
)
def test_a_body_that_would_not_come_back_as_it_was_is_refused(queue: MessageQueue, body: object, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        queue.send(body)
    assert queue.counts().total == 0


class Card:
    def __repr__(self) -> str:
        return "Card(4111-1111)"


class Sealed(BaseModel):
    card: str

    @field_serializer("card")
    def refuse(self, card: str) -> str:
        raise ValueError(card)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"4111-1111", "body is of type bytes, which has no JSON form"),
        ({"card": Decimal("4111.1111")}, "body['card'] is of type Decimal, which has no JSON form"),
        ({"card": ["4111-1111 \ud800"]}, "body['card'][0] is not valid Unicode"),
        ({Card(): 1}, "body has a key of type Card"),
        ([Card()], "body[0] is of type Card"),
        (Sealed(card="4111-1111"), "body is of type Sealed, which has no JSON form"),
        ({"k" * 200: Card()}, f"body['{'k' * 39}] is of type Card"),
    ],
    ids=["bytes", "decimal", "unicode", "key", "object", "model", "long key"],
)
def test_an_error_names_the_place_and_the_type_and_repeats_no_part_of_a_body(
    queue: MessageQueue, body: object, told: str
) -> None:
    with pytest.raises(BadInput) as refused:
        queue.send(body)
    assert str(refused.value).startswith(told)
    assert "4111" not in str(refused.value)


def test_a_tuple_comes_back_as_a_list(queue: MessageQueue) -> None:
    queue.send(("a", ("b",)))
    assert queue.receive()[0].body == ["a", ["b"]]


@pytest.mark.every_store
def test_whatever_is_accepted_can_be_received(queue: MessageQueue) -> None:
    bodies = [nested(199), nested(199, tuple), 10**4298, {"deep": nested(198)}]
    queue.send_many([*bodies, *(Message(body, headers={"sent": "with options"}) for body in bodies)])
    assert [delivery.body for delivery in queue.receive(8)] == json.loads(json.dumps(bodies * 2))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"delay": -1}, "not a duration"),
        ({"at": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that it is naive is the point
        ({"at": datetime(9999, 12, 31, tzinfo=UTC)}, "out of range"),
        ({"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, "out of range"),
        ({"expires": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, "out of range"),
        ({"at": datetime(2026, 1, 1, tzinfo=UTC), "delay": 3}, "not both"),
        ({"priority": 1}, "has one priority"),
        ({"key": "k" * 513}, "512 bytes"),
        ({"key": ""}, "512 bytes"),
        ({"headers": {"a": 1}}, "text to text"),
        ({"headers": {"a": "b" * 9000}}, "8192"),
        ({"headers": {"schedule": "digest"}}, "only schedules set it"),
        ({"max_attempts": 0}, "1 to 10000"),
        ({"delay": "1h", "expires": datetime(2026, 1, 1, tzinfo=UTC)}, "before it is due"),
        ({"priority": True}, "has one priority"),
        ({"priority": "high"}, "has one priority"),
        ({"key": 5}, "not text"),
        ({"key": "half \ud800"}, "not valid Unicode"),
        ({"headers": {"a": "half \ud800"}}, "not valid Unicode"),
        ({"headers": {"half \ud800": "a"}}, "not valid Unicode"),
        ({"headers": ["a", "b"]}, "text to text"),
        ({"headers": "ab"}, "text to text"),
        ({"max_attempts": True}, "1 to 10000"),
        ({"lease": "soon"}, "not a duration"),
        ({"lease": "1ms"}, "from 100ms to 12h, or 0"),
        ({"lease": "36500d"}, "from 100ms to 12h, or 0"),
        ({"unique": ["reject"], "key": "k"}, "one of reject"),
        ({"delay": [5]}, "not a duration"),
        ({"delay": True}, "not a duration"),
        ({"expires": "soon"}, "not a duration"),
        ({"expires": 0}, "before it is due"),
    ],
)
def test_an_option_out_of_bounds_is_refused_and_nothing_is_sent(
    queue: MessageQueue, options: dict[str, object], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        queue.send("body", **options)  # type: ignore[arg-type]  # wrong types are among the examples
    assert queue.counts().total == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"lease": "61s"}, "61s' exceeds the queue's lease_cap of 1m:"),
        ({"max_attempts": 4}, "4 exceeds.*max_attempts_cap of 3"),
    ],
)
def test_a_message_may_not_ask_for_more_than_its_queue_allows(
    queue: MessageQueue, options: dict[str, object], told: str
) -> None:
    queue.configure(lease_cap="1m", max_attempts_cap=3)
    with pytest.raises(BadInput, match=told):
        queue.send("body", **options)  # type: ignore[arg-type]  # the options are of many types
    queue.send("body", lease="1m", max_attempts=3)
    queue.send("at most once", lease=0)
    queue.send("as the queue says")
    assert queue.counts().total == 3


def test_a_producer_follows_a_cap_without_another_request(place: Place, clock: TimeMachine) -> None:
    store = Recording(place.store(clock))
    with MessageQueue.builder().store(store).name("emails").clock(clock).build() as queue:
        queue.configure(lease_cap="1m", max_attempts_cap=3)
        queue.send("the first asks for the time")
        asked = []
        for options in ({}, {"lease": "1m", "max_attempts": 3}):
            store.requests.clear()
            queue.send("body", **options)  # type: ignore[arg-type]  # the options are of many types
            asked.append([type(request) for request in store.requests])
    assert asked[0] == asked[1]


def test_what_a_message_asks_for_is_capped_also_if_it_was_sent_before(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("old", lease="1h", max_attempts=9)
    queue.configure(lease_cap="1m", max_attempts_cap=2)
    assert queue.explain(sent.id).allowed == 2
    for _ in range(2):
        [held] = queue.receive()
        assert held.lease_until == clock.instant + timedelta(minutes=1)
        clock.advance("61s")
    assert len(queue.receive()) == 0
    [letter] = queue.dead_letters()
    assert "2 of 2 attempts" in letter.reason


def test_a_message_that_fails_as_often_as_its_queue_allows_is_a_dead_letter(queue: MessageQueue) -> None:
    queue.send("old", max_attempts=9)
    queue.configure(max_attempts_cap=1)
    with pytest.raises(ZeroDivisionError), queue.receive() as batch:
        assert len(str(batch[0].body)) / 0
    assert [letter.kind for letter in queue.dead_letters()] == ["failed"]


@pytest.mark.every_store
def test_all_that_is_sent_along_arrives(queue: MessageQueue, clock: TimeMachine) -> None:
    at = clock.instant + timedelta(minutes=1)
    queue.send("body", key="welcome:ada", at=at, headers={"trace": "7"}, expires="1h", lease="5m", max_attempts=2)
    clock.advance("1m")
    [held] = queue.receive()
    assert (held.key, held.headers, held.due, held.sent) == (
        "welcome:ada",
        {"trace": "7"},
        at,
        at - timedelta(minutes=1),
    )
    assert held.lease_until == at + timedelta(minutes=5)
    assert held.expires == at + timedelta(hours=1)
    assert held.attempts_allowed == 2


def test_what_expired_before_it_was_delivered_is_a_dead_letter(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("stale", expires="10s")
    clock.advance("10s")
    assert len(queue.receive()) == 0
    assert [letter.kind for letter in queue.dead_letters()] == ["expired"]


def test_the_greatest_priority_goes_first(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.priorities(3).build()
    for priority in (0, 2, 1, 2, 0):
        queue.send(priority, priority=priority)
    assert [delivery.body for delivery in queue.receive(3)] == [2, 2, 1]
    assert [delivery.body for delivery in queue.receive(3)] == [0, 0]


@pytest.mark.every_store
def test_many_are_sent_in_order_with_options_of_their_own(queue: MessageQueue, clock: TimeMachine) -> None:
    report = queue.send_many(["a", Message("b", delay="1m"), "c"])
    assert report.sent == 3
    assert [queue.get(str(id_)).body for id_ in report.ids] == ["a", "b", "c"]
    with queue.receive(5) as batch:
        assert [delivery.body for delivery in batch] == ["a", "c"]
    clock.advance("1m")
    assert [delivery.body for delivery in queue.receive(5)] == ["b"]


def test_any_number_is_sent_in_bounded_memory(place: Place, clock: TimeMachine) -> None:
    store = Recording(place.store(clock))
    queue = MessageQueue.builder().store(store).name("many").clock(clock).build()
    ahead = 0

    def bodies() -> Iterator[int]:
        nonlocal ahead
        for number in range(5_000):
            sent = sum(
                len(batch.puts) for request in store.requests if isinstance(request, Send) for batch in request.batches
            )
            ahead = max(ahead, number - sent)
            yield number

    queue.send_many(bodies())
    assert ahead <= 1_000
    assert queue.counts().waiting == 5_000


def test_keyed_messages_share_a_row_and_others_are_spread(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.concurrency_shards(4).build()
    keyed = {queue.send(number, key="ada").id.row for number in range(10)}
    spread = {queue.send(number).id.row for number in range(10)}
    assert len(keyed) == 1
    assert len(spread) == 4


@pytest.mark.every_store
def test_a_send_of_unknown_outcome_is_repeated_unchanged_and_arrives_once(place: Place, clock: TimeMachine) -> None:
    for applied in (True, False):
        store = Failing(place.store(clock), OutcomeUnknown("no answer"), at=1, of=(Send,), applied=applied)
        queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
        queue.send("once")
        assert [delivery.body for delivery in queue.receive(5)] == ["once"]


def test_a_send_that_the_store_refused_raises_and_sent_nothing(place: Place, clock: TimeMachine) -> None:
    store = Failing(place.store(clock), StoreUnavailable("away"), at=1, of=(Send,))
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    with pytest.raises(StoreUnavailable):
        queue.send("lost?")
    assert queue.counts().total == 0


class Unreadable(Faulty):
    """A store of which nothing can be read while it is `away`."""

    away = False

    def perform(self, request: Request) -> object:
        if self.away and isinstance(request, Read):
            message = "away on purpose"
            raise StoreUnavailable(message)
        return super().perform(request)


def test_a_send_does_not_fail_for_settings_that_cannot_be_read(place: Place, clock: TimeMachine) -> None:
    store = Unreadable(place.store(clock))
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    clock.advance("10s")
    store.away = True
    queue.send("one")
    store.away = False
    assert [found.body for found in queue.peek()] == ["one"]
