"""Which row a message goes to, by each of the rules there are."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.errors import BadSetting, LayoutDiffers
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.steps import Send
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.producing.placement import PlacementRequest
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Recording

Wide = Callable[[], QueueBuilder[MessageQueue]]


@pytest.fixture
def wide(store: Store, clock: TimeMachine) -> Wide:
    """A queue of three time shards and four concurrency shards, to be placed."""
    return lambda: MessageQueue.builder().store(store).name("emails").clock(clock).time_shards(3).concurrency_shards(4)


def rows(queue: MessageQueue, *messages: Message) -> list[str]:
    return [id_.row for id_ in queue.send_many(messages).ids if id_]


def shards(sent: list[str]) -> set[str]:
    return {row.rsplit(":", 1)[1] for row in sent}


def test_by_time_messages_take_turns_and_a_key_decides_where_there_is_one(wide: Wide) -> None:
    with wide().build() as queue:
        assert queue.settings.layout.placement == "time"
        assert len({queue.send(None).id.row for _ in range(4)}) == 4
        keyed = {queue.send(None, key="ada", delay=f"{hours}h").id.row for hours in range(3)}
        assert len(keyed) == 3
        assert len(shards(list(keyed))) == 1


def spread(sent: list[str]) -> list[int]:
    """How many messages lie in each concurrency shard that has any, by the shard's number."""
    return [count for _, count in sorted(Counter(row.rsplit(":", 1)[1] for row in sent).items())]


def test_a_large_call_is_spread_over_all_shards_and_a_small_one_is_one_batch(store: Store, clock: TimeMachine) -> None:
    """Eight shards are what a queue on Cassandra has if nothing else is asked for."""
    with MessageQueue.builder().store(store).name("emails").clock(clock).concurrency_shards(8).build() as queue:
        assert spread(rows(queue, *map(Message, range(50)))) == [50]
        assert spread(rows(queue, *map(Message, range(51)))) == [25, 26]
        assert spread(rows(queue, *map(Message, range(400)))) == [50] * 8
        assert spread(rows(queue, *map(Message, range(5_000)))) == [625] * 8


def test_calls_of_one_batch_go_to_the_shards_in_turn(wide: Wide) -> None:
    with wide().build() as queue:
        assert len(shards([row for _ in range(4) for row in rows(queue, Message(1), Message(2))])) == 4


@pytest.mark.parametrize("options", [{}, {"delay": "1m"}, {"headers": {"tenant": "ada"}}])
def test_what_a_call_sends_to_one_shard_keeps_its_order(
    wide: Wide, clock: TimeMachine, options: dict[str, object]
) -> None:
    with wide().build() as queue:
        sent = rows(queue, *[Message(number, **options) for number in range(400)])  # type: ignore[arg-type]  # they are options of a message
        clock.advance("2m")
        assert spread(sent) == [100] * 4
        for row in set(sent):
            got = [delivery.body for delivery in queue.receive(100)]
            assert got in [list(range(first, first + 100)) for first in range(0, 400, 100)], row


def test_messages_with_and_without_keys_each_go_where_they_belong(wide: Wide) -> None:
    with wide().build() as queue:
        sent = rows(queue, *[Message(number, key=None if number % 2 else f"key-{number % 6}") for number in range(400)])
        assert spread(sent[1::2]) == [50] * 4
        assert all(
            row.rsplit(":", 1)[1] == str(zlib.crc32(f"key-{2 * number % 6}".encode()) % 4)
            for number, row in enumerate(sent[::2])
        )


@pytest.mark.parametrize(
    ("placement", "expected"), [("time", [50] * 8), ("key", [50] * 8), ("single", [400]), (lambda _: 3, [400])]
)
def test_each_placement_spreads_what_it_does_not_decide(
    store: Store, clock: TimeMachine, placement: str, expected: list[int]
) -> None:
    with (
        MessageQueue.builder()
        .store(store)
        .name("emails")
        .clock(clock)
        .concurrency_shards(8)
        .placement(placement)
        .build() as queue
    ):
        assert spread(rows(queue, *map(Message, range(400)))) == expected


