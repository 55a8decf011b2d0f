"""Queues that are sorted by a header: its values, or ranges of numbers, have an order."""

from __future__ import annotations

import pytest

from astyqueue import Message, MessageQueue
from astyqueue.errors import BadInput, BadSetting
from astyqueue.model.priority_class import header_classes, priority_by_header
from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.queue.builder import QueueBuilder
from astyqueue.schedules import Schedules
from astyqueue.store import Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every
from tests.support.places import ONE_ROW


def received(queue: MessageQueue) -> list[object]:
    """All bodies, received and acked one by one."""
    bodies: list[object] = []
    while got := queue.receive():
        bodies += [delivery.body for delivery in got]
        got.ack()
    return bodies


def regions(builder: QueueBuilder[MessageQueue], **options: object) -> MessageQueue:
    settings = {"priorities": 3, "sort_header": "region", "sort_classes": "eu,us,asia"} | options
    return builder.options(**ONE_ROW, **settings).build()


@pytest.mark.every_store
def test_messages_come_in_the_order_of_their_header_and_then_of_their_arrival(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine
) -> None:
    with regions(builder) as queue:
        for number, region in enumerate(["us", "asia", "eu", "us", "eu"]):
            queue.send(f"{region} {number}", headers={"region": region})
            clock.advance("1ms")
        assert received(queue) == ["eu 2", "eu 4", "us 0", "us 3", "asia 1"]


@pytest.mark.parametrize(
    ("order", "missing", "expected"),
    [
        ("ascending", "last", ["eu", "none", "mars", "asia"]),
        ("ascending", "first", ["none", "mars", "eu", "asia"]),
        ("descending", "last", ["asia", "none", "mars", "eu"]),
        ("descending", "first", ["none", "mars", "asia", "eu"]),
    ],
)
def test_the_order_and_the_place_of_others_are_settings(
    builder: QueueBuilder[MessageQueue], clock: TimeMachine, order: str, missing: str, expected: list[str]
) -> None:
    """Others have the place of the first or the last class, in the order of arrival."""
    with regions(builder, sort_order=order, sort_missing=missing) as queue:
        for body, headers in (
            ("none", None),
            ("mars", {"region": "mars"}),
            ("asia", {"region": "asia"}),
            ("eu", {"region": "eu"}),
        ):
            queue.send(body, headers=headers)
            clock.advance("1ms")
        assert received(queue) == expected


def test_one_at_a_time_with_acks_and_a_release_they_come_sorted(builder: QueueBuilder[MessageQueue]) -> None:
    with regions(builder, sort_classes="1,2,3", sort_header="n") as queue:
        queue.send_many([Message(number, headers={"n": str(number)}) for number in (2, 3, 1)])
        [first] = queue.receive()
        first.release()
        assert received(queue) == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "index"),
    [("-4", 0), ("9.99", 0), ("10", 1), ("1e1", 1), ("100", 2), ("1e9", 2), ("nan", None), ("x", None)],
)
def test_numbers_have_the_class_of_the_first_bound_above_them(value: str, index: int | None) -> None:
    assert header_classes("<10,<100").class_of(value) == index


def test_a_queue_of_one_priority_is_not_sorted(builder: QueueBuilder[MessageQueue]) -> None:
    with builder.build() as queue, pytest.raises(BadSetting, match="queue 'emails' has one priority: name fewer"):
        queue.configure(sort_header="region", sort_classes="eu,us")


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"sort_classes": "a,b,c,d"}, r"are 4 classes, and queue 'emails' has 3 priorities"),
        ({"sort_classes": "<1,<2,<3"}, "are 4 classes"),
        ({"sort_classes": "a,,b"}, "write different values"),
        ({"sort_classes": "a,b,a"}, "write different values"),
        ({"sort_classes": "<2,<1"}, "write growing bounds"),
        ({"sort_classes": "<1,two"}, "write growing bounds"),
        ({"sort_classes": ""}, "needs both"),
        ({"sort_header": ""}, "needs both"),
        ({"sort_order": "sideways"}, "sort_order is 'sideways'"),
    ],
)
def test_classes_that_a_queue_cannot_have_are_refused(
    builder: QueueBuilder[MessageQueue], settings: dict[str, object], problem: str
) -> None:
    with regions(builder) as queue:
        with pytest.raises(BadSetting, match=problem):
            queue.configure(**settings)
        assert queue.settings.behaviour.sort_classes == "eu,us,asia"


def test_a_sorted_queue_takes_no_priorities(builder: QueueBuilder[MessageQueue]) -> None:
    with regions(builder) as queue, pytest.raises(BadInput, match="is sorted by the header 'region': give that"):
        queue.send("first", priority=1)


def test_what_a_schedule_sends_is_sorted_too(builder: QueueBuilder[MessageQueue], clock: TimeMachine) -> None:
    with regions(builder) as queue:
        Schedules(queue).add("tick", Every("1m"), Message("tick", headers={"region": "eu"}))
        assert {found.id.priority for found in queue.peek(10)} <= {2}
        clock.advance("1m")
        [tick] = queue.receive()
        assert tick.message_id.priority == 2


def test_settings_that_do_not_fit_together_give_the_nearest_priority() -> None:
    behaviour = Behaviour(sort_header="n", sort_classes="1,2,3")
    settings = Settings(name="emails", layout=Layout(priorities=2), behaviour=behaviour)
    assert [priority_by_header(settings, {"n": str(number)}) for number in (1, 2, 3)] == [1, 0, 0]


def test_a_message_that_overflows_is_sorted_where_it_goes(
    builder: QueueBuilder[MessageQueue], store: Store, clock: TimeMachine
) -> None:
    later = MessageQueue.builder().store(store).name("later").clock(clock)
    with later.options(priorities=2, sort_header="n", sort_classes="1,2").build() as target:
        with builder.options(priorities=3, max_messages=1, overflow="forward", overflow_to="later").build() as queue:
            for number in (2, 2, 1):
                queue.send(number, priority=2, headers={"n": str(number)})
        assert [found.body for found in target.peek(5)] == [1, 2]
