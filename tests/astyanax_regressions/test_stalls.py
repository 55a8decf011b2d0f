"""Where the recipe stalled, or promised what it did not do. Numbers are those of the lineage page."""

from __future__ import annotations

import pytest

from astyqueue import KeyTaken, Message, MessageQueue
from astyqueue.clock import instant
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Commit, Read
from astyqueue.queue.connection import Connection
from astyqueue.queue.hooks import Hook
from astyqueue.store import Slice, Store
from astyqueue.testing import Failing, Recording, TimeMachine
from astyqueue.units import SECOND
from tests.astyanax_regressions.conftest import Opens, Slow, deaths, everything, everything_now
from tests.support.places import Place

RING = {"time_shards": 30, "every": "1m", "concurrency_shards": 8}


@pytest.mark.parametrize("comes_back_by", ["a lease that ran out", "a release", "a failure"])
def test_a_message_that_comes_back_in_a_row_of_the_past_is_received_when_it_is_due(
    opens: Opens, clock: TimeMachine, comes_back_by: str
) -> None:
    """23: a message that landed in an idle bucket waited for the bucket's next turn, up to the whole ring."""
    queue = opens(**RING)
    queue.send("work")
    [delivery] = queue.receive()
    clock.advance("25s")
    if comes_back_by == "a release":
        delivery.release("5m")
    elif comes_back_by == "a failure":
        delivery.fail("5m")
    clock.advance("5m")
    with queue.receive(wait="2s") as batch:
        assert [again.body for again in batch] == ["work"]


def test_a_message_sent_for_the_past_is_received_at_once(opens: Opens, clock: TimeMachine) -> None:
    """23: so did what was due in the past, and what a slow or skewed producer sent."""
    queue = opens(**RING)
    queue.send("before")
    queue.receive()[0].ack()
    clock.advance("10m")
    queue.send("work", at=instant(clock.now() - 300 * SECOND))
    assert [delivery.body for delivery in queue.receive()] == ["work"]


def test_a_consumer_that_polled_nothing_for_several_time_shards_misses_no_message(
    opens: Opens, clock: TimeMachine
) -> None:
    """24: a bucket during which no process asked for a shard was never woken."""
    queue, sender = opens(**RING), opens(**RING)
    queue.send("before")
    assert queue.receive()
    for minute in range(7):
        sender.send_many([f"{minute}:{number}" for number in range(2)])
        clock.advance("1m")
    found = {delivery.body for _ in range(20) for delivery in queue.receive(50)}
    assert found >= {f"{minute}:{number}" for minute in range(7) for number in range(2)}


def test_a_message_in_one_of_hundreds_of_rows_is_found_without_any_time_passing(
    opens: Opens, clock: TimeMachine
) -> None:
    """25: a consumer slept for a second on each empty shard."""
    queue = opens(**RING)
    began = clock.monotonic()
    for number in range(20):
        queue.send(number)
        with queue.receive() as [delivery]:
            assert delivery.body == number
    assert clock.monotonic() == began


def test_more_consumers_than_rows_wait_for_nothing_but_messages(opens: Opens) -> None:
    """25: consumers waited for a free shard, without any timeout."""
    queues = [opens() for _ in range(5)]
    assert [list(queue.receive(wait=0)) for queue in queues] == [[]] * 5


def test_a_row_that_others_changed_does_not_end_the_whole_receive(opens: Opens, store: Store) -> None:
    """26: one lock that was taken ended the whole read."""
    other = opens(concurrency_shards=2)
    other.send_many(range(4))
    other.send_many(range(4, 8))
    taken: list[object] = []
    slow = opens(
        Slow(store, lambda: taken.extend(delivery.body for delivery in other.receive(1))), concurrency_shards=2
    )
    got = [delivery.body for _ in range(3) for delivery in slow.receive(10)]
    assert len(taken) == 1
    assert len(got) >= 4
    assert not set(map(str, got)) & set(map(str, taken))


def test_closing_a_queue_commits_the_acks_it_was_given(opens: Opens, clock: TimeMachine) -> None:
    """26: stopping lost the acks that were not committed yet."""
    queue = opens()
    queue.send_many(range(5))
    for delivery in queue.receive(5):
        delivery.ack()
    queue.close()
    assert everything(opens(), clock) == []


@pytest.mark.every_store
def test_no_read_begins_at_the_start_of_a_row_that_many_messages_went_through(
    opens: Opens, store: Store, clock: TimeMachine
) -> None:
    """27: each read passed over all tombstones at the head of its row."""
    recording = Recording(store)
    queue = opens(recording)
    queue.send_many(range(300))
    everything(queue, clock)
    queue.send("work")
    recording.requests.clear()
    assert queue.receive()
    reads = [wanted for request in recording.requests if isinstance(request, Read) for wanted in request.wanted]
    walks = [
        wanted
        for wanted in reads
        if isinstance(wanted, Slice) and wanted.row.startswith("jobs:0") and wanted.type == Type.MESSAGE
    ]
    assert walks
    assert all(wanted.after > bytes(16) for wanted in walks)


