"""Unique keys as their users meet them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from astyqueue import Hook, KeyTaken, Message, MessageQueue
from astyqueue.errors import BadInput, LeaseLost, OutcomeUnknown
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.layout.unique_key import key_name
from astyqueue.protocol.steps import Commit
from astyqueue.queue.builder import QueueBuilder
from astyqueue.store import Batch, Put, Store
from astyqueue.testing import Failing, TimeMachine
from tests.support.places import Place

KEY = "welcome:ada"


def test_a_second_message_with_the_key_is_refused_and_the_error_says_which_one_has_it(queue: MessageQueue) -> None:
    first = queue.send("first", key=KEY, unique="reject")
    assert first.new
    with pytest.raises(KeyTaken, match=r"welcome:ada.*is taken by message emails:home:0/0/") as refused:
        queue.send("second", key=KEY, unique="reject")
    assert (refused.value.key, refused.value.id, refused.value.standing) == (KEY, first.id, "waiting")
    assert [delivery.body for delivery in queue.receive(5)] == ["first"]


@pytest.mark.every_store
def test_with_keep_the_earlier_message_will_do(queue: MessageQueue) -> None:
    first = queue.send("first", key=KEY, unique="keep")
    second = queue.send("second", key=KEY, unique="keep")
    assert (second.id, second.new) == (first.id, False)
    assert queue.stats.sent == 1
    assert queue.get(first.id).body == "first"


@pytest.mark.parametrize("policy", ["replace", "debounce"])
@pytest.mark.every_store
def test_a_message_that_nobody_works_on_is_replaced(queue: MessageQueue, policy: str) -> None:
    first = queue.send("first", key=KEY, unique=policy)
    second = queue.send("second", key=KEY, unique=policy)
    assert second.new
    assert second.id != first.id
    assert [delivery.body for delivery in queue.receive(5)] == ["second"]


@pytest.mark.every_store
def test_what_replaces_is_due_when_the_other_was_and_what_debounces_as_it_says(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    for policy, waits in (("replace", "1s"), ("debounce", "9s")):
        queue.send("early", key=policy, unique=policy, delay="10s")
        clock.advance("9s")
        sent = queue.send("late", key=policy, unique=policy, delay="10s")
        clock.advance(waits)
        due = clock.instant if policy == "replace" else clock.instant + timedelta(seconds=1)
        assert queue.get(sent.id).due == due
        assert len(queue.receive(5)) == (policy == "replace")
        clock.advance("1s")
    [late] = queue.receive(5)
    assert late.body == "late"


def test_what_replaces_a_message_that_is_due_already_is_due_now_however_often_it_is_sent(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send(0, key=KEY, unique="replace", delay="1m")
    for number in range(1, 5):
        clock.advance("90s")
        sent = queue.send(number, key=KEY, unique="replace", delay="1m")
        assert queue.get(sent.id).due == clock.instant
    assert [delivery.body for delivery in queue.receive(5)] == [4]


@pytest.mark.parametrize(("expires", "received"), [("10m", 1), (timedelta(minutes=30), 0)], ids=["duration", "moment"])
def test_what_replaces_expires_a_duration_after_the_due_time_it_gets_or_at_its_moment(
    queue: MessageQueue, clock: TimeMachine, expires: str | timedelta, received: int
) -> None:
    queue.send("early", key=KEY, unique="replace", delay="1h")
    moment = clock.instant + expires if isinstance(expires, timedelta) else expires
    queue.send("late", key=KEY, unique="replace", expires=moment)
    clock.advance("1h")
    assert len(queue.receive()) == received
    assert queue.counts().dead == 1 - received


@pytest.mark.parametrize("policy", ["reject", "replace", "debounce"])
def test_a_leased_message_is_left_alone(queue: MessageQueue, policy: str) -> None:
    queue.send("first", key=KEY, unique="reject")
    [held] = queue.receive()
    with pytest.raises(KeyTaken, match=r"in flight.*keep.* or unique=\"supersede\"") as refused:
        queue.send("second", key=KEY, unique=policy)
    assert "replace" not in str(refused.value)
    assert refused.value.standing == "in_flight"
    held.ack()
    assert queue.send("third", key=KEY, unique=policy).new


def test_a_message_whose_lease_ran_out_is_replaced_and_its_receipt_is_lost(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("first", key=KEY, unique="replace")
    [held] = queue.receive()
    clock.advance("30s")
    queue.send("second", key=KEY, unique="replace")
    with pytest.raises(LeaseLost):
        held.ack()
    assert [delivery.body for delivery in queue.receive(5)] == ["second"]


Ends = Callable[[MessageQueue, MessageId], object]
ENDS: dict[str, Ends] = {
    "ack": lambda queue, _: queue.receive()[0].ack(),
    "ack by receipt": lambda queue, _: queue.ack(str(queue.receive()[0].receipt)),
    "reject": lambda queue, _: queue.receive()[0].reject("of no use"),
    "reject by receipt": lambda queue, _: queue.reject(str(queue.receive()[0].receipt)),
    "the last attempt": lambda queue, _: queue.receive()[0].fail(),
    "delete": lambda queue, id_: queue.delete(id_),
    "delete in hand": lambda queue, id_: (queue.receive(), queue.delete(id_)),
    "clear": lambda queue, _: queue.clear(),
    "clear in hand": lambda queue, _: (queue.receive(), queue.clear()),
    "purge": lambda queue, _: (queue.reject(str(queue.receive()[0].receipt)), queue.purge()),  # type: ignore[func-returns-value]  # one after the other
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.every_store
def test_a_key_is_free_in_the_moment_its_message_ends(
    queue: MessageQueue, another: MessageQueue, end: Ends, clock: TimeMachine
) -> None:
    sent = queue.send("first", key=KEY, unique="reject", max_attempts=1)
    end(queue, sent.id)
    clock.advance(1)
    assert another.send("second", key=KEY, unique="reject").new
    assert [delivery.body for delivery in queue.receive(5)] == ["second"]


def test_a_key_is_free_once_its_message_was_delivered_at_most_once_or_expired_or_used_up_its_attempts(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    queue.send("once", key="once", unique="reject", lease=0)
    queue.send("stale", key="stale", unique="reject", expires="10s")
    assert [delivery.body for delivery in queue.receive(1)] == ["once"]
    queue.send("deadly", key="deadly", unique="reject", max_attempts=1)
    clock.advance("10s")
    assert [delivery.body for delivery in queue.receive(5)] == ["deadly"]
    clock.advance("30s")
    assert len(queue.receive(5)) == 0
    assert {letter.kind for letter in queue.dead_letters()} == {"expired", "attempts"}
    report = queue.send_many(Message(key, key=key, unique="reject") for key in ("once", "stale", "deadly"))
    assert (report.sent, report.taken) == (3, {})


def test_a_failed_attempt_and_a_release_keep_the_key(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("first", key=KEY, unique="reject")
    queue.receive()[0].fail(delay="5s")
    with pytest.raises(KeyTaken) as backing_off:
        queue.send("second", key=KEY, unique="reject")
    clock.advance("5s")
    queue.receive()[0].release("5s")
    with pytest.raises(KeyTaken) as snoozed:
        queue.send("second", key=KEY, unique="reject")
    assert [error.value.standing for error in (backing_off, snoozed)] == ["backing_off", "snoozed"]
    assert snoozed.value.id == sent.id


@pytest.mark.every_store
def test_a_dead_letter_takes_its_key_again_if_it_is_free_and_is_left_if_not(queue: MessageQueue) -> None:
    first = queue.send("first", key=KEY, unique="reject")
    queue.receive()[0].reject()
    second = queue.send("second", key=KEY, unique="reject")
    assert (queue.redrive(dry_run=True).left, queue.redrive().left, queue.redrive(first.id, force=True).left) == (
        1,
        1,
        1,
    )
    queue.delete(second.id)
    assert queue.redrive().redriven == 1
    with pytest.raises(KeyTaken) as refused:
        queue.send("third", key=KEY, unique="reject")
    assert refused.value.id == first.id
    assert [delivery.body for delivery in queue.receive(5)] == ["first"]


def test_of_two_dead_letters_with_one_key_one_is_put_back(queue: MessageQueue) -> None:
    for body in ("first", "second"):
        queue.send(body, key=KEY, unique="reject")
        queue.receive()[0].reject()
    assert (queue.redrive().redriven, queue.counts().dead) == (1, 1)


def test_a_key_that_cannot_be_read_leaves_its_dead_letter_and_no_other(queue: MessageQueue, store: Store) -> None:
    letters = [queue.send(key, key=key, unique="reject").id for key in ("damaged", "sound")]
    with queue.receive(2) as batch:
        for delivery in batch:
            delivery.reject()
    store.commit(Batch(letters[0].row, (Put(key_name("damaged"), b"\x63newer"),)), ())
    report = queue.redrive()
    assert (report.redriven, report.left) == (1, 1)
    assert [delivery.body for delivery in queue.receive(5)] == ["sound"]


def test_many_are_sent_and_the_report_says_which_keys_were_taken(queue: MessageQueue) -> None:
    there = queue.send("there", key="a", unique="reject").id
    policies = [
        ("a", "reject"),
        ("a", "keep"),
        ("b", "reject"),
        ("b", "reject"),
        ("a", "replace"),
        ("c", None),
        (None, None),
    ]
    report = queue.send_many(Message(number, key=key, unique=policy) for number, (key, policy) in enumerate(policies))
    assert report.taken == {0: there, 3: report.ids[2]}
    assert report.kept == {1}
    assert report.ids[1] == there
    assert [place for place, id_ in enumerate(report.ids) if id_ is None] == [0, 3]
    assert (report.sent, queue.stats.sent) == (4, 5)
    assert sorted(str(delivery.body) for _ in range(2) for delivery in queue.receive(10)) == ["2", "4", "5", "6"]


@pytest.mark.every_store
def test_a_thousand_with_keys_are_sent_in_commits_of_a_hundred(queue: MessageQueue) -> None:
    report = queue.send_many(Message(number, key=f"key-{number}", unique="reject") for number in range(1_050))
    assert report.sent == 1_050
    again = queue.send_many(Message(number, key=f"key-{number}", unique="reject") for number in range(0, 1_050, 7))
    assert (again.sent, len(again.taken)) == (0, 150)
    assert queue.clear() == 1_050
    assert queue.send("free", key="key-7", unique="reject").new


def test_unique_keys_live_in_home_rows_and_plain_ones_where_they_did(builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.concurrency_shards(4).build()
    assert ":home:" in queue.send("one", key=KEY, unique="keep").id.row
    assert queue.send("two", key=KEY).id.row.split(":")[1] == "0"
    assert sorted(str(delivery.body) for _ in range(8) for delivery in queue.receive(5)) == ["one", "two"]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"unique": "sometimes", "key": "a"}, "one of reject, keep"), ({"unique": "keep"}, "without a key")],
)
def test_a_wrong_policy_is_refused_and_nothing_is_sent(queue: MessageQueue, options: dict[str, str], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        queue.send("body", **options)  # type: ignore[arg-type]  # the names are those of its options
    assert queue.counts().total == 0


@pytest.mark.parametrize("applied", [True, False])
def test_a_send_of_unknown_outcome_is_read_back_and_there_once(
    place: Place, clock: TimeMachine, *, applied: bool
) -> None:
    store = Failing(place.store(clock), OutcomeUnknown("no answer"), of=(Commit,), at=2, applied=applied)
    queue = MessageQueue.builder().store(store).name("emails").clock(clock).build()
    assert queue.send("once", key=KEY, unique="reject").new
    assert [delivery.body for delivery in queue.receive(5)] == ["once"]


def test_hooks_hear_of_what_was_sent_and_not_of_what_was_kept(builder: QueueBuilder[MessageQueue]) -> None:
    heard: list[object] = []

    class Listening(Hook):
        def after_send(self, message: Message, sent: MessageId) -> None:
            heard.append((message.body, str(sent)))

    queue = builder.hook(Listening()).build()
    first = queue.send("first", key=KEY, unique="keep")
    queue.send("second", key=KEY, unique="keep")
    queue.send_many([Message("third", key=KEY, unique="keep"), Message("fourth", key=KEY, unique="reject")])
    assert heard == [("first", str(first.id))]