def test_spreading_costs_no_request_and_at_most_a_batch_for_each_shard(store: Store, clock: TimeMachine) -> None:
    recorded = Recording(store)
    with MessageQueue.builder().store(recorded).name("emails").clock(clock).concurrency_shards(8).build() as queue:
        for messages, batches in ((1, 1), (50, 1), (200, 4), (400, 8), (1_000, 8), (5_000, 40)):
            recorded.requests.clear()
            queue.send_many(range(messages))
            sends = [
                request
                for request in recorded.requests
                if isinstance(request, Send) and request.batch.puts[0].name.type == Type.MESSAGE
            ]
            assert len(sends) == -(-messages // 1_000)
            assert sum(len(send.batches) for send in sends) == batches


def test_messages_that_are_due_at_many_moments_share_batches(store: Store, clock: TimeMachine) -> None:
    recorded = Recording(store)
    with MessageQueue.builder().store(recorded).name("emails").clock(clock).build() as queue:
        queue.send_many(Message(number, delay=200 - number) for number in range(200))
        batches = [
            batch
            for request in recorded.requests
            if isinstance(request, Send)
            for batch in request.batches
            if len(batch.puts) > 1
        ]
        assert [len(batch.puts) for batch in batches] == [200]


@pytest.mark.every_store
def test_by_key_all_messages_of_a_key_lie_in_one_row_whenever_they_are_due(wide: Wide) -> None:
    with wide().placement("key").build() as queue:
        keyed = rows(queue, *[Message(hours, key="ada", delay=f"{hours}h") for hours in range(3)])
        assert len(set(keyed)) == 1
        assert queue.send(None, key="ada", unique="keep").id.row == keyed[0]
        assert len({queue.send(None).id.row for _ in range(4)}) == 4
        assert len(queue.find("ada")) == 4


def test_single_puts_everything_into_one_row(store: Store, clock: TimeMachine) -> None:
    with MessageQueue.builder().store(store).name("emails").clock(clock).placement("single").build() as queue:
        assert (queue.settings.layout.time_shards, queue.settings.layout.concurrency_shards) == (1, 1)
    with (
        MessageQueue.builder()
        .store(store)
        .name("wide")
        .clock(clock)
        .concurrency_shards(4)
        .placement("single")
        .build() as queue
    ):
        sent = rows(queue, Message(1), Message(2, key="ada"), Message(3, delay="1h"), Message(4, key="bob", priority=0))
        sent += [queue.send(5, key=key, unique="reject").id.row for key in "cdef"]
        assert len(set(sent)) == 1
        assert queue.counts().total == 8


def test_a_function_is_told_of_a_message_and_says_its_shard(wide: Wide) -> None:
    told: list[PlacementRequest] = []

    def by_length(message: PlacementRequest) -> int:
        told.append(message)
        return len(message.key or message.headers.get("tenant", "")) % message.shards

    with wide().priorities(2).placement(by_length).build() as queue:
        due = datetime(2030, 1, 1, tzinfo=UTC)
        sent = rows(queue, Message(1, key="ada", at=due), Message(2, headers={"tenant": "xy"}, priority=1), Message(3))
        assert [row.rsplit(":", 1)[1] for row in sent] == ["3", "2", "0"]
        assert told[0] == PlacementRequest("ada", 0, due, {}, 4)
        assert told[2] == PlacementRequest(None, 1, None, {"tenant": "xy"}, 4)
        assert queue.send(4).id.row.endswith(":0")
        assert [found.body for found in queue.find("ada")] == [1]


def test_unique_keys_do_not_ask_a_function(wide: Wide) -> None:
    with wide().placement(lambda _: 3).build() as queue:
        home = {queue.send(None, key=key, unique="reject").id.row for key in "abcdefgh"}
        assert len(shards(list(home))) > 1


@pytest.mark.every_store
def test_whatever_the_rule_a_consumer_elsewhere_finds_everything(wide: Wide, clock: TimeMachine) -> None:
    def by_key(message: PlacementRequest) -> int:
        return zlib.crc32((message.key or "").encode()) % message.shards

    with wide().placement(by_key).build() as queue, wide().options(placement="function").build() as taker:
        queue.send_many([Message(number, key=str(number % 5)) for number in range(20)])
        clock.advance("1s")
        got = [delivery.body for _ in range(20) for delivery in taker.receive(limit=20)]
        assert sorted(map(int, map(str, got))) == list(range(20))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (4, "returned 4 for .* from 0 to 3: take it modulo `shards`"),
        (-1, "returned -1"),
        (True, "returned True"),
        ("1", "returned '1'"),
        (None, "returned None"),
    ],
)
def test_what_is_no_shard_is_refused_and_nothing_is_sent(wide: Wide, answer: object, told: str) -> None:
    with wide().placement(lambda _: answer).build() as queue:  # type: ignore[arg-type, return-value]  # that is the point
        with pytest.raises(BadSetting, match=told):
            queue.send("one")
        with pytest.raises(BadSetting, match=told):
            queue.send_many(["one", "two"])
        assert queue.counts().total == 0


def test_a_function_that_says_now_this_and_now_that_is_refused(wide: Wide) -> None:
    turns = itertools.count()
    with (
        wide().placement(lambda message: next(turns) % message.shards).build() as queue,
        pytest.raises(BadSetting, match=r"returned 0 and then 1 .* must depend only on its argument"),
    ):
        queue.send("one")


def test_a_function_that_fails_is_named(wide: Wide) -> None:
    def hash_of_the_key(message: PlacementRequest) -> int:
        return len(message.key) % message.shards  # type: ignore[arg-type]  # there is no key, that is the point

    with (
        wide().placement(hash_of_the_key).build() as queue,
        pytest.raises(BadSetting, match="hash_of_the_key failed for PlacementRequest"),
    ):
        queue.send("one")


def test_who_sends_without_the_function_of_a_queue_is_reported(wide: Wide) -> None:
    with wide().placement(lambda _: 0).build(), wide().options(placement="function").build() as another:
        with pytest.raises(BadSetting, match=r"pass the same one with \.placement\(\.\.\.\)"):
            another.send("one")
        assert another.send("two", key="ada", unique="keep").new


def test_a_placement_is_stored_with_the_queue(wide: Wide, store: Store, clock: TimeMachine) -> None:
    with wide().placement("key").build():
        pass
    with MessageQueue.builder().store(store).name("emails").clock(clock).build() as joined:
        assert joined.settings.layout.placement == "key"
    with pytest.raises(LayoutDiffers, match="placement is 'key', not the requested 'single'"):
        wide().placement("single").build()


@pytest.mark.parametrize("placement", ["tiem", 7, PlacementRequest])
def test_what_is_no_placement_is_refused(wide: Wide, placement: str) -> None:
    with pytest.raises(BadSetting, match="placement"):
        wide().placement(placement).build()
