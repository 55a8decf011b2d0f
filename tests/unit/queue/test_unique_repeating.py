"""A repeating message with a unique key: its schedule has the key between its runs, and the last run after it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from astyqueue import Delivery, KeyTaken, Message, MessageQueue
from astyqueue.errors import BadInput, LeaseLost, OutcomeUnknown, ScheduleTaken
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.schedule_column import trigger_name
from astyqueue.protocol.layout.unique_key import key_name
from astyqueue.protocol.steps import Commit, Read, Request
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.store import Batch, Named, Put, Slice, Store
from astyqueue.testing import Failing, Faulty, Recording, TimeMachine
from astyqueue.triggers import Every, Once, Trigger

KEY = "nightly:ada"
HOURLY = Every("1h")


def takes(queue: MessageQueue, unique: str, trigger: Trigger | None = None, body: str = "another") -> MessageId:
    """Sends one, once or again and again."""
    return queue.send(body, key=KEY, unique=unique, trigger=trigger).id


def everything(store: Store) -> set[int]:
    """The types of columns in the home row, but for its header."""
    return {kind for kind in range(1, 6) for found in store.read((Slice("emails:home:0", kind),)) if found}


@pytest.mark.parametrize("trigger", [None, HOURLY])
def test_a_recurring_task_is_not_added_twice(queue: MessageQueue, clock: TimeMachine, trigger: Trigger | None) -> None:
    first = queue.send("work", key=KEY, unique="reject", trigger=HOURLY)
    assert first.new
    for standing in ("waiting", "delayed", "delayed"):  # from the second on no process has fired it yet
        with pytest.raises(KeyTaken, match="repeating message") as while_it_waits:
            takes(queue, "reject", trigger)
        [run] = queue.receive(5)
        with pytest.raises(KeyTaken) as while_it_runs:
            takes(queue, "reject", trigger)
        run.ack()
        with pytest.raises(KeyTaken) as between_runs:
            takes(queue, "reject", trigger)
        told = [(error.value.standing, error.value.repeats) for error in (while_it_waits, while_it_runs, between_runs)]
        assert told == [(standing, True), ("in_flight", True), ("delayed", True)]
        assert [while_it_runs.value.id, between_runs.value.id] == [run.message_id, queue.find(KEY)[0].id]
        clock.advance("1h")
    assert [delivery.body for delivery in queue.receive(5)] == ["work"]


def test_keep_is_content_with_the_one_that_is_there(queue: MessageQueue) -> None:
    again = queue.send("again", key=KEY, unique="keep", trigger=Every("1h", delay="1h"))
    for trigger in (None, HOURLY):
        kept = queue.send("other", key=KEY, unique="keep", trigger=trigger)
        assert (kept.id, kept.new) == (again.id, False)
    once = queue.send("once", key="other", unique="keep", delay="1h")
    kept = queue.send("again", key="other", unique="keep", trigger=HOURLY)
    assert (kept.id, kept.new) == (once.id, False)
    assert [schedule.name for schedule in Schedules(queue).all()] == [KEY]


@pytest.mark.parametrize("unique", ["reject", "replace", "debounce"])
@pytest.mark.every_store
def test_one_that_comes_again_meets_a_single_one(queue: MessageQueue, unique: str) -> None:
    first = queue.send("once", key=KEY, unique="reject")
    if unique == "reject":
        with pytest.raises(KeyTaken) as refused:
            takes(queue, unique, HOURLY)
        assert (refused.value.id, refused.value.repeats) == (first.id, False)
    [held] = queue.receive(5)
    with pytest.raises(KeyTaken, match="in flight"):
        takes(queue, unique, HOURLY)
    held.release()
    if unique != "reject":
        again = takes(queue, unique, HOURLY)
        assert [delivery.message_id for delivery in queue.receive(5)] == [again]


@pytest.mark.parametrize("unique", ["replace", "debounce"])
def test_a_single_one_takes_the_place_of_one_that_comes_again(
    queue: MessageQueue, clock: TimeMachine, unique: str
) -> None:
    queue.send("again", key=KEY, unique="reject", trigger=HOURLY)
    [run] = queue.receive(5)
    with pytest.raises(KeyTaken, match=r"in flight.*keep.* or end it by queue.stop\(key\)$"):
        takes(queue, unique)
    run.ack()
    once = takes(queue, unique)
    due = clock.instant + timedelta(hours=unique == "replace")
    assert queue.get(once).due == due
    assert [found.id for found in queue.find(KEY)] == [once]
    clock.advance("5h")
    assert [delivery.body for delivery in queue.receive(5)] == ["another"]
    assert Schedules(queue).all() == []


@pytest.mark.parametrize("unique", ["replace", "debounce"])
def test_one_that_comes_again_takes_the_place_of_another_and_of_its_waiting_run(
    queue: MessageQueue, clock: TimeMachine, unique: str
) -> None:
    queue.send("first", key=KEY, unique="reject", trigger=HOURLY)
    second = queue.send("second", key=KEY, unique=unique, trigger=Every("1h", delay="10m"))
    assert second.new
    assert queue.counts().total == 0
    clock.advance("10m")
    assert [delivery.message_id for delivery in queue.receive(5)] == [second.id]
    assert len(Schedules(queue).all()) == 1


@pytest.mark.every_store
def test_replacing_is_one_commit(store: Store, builder: QueueBuilder[MessageQueue]) -> None:
    recorded = Recording(store)
    queue = builder.store(recorded).build()
    for replaces, trigger in ((None, HOURLY), ("replace", HOURLY), ("replace", None), ("replace", HOURLY)):
        recorded.requests.clear()
        queue.send("work", key=KEY, unique=replaces or "reject", trigger=trigger)
        assert sum(isinstance(request, Commit) and ":home:" in request.batch.row for request in recorded.requests) == 1


@pytest.mark.parametrize("last", ["ack", "reject", "delete", "delete by key", "clear", "at most once", "all attempts"])
@pytest.mark.every_store
def test_the_last_run_has_the_key_until_it_ends(
    queue: MessageQueue, another: MessageQueue, store: Store, clock: TimeMachine, last: str
) -> None:
    lease, attempts = (0 if last == "at most once" else None), (1 if last == "all attempts" else None)
    queue.send("work", key=KEY, unique="reject", trigger=Every("1m", count=2), lease=lease, max_attempts=attempts)
    for delivery in queue.receive(5):
        if last != "at most once":
            delivery.ack()
    clock.advance("1m")
    [run] = queue.receive(5)
    if last != "at most once":
        assert Schedules(queue).all() == []
        with pytest.raises(KeyTaken) as refused:
            takes(another, "reject", HOURLY)
        assert (refused.value.id, refused.value.repeats) == (run.message_id, False)
    ends: dict[str, Callable[[], object]] = {
        "ack": run.ack,
        "reject": run.reject,
        "delete": lambda: queue.delete(run.message_id),
        "delete by key": lambda: queue.delete(key=KEY),
        "clear": queue.clear,
        "at most once": lambda: None,
        "all attempts": run.fail,
    }
    ends[last]()
    assert everything(store) <= {Type.MESSAGE, Type.DEAD}
    assert takes(another, "reject", HOURLY)


@pytest.mark.parametrize("trigger", [Every("1m", count=1), Every("1m", count=1, delay="1m"), Once(delay="1m")])
def test_one_that_comes_but_once_hands_its_key_to_that_run(
    queue: MessageQueue, store: Store, clock: TimeMachine, trigger: Trigger
) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=trigger)
    with pytest.raises(KeyTaken):
        takes(queue, "reject")
    clock.advance("1m")
    [run] = queue.receive(5)
    with pytest.raises(KeyTaken):
        takes(queue, "reject")
    run.ack()
    assert everything(store) == set()
    assert takes(queue, "reject")


STOPS: dict[str, Callable[[MessageQueue, MessageId], object]] = {
    "stop": lambda queue, _: queue.stop(KEY),
    "delete by id": lambda queue, id_: queue.delete(id_),
    "delete by key": lambda queue, _: queue.delete(key=KEY),
    "delete of the schedule": lambda queue, _: Schedules(queue).delete(KEY),
    "drop": lambda queue, _: queue.drop() >= 0,
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("run", ["waits", "runs", "is to come"])
def test_what_stops_it_frees_its_key(
    queue: MessageQueue, store: Store, stop: Callable[[MessageQueue, MessageId], object], run: str
) -> None:
    sent = queue.send(
        "work", key=KEY, unique="reject", trigger=Every("1h", delay="1h") if run == "is to come" else HOURLY
    )
    held = queue.receive(5) if run == "runs" else []
    assert stop(queue, sent.id)
    assert not store.read((Named("emails:home:0", (key_name(KEY),)),))[0]
    for delivery in held if stop is not STOPS["delete of the schedule"] else ():
        with pytest.raises(LeaseLost):
            delivery.ack()


def test_a_run_that_dies_between_leaves_the_key_where_it_is(queue: MessageQueue, clock: TimeMachine) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=HOURLY, max_attempts=1)
    queue.receive(5)[0].fail()
    with pytest.raises(KeyTaken) as refused:
        takes(queue, "reject")
    assert refused.value.standing == "delayed"
    assert queue.redrive().redriven == 1
    clock.advance("1h")
    assert queue.clear() == 1
    with pytest.raises(KeyTaken):
        takes(queue, "reject", HOURLY)


def test_the_end_of_a_paused_one_frees_the_key_when_its_last_run_has_ended(
    queue: MessageQueue, store: Store, clock: TimeMachine
) -> None:
    schedules = Schedules(queue)
    queue.send("work", key=KEY, unique="reject", trigger=Every("1m", count=2))
    [run] = queue.receive(5)
    schedules.pause(KEY)
    clock.advance("5m")
    schedules.resume(KEY)
    run.release()
    with pytest.raises(KeyTaken):
        takes(queue, "reject")
    queue.receive(5)[0].ack()
    clock.advance("1s")
    assert len(queue.receive(5)) == 0
    assert everything(store) == set()


def test_a_schedule_of_people_that_takes_over_its_name_leaves_the_key(queue: MessageQueue) -> None:
    queue.send("work", key=KEY, unique="reject", trigger=Every("1h", delay="1h"))
    Schedules(queue).add(KEY, HOURLY, "theirs", replace=True)
    assert takes(queue, "reject")
    with pytest.raises(ScheduleTaken):
        takes(queue, "replace", HOURLY)


def test_messages_with_the_plain_key_are_not_in_its_way(queue: MessageQueue) -> None:
    queue.send("plain", key=KEY)
    queue.send("work", key=KEY, unique="reject", trigger=HOURLY)
    queue.send("plain", key=KEY)
    assert sorted(str(found.body) for found in queue.find(KEY)) == ["plain", "plain", "work"]
    queue.send("plain", key="other", trigger=HOURLY)
    assert queue.send("once", key="other", unique="reject").new


def test_many_are_told_of_one_that_comes_again(queue: MessageQueue) -> None:
    again = queue.send("work", key=KEY, unique="reject", trigger=HOURLY)
    report = queue.send_many(Message(unique, key=KEY, unique=unique) for unique in ("reject", "keep", "replace"))
    assert report.taken == {0: again.id}
    assert (report.kept, report.ids[1]) == ({1}, again.id)
    assert report.ids[2] not in (None, again.id)


class Overtaken(Faulty):
    """Applies the first commit of a home row, has others go on from it, and does not say that it was applied."""

    others: Callable[[], object] | None = None

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Commit) and ":home:" in request.batch.row and self.others:
            others, self.others = self.others, None
            others()
            message = "no answer"
            raise OutcomeUnknown(message)
        return answer


@pytest.mark.parametrize("unique", [None, "reject"])
def test_one_that_came_and_went_before_its_sender_knew_of_it_is_not_sent_twice(
    store: Store, builder: QueueBuilder[MessageQueue], another: MessageQueue, clock: TimeMachine, unique: str | None
) -> None:
    overtaken = Overtaken(store)
    queue = builder.store(overtaken).build()
    runs: list[object] = []
    overtaken.others = lambda: [runs.append(delivery.body) or delivery.ack() for delivery in another.receive(5)]  # type: ignore[func-returns-value]  # one after the other
    with pytest.raises(OutcomeUnknown):
        queue.send("work", key=KEY, unique=unique, trigger=Every("1h", count=1))
    clock.advance("2h")
    assert [*runs, *[delivery.body for delivery in another.receive(5)]] == ["work"]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.every_store
def test_one_of_unknown_outcome_is_read_back_and_there_once(
    store: Store, builder: QueueBuilder[MessageQueue], clock: TimeMachine, *, applied: bool
) -> None:
    queue = builder.store(Failing(store, OutcomeUnknown("no answer"), of=(Commit,), at=2, applied=applied)).build()
    assert queue.send("work", key=KEY, unique="reject", trigger=Every("1m", count=2)).new
    for _ in range(2):
        assert [delivery.body for delivery in settled(queue)] == ["work"]
        clock.advance("1m")
    assert queue.send("work", key=KEY, unique="reject").new


def settled(queue: MessageQueue) -> list[Delivery]:
    with queue.receive(5) as batch:
        return list(batch)


def test_deleting_a_run_reads_its_own_schedule_and_no_other(store: Store, builder: QueueBuilder[MessageQueue]) -> None:
    queue = builder.build()
    for number in range(150):
        queue.send(number, trigger=Every("1h"))
    sent = queue.send("work", trigger=Every("1h"))
    recorded = Recording(store)
    with builder.store(recorded).build() as again:
        assert again.delete(sent.id)
    slices = [
        wanted
        for request in recorded.requests
        if isinstance(request, Read)
        for wanted in request.wanted
        if isinstance(wanted, Slice)
    ]
    assert not [wanted for wanted in slices if wanted.type == Type.TRIGGER]
    assert len(Schedules(queue).all()) == 150


def test_a_run_that_is_gone_is_looked_for_in_pages(
    store: Store, builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    queue = builder.build()
    sent = [queue.send(number, trigger=Every("1h")).id for number in range(150)]
    assert len([delivery.ack() for _ in range(2) for delivery in queue.receive(100)]) == 150  # type: ignore[func-returns-value]  # how many those were
    recorded = Recording(store)
    with builder.store(recorded).build() as again:
        assert again.delete(sent[77])
    slices = [
        wanted
        for request in recorded.requests
        if isinstance(request, Read)
        for wanted in request.wanted
        if isinstance(wanted, Slice)
    ]
    assert {wanted.limit for wanted in slices if wanted.type == Type.TRIGGER} == {100}
    clock.advance("1h")
    assert len(Schedules(queue).all()) == 149


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"unique": "keep"}, "without a key"),
        ({"unique": "sometimes", "key": KEY}, "one of reject, keep"),
        ({"unique": "keep", "key": "k" * 201}, "names the schedule of a message with a trigger"),
        ({"unique": "keep", "key": KEY, "delay": 3}, "give no delay"),
    ],
)
def test_a_wrong_request_is_refused_and_nothing_is_there_of_it(
    queue: MessageQueue, store: Store, options: dict[str, str], told: str
) -> None:
    with pytest.raises(BadInput, match=told):
        queue.send("body", trigger=HOURLY, **options)  # type: ignore[arg-type]  # the names are those of its options
    assert everything(store) == set()


def test_a_trigger_without_an_occurrence_takes_no_key(queue: MessageQueue, store: Store, clock: TimeMachine) -> None:
    with pytest.raises(BadInput, match="has passed: give a later moment"):
        queue.send("body", key=KEY, unique="reject", trigger=Once(clock.instant - timedelta(seconds=1)))
    assert everything(store) == set()


def test_what_was_replaced_is_in_the_history(builder: QueueBuilder[MessageQueue], clock: TimeMachine) -> None:
    queue = builder.options(history="all").build()
    first = queue.send("first", key=KEY, unique="reject", trigger=HOURLY)
    second = queue.send("second", key=KEY, unique="replace", trigger=HOURLY)
    clock.advance("1s")
    third = queue.send("third", key=KEY, unique="debounce")
    cancelled = [(event.message, event.why) for event in queue.history(key=KEY, kinds=["cancelled"])]
    assert cancelled == [(first.id, "replaced"), (second.id, "replaced")]
    assert third.new


def test_a_schedule_that_cannot_be_read_hinders_nobody_from_finding_or_deleting_other_messages(
    queue: MessageQueue, store: Store
) -> None:
    plain = queue.send("plain", key=KEY).id
    gone = queue.send("work", key="weekly", trigger=HOURLY).id
    queue.delete(gone)
    for name in (KEY, "weekly"):
        store.commit(Batch("emails:home:0", (Put(trigger_name(name), b"\x09{}"),)), ())
    assert [found.body for found in queue.find(KEY)] == ["plain"]
    assert not queue.delete(gone)
    assert queue.delete(plain)
    assert queue.find(KEY) == []


def test_a_schedule_that_cannot_be_read_is_named_in_the_log_wherever_it_is_passed_over(
    queue: MessageQueue, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    sent = queue.send("again", key="hourly", trigger=Every("1h"))
    store.commit(Batch("emails:home:0", (Put(trigger_name("hourly"), b'\x01{"\x1b]0;": "\n"}'),)), ())
    looks: list[Callable[[], object]] = [
        Schedules(queue).all,
        lambda: queue.find("hourly"),
        lambda: queue.delete(sent.id),  # that names its schedule
        lambda: queue.delete(sent.id),  # which is gone, so that all schedules are looked through
    ]
    for look in looks:
        caplog.clear()
        look()
        [line] = [record.getMessage() for record in caplog.records]
        assert line.startswith("schedule_unreadable row=emails:home:0 error=")
        assert line.isprintable()
