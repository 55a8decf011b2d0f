"""What no method of a queue can do as it is asked: BadInput says what is wrong with it, and nothing is changed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from astyqueue import Message, MessageQueue, connect
from astyqueue.errors import BadInput
from astyqueue.ids import Nonce
from astyqueue.model.envelope import MessageId, Receipt
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.triggers import Every

HALF = "half \ud800"
NEVER = datetime(9999, 12, 31, tzinfo=UTC)


def schedules(queue: MessageQueue) -> Any:  # noqa: ANN401 - as below
    return Schedules(queue)


async def yields_nothing() -> AsyncGenerator[object, None]:
    for item in list[object]():
        yield item


#: Wrong types are the point of most of them, so what they are called on is `Any`.
ASKED: dict[str, Callable[[Any], object]] = {
    "send trigger text": lambda queue: queue.send(1, trigger="1h"),
    "send trigger beyond": lambda queue: queue.send(1, trigger=Every("1h", start=NEVER)),
    "send trigger key": lambda queue: queue.send(1, trigger=Every("1h"), key=HALF),
    "send many": lambda queue: queue.send_many([1], delay="soon"),
    "send many of nothing iterable": lambda queue: queue.send_many(5),
    "send many of text": lambda queue: queue.send_many("abc"),
    "send many of bytes": lambda queue: queue.send_many(b"abc"),
    "send many of a mapping": lambda queue: queue.send_many({"a": 1}),
    "send many of a message": lambda queue: queue.send_many(Message("abc")),
    "send many of an async generator": lambda queue: queue.send_many(yields_nothing()),
    "send many headers": lambda queue: queue.send_many([1], headers=[("a", "b")]),
    "send many surrogate": lambda queue: queue.send_many([1, HALF]),
    "send many message": lambda queue: queue.send_many([Message(1, key=HALF)]),
    "receive text": lambda queue: queue.receive("1"),
    "receive true": lambda queue: queue.receive(True),  # noqa: FBT003 - the mistake this is about
    "receive half": lambda queue: queue.receive(1.5),
    "receive wait": lambda queue: queue.receive(1, wait="soon"),
    "deliveries": lambda queue: next(queue.deliveries(ahead="all")),
    "peek": lambda queue: queue.peek("10"),
    "peek below": lambda queue: queue.peek(-1),
    "peek include": lambda queue: queue.peek(include=["due"]),
    "get": lambda queue: queue.get(5),
    "get text": lambda queue: queue.get(HALF),
    "get receipt": lambda queue: queue.get(Receipt(MessageId("emails:0:0", 0, b""), 1, Nonce(b""))),
    "explain": lambda queue: queue.explain(None),
    "find": lambda queue: queue.find(5),
    "find surrogate": lambda queue: queue.find(HALF),
    "delete": lambda queue: queue.delete(5),
    "delete key": lambda queue: queue.delete(key=5),
    "delete surrogate": lambda queue: queue.delete(key=HALF),
    "stop": lambda queue: queue.stop(5),
    "stop surrogate": lambda queue: queue.stop(HALF),
    "history": lambda queue: list(queue.history(5)),
    "history key": lambda queue: list(queue.history(key=5)),
    "history surrogate": lambda queue: list(queue.history(key=HALF)),
    "history since": lambda queue: list(queue.history(since=NEVER)),
    "history until": lambda queue: list(queue.history(until=datetime.min.replace(tzinfo=UTC))),
    "history kinds": lambda queue: list(queue.history(kinds=[5])),
    "history limit": lambda queue: list(queue.history(limit=-1)),
    "dead letters": lambda queue: queue.dead_letters("all"),
    "dead letters since": lambda queue: queue.dead_letters(since="1h"),
    "dead letter": lambda queue: queue.dead_letter(5),
    "redrive": lambda queue: queue.redrive(5),
    "redrive rate": lambda queue: queue.redrive(rate="fast"),
    "ack": lambda queue: queue.ack(5),
    "ack text": lambda queue: queue.ack("emails:0:0/0/1"),
    "release delay": lambda queue: queue.release("receipt", delay="soon"),
    "release": lambda queue: queue.release(("emails:0:0", 0)),
    "extend": lambda queue: queue.extend("receipt", by=None),
    "reject": lambda queue: queue.reject(5),
    "configure lease": lambda queue: queue.configure(lease=[5]),
    "configure attempts": lambda queue: queue.configure(max_attempts="5"),
    "configure paused": lambda queue: queue.configure(paused="yes"),
    "configure history": lambda queue: queue.configure(history=HALF),
    "configure unknown": lambda queue: queue.configure(**{HALF: 5}),
    "schedules trigger": lambda queue: schedules(queue).add("digest", "1h"),
    "schedules beyond": lambda queue: schedules(queue).add("digest", Every("1h", end=NEVER)),
    "schedules name": lambda queue: schedules(queue).add(5, Every("1h")),
    "schedules surrogate": lambda queue: schedules(queue).add(HALF, Every("1h")),
    "schedules body": lambda queue: schedules(queue).add("digest", Every("1h"), HALF),
    "schedules misfire": lambda queue: schedules(queue).add("digest", Every("1h"), misfire=5),
    "schedules overlap": lambda queue: schedules(queue).add("digest", Every("1h"), overlap=["skip"]),
    "schedules lease": lambda queue: schedules(queue).add("digest", Every("1h"), Message(1, lease="1ms")),
    "schedules get": lambda queue: schedules(queue).get(5),
    "schedules next": lambda queue: schedules(queue).next("digest", "10"),
    "schedules backfill": lambda queue: schedules(queue).backfill("digest", NEVER, "now"),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_cannot_be_done_as_asked_is_bad_input_and_changes_nothing(queue: MessageQueue, name: str) -> None:
    if name in ("schedules next", "schedules backfill"):
        schedules(queue).add("digest", Every("1h", delay="1h"))
    with pytest.raises(BadInput):
        ASKED[name](queue)
    assert queue.counts().total == 0


def test_the_id_in_bytes_is_refused_with_the_one_to_give(queue: MessageQueue) -> None:
    sent = queue.send("hello").id
    [delivery] = queue.receive()
    assert delivery.message_id == sent
    with pytest.raises(BadInput, match=r"of type bytes is not a message id: .* `delivery.message_id`"):
        queue.get(delivery.id)  # type: ignore[arg-type]  # that is the mistake
    assert queue.get(delivery.message_id).body == "hello"


@pytest.mark.parametrize("command", ["bogus", "", 5, None])
def test_an_unknown_command_to_a_worker_is_bad_input(command: Any) -> None:  # noqa: ANN401 - wrong types are the point
    with connect("memory://") as connection, pytest.raises(BadInput, match="drain, quiet, resume, stacks"):
        connection.command("a worker", command)


@pytest.mark.parametrize("name", [HALF, 5, None, "", "a:b", "x" * 101])
def test_what_no_queue_may_be_called_is_bad_input(builder: QueueBuilder[MessageQueue], name: Any) -> None:  # noqa: ANN401 - wrong types are the point
    with pytest.raises(BadInput):
        builder.name(name).build()


def test_one_body_in_the_place_of_several_is_refused_by_its_type_and_length_without_being_quoted(
    queue: MessageQueue,
) -> None:
    with pytest.raises(BadInput, match=r"one str of length 6 was given: give a list .* or send one by send") as refused:
        queue.send_many("secret")
    assert "secret" not in str(refused.value)
    with pytest.raises(BadInput, match="one Message was given: give a list") as refused:
        queue.send_many(Message("secret"))  # type: ignore[arg-type]  # the mistake this is about
    assert "secret" not in str(refused.value)


SETTLED: dict[str, Callable[[Any], object]] = {
    "reject": lambda delivery: delivery.reject(5),
    "reject none": lambda delivery: delivery.reject(None),
    "fail": lambda delivery: delivery.fail(ValueError("no text")),
    "fail delay": lambda delivery: delivery.fail("failed", "soon"),
    "release": lambda delivery: delivery.release("soon"),
    "extend": lambda delivery: delivery.extend(None),
}


@pytest.mark.parametrize("name", SETTLED)
def test_an_outcome_that_is_bad_input_leaves_the_delivery_leased(queue: MessageQueue, name: str) -> None:
    queue.send("body")
    [delivery] = queue.receive()
    with pytest.raises(BadInput):
        SETTLED[name](delivery)
    with pytest.raises(BadInput):
        queue.reject(delivery.receipt, 5)  # type: ignore[arg-type]  # the mistake this is about
    assert not delivery.settled
    delivery.ack()
    assert queue.counts().total == 0


def test_a_reason_may_hold_what_no_text_can_store(queue: MessageQueue) -> None:
    queue.send_many(["one", "two"])
    one, two = queue.receive(2)
    one.reject(HALF)
    queue.reject(two.receipt, HALF)
    assert [letter.reason for letter in queue.dead_letters()] == ["half \\ud800"] * 2
