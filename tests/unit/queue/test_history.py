"""What a queue's history shows, and in which order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from astyqueue import Dispatcher, Message, MessageQueue
from astyqueue.errors import BadSetting, LeaseLost, NotFound
from astyqueue.model.event import Kind
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.steps import Commit, Request, Steps, perform, run
from astyqueue.queue.admin.receipts import settle
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.testing import TimeMachine
from astyqueue.text import iso
from astyqueue.triggers import Every
from astyqueue.units import SECOND

Builder = QueueBuilder[MessageQueue]


@pytest.fixture
def queue(builder: Builder) -> MessageQueue:
    return builder.options(history="all").build()


def kinds(queue: MessageQueue, message: object = None, **asked: object) -> list[str]:
    return [event.kind.value for event in queue.history(message, **asked)]  # type: ignore[arg-type]  # each test asks rightly


def fail(queue: MessageQueue, why: str = "no luck") -> None:
    with queue.receive() as [delivery]:
        delivery.fail(why)


@pytest.mark.every_store
def test_a_life_is_reported_in_order(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello", key="ada", headers={"task": "welcome", "tenant": "acme"})
    clock.advance("2s")
    fail(queue, "mailbox 17 is full")
    clock.advance("1m")
    with queue.receive():
        clock.advance("3s")
    queue.close()
    queue = _again(queue)
    life = list(queue.history(sent.id))
    assert [event.kind for event in life] == [
        Kind.SENT,
        Kind.CLAIMED,
        Kind.FAILED,
        Kind.RETRIED,
        Kind.CLAIMED,
        Kind.DONE,
    ]
    assert {(event.key, event.task, event.tenant, event.message) for event in life} == {
        ("ada", "welcome", "acme", sent.id)
    }
    done, failed = life[-1], life[2]
    assert (done.attempt, done.ran, done.took, failed.attempt, failed.waited) == (
        2,
        3 * SECOND,
        65 * SECOND,
        1,
        2 * SECOND,
    )
    assert (failed.reason, failed.failure) == ("mailbox 17 is full", "mailbox <number> is full")
    assert life[3].until is not None
    assert life[3].until > failed.at


def _again(queue: MessageQueue) -> MessageQueue:
    return MessageQueue.builder().store(queue.store).name(queue.name).clock(queue.clock).build()


@pytest.mark.parametrize(
    ("history", "told"),
    [
        ("none", []),
        ("failures", ["failed", "retried"]),
        ("all", ["sent", "claimed", "failed", "retried", "claimed", "done"]),
    ],
)
@pytest.mark.every_store
def test_the_setting_says_what_is_kept(builder: Builder, clock: TimeMachine, history: str, told: list[str]) -> None:
    queue = builder.options(history=history).build()
    sent = queue.send("hello")
    fail(queue)
    clock.advance("1m")
    queue.receive()[0].ack()
    assert kinds(queue, sent.id) == told


def test_a_message_that_ended_before_all_was_kept_is_explained_as_such(builder: Builder) -> None:
    queue = builder.options(history="failures").build()
    sent = queue.send("hello")
    queue.receive()[0].ack()
    told = "it was acked or deleted, or never sent; the"
    assert queue.explain(sent.id).why == f"{told} queue does not record which (history=failures)"
    queue.configure(history="all")
    assert queue.explain(sent.id).why == f"{told} history, which keeps all now, has no event of it"


def test_the_setting_is_followed_by_those_who_only_send_too(queue: MessageQueue, clock: TimeMachine) -> None:
    another = _again(queue)
    queue.configure(history="none")
    clock.advance("11s")
    sent = another.send("hello")
    another.receive()[0].ack()
    assert kinds(another, sent.id) == []
    with pytest.raises(BadSetting, match="history is 'some'"):
        queue.configure(history="some")


def test_failures_are_what_is_kept_unless_said_otherwise(builder: Builder) -> None:
    assert builder.build().settings.behaviour.history == "failures"


def test_a_dead_letter_has_its_traceback_in_the_history(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.configure(max_attempts=1)
    sent = queue.send("hello")

    called = threading.Event()

    def handler(_: object) -> None:
        called.set()
        text = "no such mailbox"
        raise LookupError(text)

    dispatcher = Dispatcher.builder().queue(queue).handler(handler).build()
    dispatcher.start()
    assert called.wait(60)
    dispatcher.drain("10s")
    failed, dead = list(queue.history(sent.id, kinds=["failed", "dead"]))
    assert failed.trace.startswith("Traceback (most recent call last)")
    assert "raise LookupError(text)" in failed.trace
    assert (dead.why, dead.reason, dead.attempt) == ("failed", "LookupError: no such mailbox", 1)
    clock.advance("1s")
    queue.redrive(sent.id)
    assert kinds(queue, sent.id)[-1] == "redriven"


def test_of_failures_of_one_cause_one_traceback_a_minute_is_kept(queue: MessageQueue, clock: TimeMachine) -> None:
    def fail_each(count: int) -> list[str]:
        """The tracebacks of as many failures, each of other text."""
        ids = [queue.send(number).id for number in range(count)]
        for number in range(count):
            with contextlib.suppress(LookupError), queue.receive():
                raise LookupError("no such mailbox " + "x" * number)
        return [event.trace for id_ in ids for event in queue.history(id_, kinds=["failed"])]

    queue.configure(max_attempts=1)
    first, *others = fail_each(50)
    assert first.startswith("Traceback (most recent call last)")
    failed = next(event for event in queue.history(kinds=["failed"]) if event.trace == first)
    where = f"as that of attempt 1 of {failed.message}, which failed at the same place at {iso(failed.when)}: "
    assert set(others) == {f"{where}of such failures one traceback a minute is kept"}
    clock.advance("1m")
    assert [trace.startswith("Traceback") for trace in fail_each(2)] == [True, False]


def test_failures_of_other_causes_have_their_own_tracebacks_up_to_a_hundred_a_minute(queue: MessageQueue) -> None:
    queue.configure(max_attempts=1)
    queue.send_many(range(110))
    for number in range(110):
        with contextlib.suppress(LookupError), queue.receive():
            raise type(f"Cause{number}", (LookupError,), {})(number)
    traces = [event.trace for event in queue.history(kinds=["failed"])]
    assert sum(trace.startswith("Traceback") for trace in traces) == 100
    assert {trace for trace in traces if not trace.startswith("Traceback")} == {
        "not kept: there were 100 failures of other causes within the minute before"
    }


def test_a_failure_that_has_no_way_to_be_written_in_utf8_stops_nothing(builder: Builder) -> None:
    queue = builder.build()
    queue.send_many(["hello", "hello"])
    with queue.receive(2) as [failing, fine]:
        failing.fail("no such file: \udcff.txt")
        fine.ack()
    assert [found.id.id for found in queue.peek(10, "hidden")] == [failing.id]
    assert [event.reason for event in queue.history(kinds=["failed"])] == ["no such file: \\udcff.txt"]


def test_a_long_failure_is_cut_before_it_waits_in_memory(queue: MessageQueue) -> None:
    queue.send("hello")
    [delivery] = queue.receive()
    long = "x" * 1_000_000
    delivery.error = LookupError(long)
    failed, retried = queue.core.claimer.history.of_outcome(delivery, queue.core.retry_policy.failed(delivery, long))
    assert max(map(len, (failed.trace, failed.reason, retried.reason))) == len(failed.trace) == 16 * 1024


def test_a_rejected_message_is_dead_and_did_not_fail(queue: MessageQueue) -> None:
    sent = queue.send("hello")
    queue.receive()[0].reject("not ours")
    assert [(event.kind, event.why, event.reason) for event in queue.history(sent.id)][-1] == (
        Kind.DEAD,
        "rejected",
        "not ours",
    )


def test_a_release_tells_until_when_and_costs_no_attempt(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello")
    queue.receive()[0].release("1m")
    [released] = queue.history(sent.id, kinds=["released"])
    assert (released.why, released.until) == ("snoozed", clock.now() + 60 * SECOND)


def test_a_lease_that_runs_out_is_a_failed_attempt_of_whoever_held_it(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    sent = queue.send("hello")
    queue.receive()
    clock.advance("31s")
    another.receive()
    [failed] = queue.history(sent.id, kinds=["failed"])
    assert (failed.why, failed.attempt, failed.worker) == ("lapsed", 1, queue.core.process.name)


def test_what_a_claim_buries_is_reported(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello", key="k", expires="1s")
    clock.advance("2s")
    assert not queue.receive()
    [dead] = queue.history(sent.id, kinds=["dead"])
    assert (dead.why, dead.key) == ("expired", "k")


def test_deleting_and_replacing_are_reported(queue: MessageQueue) -> None:
    first = queue.send("hello", key="k", unique="reject")
    second = queue.send("hello", key="k", unique="replace")
    queue.delete(second.id)
    told = {(event.kind, event.message, event.why) for event in queue.history(key="k", kinds=["cancelled"])}
    assert told == {(Kind.CANCELLED, first.id, "replaced"), (Kind.CANCELLED, second.id, "deleted")}


def test_a_message_that_is_delivered_at_most_once_is_done_with_that(queue: MessageQueue, clock: TimeMachine) -> None:
    sent = queue.send("hello", lease=0)
    queue.receive()
    clock.advance("2s")
    queue.receive()
    assert [(event.kind, event.why) for event in queue.history(sent.id)][1:] == [
        (Kind.CLAIMED, "at most once"),
        (Kind.DONE, "at most once"),
    ]


def test_settling_by_receipt_is_reported(queue: MessageQueue, another: MessageQueue) -> None:
    sent = queue.send("hello")
    [delivery] = queue.receive()
    another.ack(delivery.receipt)
    assert kinds(queue, sent.id)[-1] == "done"


def test_a_settle_that_came_too_late_is_told_to_be_lost(
    queue: MessageQueue, another: MessageQueue, clock: TimeMachine
) -> None:
    sent = queue.send("hello")
    [delivery] = queue.receive()
    clock.advance("31s")
    [again] = another.receive()
    clock.advance("1s")
    with pytest.raises(LeaseLost):
        delivery.ack()
    again.ack()
    clock.advance("2s")
    queue.receive()
    assert [event.lost for event in queue.history(sent.id, kinds=["done"])] == [True, False]


def test_a_settle_by_receipt_that_came_too_late_is_told_to_be_lost_by_whoever_just_did_that(
    queue: MessageQueue, another: MessageQueue
) -> None:
    sent = queue.send("hello")
    [delivery] = queue.receive()
    receipt = str(delivery.receipt)
    settling = settle(another.core, receipt, lambda _: ACK)
    request = next(settling)
    while not isinstance(request, Commit):
        request = settling.send(perform(request, another.store))
    delivery.reject("not ours")  # after the other has looked, and reported it
    with pytest.raises(LeaseLost):
        run(_rest_of(settling, request), another.store)
    assert [event.lost for event in queue.history(sent.id, kinds=["done"])] == [True]


def test_what_is_taken_back_while_it_is_being_settled_is_reported(builder: Builder, clock: TimeMachine) -> None:
    queue = builder.options(history="all", lease="3h").build()
    Schedules(queue).add("digest", Every("1h", delay="1h"), "hello")
    sent = queue.send("hello", key="k", unique="reject")
    [delivery] = queue.receive()
    clock.advance("1h")
    claimer = queue.core.claimer
    outcomes, work, rows = claimer._outcomes, claimer._work, claimer._scheduler.rows  # noqa: SLF001 - the order is the point
    ticket = outcomes.demand([(delivery, ACK)])
    visiting = work.claim_from(rows[sent.id.row], {})
    request = next(visiting)  # of firing the schedule, which comes first
    outcomes.withdraw(ticket)
    run(_rest_of(visiting, request), queue.store)
    with pytest.raises(NotFound):
        queue.get(sent.id)
    assert kinds(queue, sent.id)[-1] == "done"


def _rest_of(steps: Steps[None], request: Request) -> Steps[None]:
    while True:
        try:
            request = steps.send((yield request))
        except StopIteration:
            return


def test_occurrences_that_were_fired_or_skipped_are_told_under_the_name_of_their_schedule(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1h", delay="1h"), "hello", overlap="skip")
    clock.advance("1h")
    queue.receive()
    clock.advance("1h")
    queue.receive()
    clock.advance("2s")
    queue.receive()
    told = list(queue.history(key="digest"))
    assert [event.kind for event in told] == [Kind.FIRED, Kind.SKIPPED]
    assert told[0].message is not None
    assert (told[0].slot, told[1].reason) == (told[0].due, "the run before has not ended")


@pytest.fixture
def sent_events(queue: MessageQueue) -> Callable[[], list[tuple[object, ...]]]:
    """The events that messages were sent: which, when, due when, with which key, by which schedule."""
    return lambda: [
        (event.message, event.at, event.due, event.key, event.schedule) for event in queue.history(kinds=["sent"])
    ]


def test_every_message_of_a_schedule_has_its_sending_told(
    queue: MessageQueue, clock: TimeMachine, sent_events: Callable[[], list[tuple[object, ...]]]
) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1h", delay="1h"), Message("hello", key="ada", headers={"task": "greet"}))
    clock.advance("1h")
    occurrence = clock.now()
    [fired] = queue.receive(5)
    clock.advance("1m")
    by_hand = schedules.run("digest").message
    asked_for = clock.now()
    clock.advance("1m")
    assert schedules.backfill("digest", clock.instant - timedelta(hours=3), clock.instant) == 1
    [backfilled] = {found.id for found in queue.find("ada")} - {fired.message_id, by_hand}
    queue.receive(5)
    told = sent_events()
    assert told[0] == (fired.message_id, occurrence, occurrence, "ada", "digest")
    assert told[1] == (by_hand, asked_for, asked_for, "ada", "digest")
    assert told[2:] == [(backfilled, clock.now(), occurrence, "ada", "digest")]
    assert {event.task for event in queue.history(kinds=["sent"])} == {"greet"}
    assert [event.message for event in queue.history(kinds=["fired"])] == [fired.message_id]


def test_the_first_run_of_a_message_with_a_trigger_has_its_sending_told(
    queue: MessageQueue, clock: TimeMachine, sent_events: Callable[[], list[tuple[object, ...]]]
) -> None:
    first = queue.send("hello", key="ada", trigger=Every("1h", count=2)).id
    began = clock.now()
    queue.receive()[0].ack()
    clock.advance("1h")
    second = queue.receive()[0].message_id
    clock.advance("1s")
    queue.receive()
    assert sent_events() == [
        (first, began, began, "ada", "ada"),
        (second, clock.now() - SECOND, clock.now() - SECOND, "ada", "ada"),
    ]
    assert [event.message for event in queue.history(kinds=["fired"])] == [first, second]


def test_occurrences_that_came_while_a_schedule_was_paused_are_reported_as_skipped(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1h", delay="1h"), "hello")
    schedules.pause("digest")
    clock.advance("150m")
    schedules.resume("digest")
    schedules.resume("digest")
    [skipped] = queue.history(key="digest", kinds=["skipped"])
    assert skipped.reason == "2 occurrences: it was paused"


@pytest.mark.parametrize("history", ["none", "failures"])
def test_firings_that_go_well_cost_nothing_unless_all_is_kept(
    builder: QueueBuilder[MessageQueue], history: str, clock: TimeMachine
) -> None:
    with builder.name(history).options(history=history).build() as queue:
        queue.send("hello", trigger=Every("1m"))
        queue.receive(5)[0].ack()
        clock.advance("1m")
        queue.receive(5)[0].ack()
        assert queue.stats.fired == 1
    with builder.build() as again:
        assert list(again.history()) == []


def test_each_occurrence_that_was_skipped_at_one_moment_is_reported(queue: MessageQueue, clock: TimeMachine) -> None:
    Schedules(queue).add("digest", Every("1h", delay="1h"), "hello", overlap="skip", misfire="all")
    clock.advance("3h")
    queue.receive()
    clock.advance("2s")
    queue.receive()
    fired, *skipped = [event.slot for event in queue.history(key="digest", kinds=["fired", "skipped"])]
    assert fired is not None
    assert skipped == [fired + hours * 3600 * SECOND for hours in (1, 2)]


def test_a_length_of_time_of_zero_is_shown(queue: MessageQueue, another: MessageQueue) -> None:
    queue.send("hello")
    with queue.receive():
        pass
    queue.close()
    [*_, done] = [event.as_json() for event in another.history()]
    assert (done["waited"], done["ran"], done["took"]) == (0, 0, 0)