def test_a_poll_of_an_empty_row_writes_nothing(opens: Opens, store: Store, clock: TimeMachine) -> None:
    """27: each poll, also of an empty row, left two dead columns and more."""
    queue = opens(Recording(store))
    queue.send("work")
    everything(queue, clock)
    recording = queue.store
    assert isinstance(recording, Recording)
    recording.requests.clear()
    for _ in range(20):
        assert not queue.receive()
        clock.advance("1s")
    assert not [request for request in recording.requests if isinstance(request, Commit)]


def test_an_ack_frees_the_unique_key(queue: MessageQueue, store: Store) -> None:
    """28: only a delete by key freed it."""
    for _ in range(2):
        queue.send("work", key="order:7", unique="reject")
        with pytest.raises(KeyTaken):
            queue.send("work", key="order:7", unique="reject")
        queue.receive()[0].ack()
        assert store.read((Slice("jobs:home:0", Type.KEY),)) == [[]]


@pytest.mark.every_store
def test_a_sender_that_dies_at_any_request_leaves_a_key_free_or_with_its_message(
    opens: Opens, store: Store, clock: TimeMachine
) -> None:
    """28: a sender that died after its first write blocked the key for minutes, and one that died later for ever."""
    for request, done in deaths(opens, store, lambda queue: queue.send("work", key="order:7", unique="reject")):
        alive = opens()
        there = alive.find("order:7")
        assert len(there) <= 1, (request, done)
        assert alive.send("again", key="order:7", unique="keep").new == (not there)
        clock.advance("1s")
        assert len(everything_now(alive)) == 1


@pytest.mark.parametrize(
    "error", [OutcomeUnknown("no answer"), StoreUnavailable("away")], ids=["unknown", "unavailable"]
)
def test_of_two_concurrent_unique_sends_one_is_there_whatever_becomes_of_the_answers(
    opens: Opens, store: Store, clock: TimeMachine, error: OutcomeUnknown | StoreUnavailable
) -> None:
    """28: of two concurrent sends both could fail."""
    other = opens()
    slow = opens(Slow(Failing(store, error, at=9, applied=True), lambda: other.send("other", key="k", unique="keep")))
    slow.send("slow", key="k", unique="keep")
    assert everything(other, clock) == ["other"]


def test_of_a_unique_key_twice_in_one_call_one_message_is_sent_and_a_plain_one_of_the_key_too(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    """28: a unique key twice in one call won for both; a plain message with a lost key was silently dropped."""
    unique = [Message(number, key="k", unique="keep") for number in range(2)]
    report = queue.send_many([*unique, Message("plain", key="k")])
    assert report.ids[0] == report.ids[1] != report.ids[2]
    assert sorted(map(str, everything(queue, clock))) == ["0", "plain"]


def test_the_greatest_priority_goes_first_and_a_key_may_contain_any_character(opens: Opens) -> None:
    """29: every priority was written as zero, and a "$" in a key broke its send."""
    queue = opens(priorities=3)
    for priority in (0, 2, 1):
        queue.send(priority, priority=priority, key=f"${priority}:$")
    assert [delivery.body for delivery in queue.receive(3)] == [2, 1, 0]


def test_queues_of_a_store_are_listed(place: Place, clock: TimeMachine) -> None:
    """29: the manager of queues had no implementation."""
    connection = Connection(place.store(clock), clock)
    connection.queue("one")
    connection.queue("two")
    assert connection.queues() == ["one", "two"]


class Told(Hook):
    """Notes the names of the methods that are called."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name.startswith(("before_", "after_")):
            self.names.append(name)
        return super().__getattribute__(name)


def test_every_method_of_a_hook_is_called(place: Place, clock: TimeMachine) -> None:
    """29: one declared hook was never called."""
    told = Told()
    queue = MessageQueue.builder().store(place.store(clock)).name("jobs").clock(clock).hook(told).build()
    queue.send("work")
    queue.receive()[0].ack()
    queue.send("too late", expires="1s")
    clock.advance("2s")
    assert not queue.receive()
    queue.delete(queue.send("of no use").id)
    assert sorted(set(told.names)) == sorted(name for name in vars(Hook) if not name.startswith("_"))


def test_the_messages_received_of_each_row_are_counted(opens: Opens) -> None:
    """29: the counters of shards stayed at zero."""
    queue = opens(concurrency_shards=4)
    sent = [queue.send(number) for number in range(4)]
    for _ in range(4):
        queue.receive(10)
    assert queue.stats.rows == {one.id.row: 1 for one in sent}
