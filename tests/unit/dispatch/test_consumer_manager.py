"""Which consumer gets which message, and which one is woken for it."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.ready_buffer import ALL, REJECTED_MESSAGES, Ready, Selector

ONLY_A = Selector(frozenset({"a"}))


class Bench:
    """A manager whose time the test moves, and the names of the consumers it woke."""

    def __init__(self, **options: int) -> None:
        self.time = 0
        self.woken: list[str] = []
        self.expired: list[object] = []
        self.manager: ConsumerManager[object] = ConsumerManager(
            lambda: self.time, on_expired=lambda late: self.expired.extend(one.message for one in late), **options
        )

    def consumer(
        self,
        name: str = "c",
        *,
        credit: Credit | None = None,
        priority: int = 0,
        selector: Selector = ALL,
        browser: bool = False,
    ) -> Consumer[object]:
        """A consumer that sleeps, or is woken at once for what waits."""
        consumer: Consumer[object] = Consumer(
            lambda: self.woken.append(name), credit=credit, priority=priority, selector=selector, browser=browser
        )
        self.manager.add_consumer(consumer)
        self.manager.refresh(consumer)
        return consumer

    def put(self, *messages: object, task: str | None = None, size: int = 0) -> list[Ready[object]]:
        ready = [Ready(message, task=task, size=size) for message in messages]
        self.manager.put(ready)
        return ready

    def pull(self, consumer: Consumer[object]) -> object:
        ready = self.manager.pull(consumer)
        return None if ready is None else ready.message

    def all(self, consumer: Consumer[object]) -> list[object]:
        """All that a consumer gets until it misses."""
        return list(iter(lambda: self.pull(consumer), None))


def test_a_message_that_comes_after_its_consumer_wakes_it_once() -> None:
    bench = Bench()
    consumer = bench.consumer()
    assert bench.woken == []
    bench.put(1)
    assert bench.woken == ["c"]
    assert bench.all(consumer) == [1]


def test_messages_that_came_before_a_consumer_wake_it_as_it_becomes_interested() -> None:
    bench = Bench()
    bench.put(1, 2)
    consumer = bench.consumer()
    assert bench.woken == ["c"]
    assert bench.all(consumer) == [1, 2]


def test_a_removed_consumer_gets_nothing_and_is_not_woken() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.manager.remove_consumer(consumer)
    bench.put(1)
    assert (bench.woken, bench.all(consumer), bench.manager.asleep) == ([], [], 0)


def test_a_consumer_that_got_something_is_not_woken_again_until_it_missed() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.put(1)
    assert bench.pull(consumer) == 1
    bench.put(2)
    assert bench.pull(consumer) == 2
    assert bench.pull(consumer) is None
    assert bench.woken == ["c"]
    bench.put(3)
    assert bench.woken == ["c", "c"]


def test_one_consumer_is_woken_for_each_message_the_one_that_sleeps_longest_first() -> None:
    bench = Bench()
    consumers = {name: bench.consumer(name) for name in "abcd"}
    bench.put(1)
    bench.put(2, 3)
    assert bench.woken == ["a", "b", "c"]
    assert bench.all(consumers["b"]) == [1, 2, 3]
    for name in "ca":
        assert bench.pull(consumers[name]) is None
    bench.put(4, 5, 6)
    assert bench.woken[3:] == ["d", "b", "c"]


def test_no_consumer_is_woken_for_a_message_that_none_may_take() -> None:
    bench = Bench()
    bench.consumer(selector=ONLY_A)
    bench.put(1, task="b")
    assert bench.woken == []


def test_a_consumer_that_takes_another_message_hands_its_wakeup_over() -> None:
    bench = Bench()
    picky, other = bench.consumer("picky", selector=ONLY_A), bench.consumer("other")
    held = bench.put("first", task="a")
    assert bench.pull(picky) == "first"
    assert bench.pull(picky) is None
    bench.put("second", task="a")
    bench.put("third", task="a")
    assert bench.woken == ["picky", "other", "picky"]
    assert bench.manager.release(picky, held[0])
    bench.manager.refresh(picky)
    assert bench.all(other) == ["first", "second", "third"]


def test_a_wakeup_goes_to_another_consumer_when_its_own_withdraws_or_is_removed() -> None:
    bench = Bench()
    credit = Credit()
    bench.consumer("a", credit=credit)
    second = bench.consumer("b")
    bench.consumer("c")
    bench.put(1)
    credit.pause()
    assert bench.woken == ["a", "b"]
    bench.manager.remove_consumer(second)
    assert bench.woken == ["a", "b", "c"]


def test_a_paused_consumer_is_woken_on_resuming_if_it_may_take_something() -> None:
    bench = Bench()
    credit = Credit()
    consumer = bench.consumer(credit=credit)
    credit.pause()
    assert bench.all(consumer) == []
    bench.put(1)
    assert bench.woken == []
    credit.resume()
    assert bench.woken == ["c"]


def test_of_three_messages_only_the_released_one_comes_again() -> None:
    bench = Bench()
    consumer = bench.consumer()
    first, *_ = bench.put(1, 2, 3)
    assert bench.all(consumer) == [1, 2, 3]
    assert bench.manager.release(consumer, first)
    assert bench.woken == ["c", "c"]
    assert bench.all(consumer) == [1]


@pytest.mark.parametrize("selector", [ALL, ONLY_A])
def test_released_messages_come_again_in_their_old_order(selector: Selector) -> None:
    bench = Bench()
    consumer = bench.consumer(selector=selector)
    messages = bench.put(1, 2, 3, 4, task="a")
    assert bench.all(consumer) == [1, 2, 3, 4]
    bench.put(5, task="a")
    for number in (2, 0, 3):
        bench.manager.release(consumer, messages[number])
    assert bench.all(consumer) == [1, 3, 4, 5]


def test_a_released_message_goes_to_one_of_two_consumers() -> None:
    bench = Bench()
    first, second = bench.consumer("a"), bench.consumer("b")
    (ready,) = bench.put(1)
    assert bench.all(first) == [1]
    bench.manager.release(first, ready)
    assert bench.woken == ["a", "b"]
    assert bench.all(second) + bench.all(first) == [1]


def test_an_expired_message_is_reported_instead_of_delivered_also_when_it_is_released() -> None:
    bench = Bench()
    consumer = bench.consumer()
    late, held = Ready[object]("late", expires=5), Ready[object]("held", expires=5)
    bench.manager.put([held, late, Ready("good")])
    assert bench.pull(consumer) == "held"
    bench.time = 5
    assert bench.pull(consumer) == "good"
    assert bench.manager.release(consumer, held)
    assert bench.expired == ["late", "held"]
    assert (bench.all(consumer), bench.woken, len(bench.manager)) == ([], ["c"], 0)


def test_messages_removed_while_they_wait_are_skipped_and_wake_no_consumer() -> None:
    bench = Bench()
    consumer = bench.consumer(credit=Credit())
    ready = bench.put(1, 2, 3)
    assert bench.manager.remove(ready[0])
    assert bench.manager.remove(ready[2])
    assert not bench.manager.remove(ready[0])
    assert bench.all(consumer) == [2]


def test_a_message_removed_from_its_holder_is_not_released_and_only_its_holder_releases() -> None:
    bench = Bench()
    consumer, other = bench.consumer("a"), bench.consumer("b")
    first, second = bench.put(1, 2)
    assert bench.all(consumer) == [1, 2]
    assert bench.manager.remove(first)
    assert not bench.manager.release(consumer, first)
    assert not bench.manager.release(other, second)
    assert bench.manager.release(consumer, second)
    assert not bench.manager.release(consumer, second)
    assert bench.all(other) == [2]


def test_a_message_is_not_offered_again_to_the_consumers_that_rejected_it() -> None:
    bench = Bench()
    consumers = [bench.consumer(name) for name in "abc"]
    (ready,) = bench.put("rejected")
    for consumer in consumers[:2]:
        assert bench.pull(consumer) == "rejected"
        assert bench.manager.release(consumer, ready, reject=True)
    bench.put("later")
    assert [bench.all(consumer) for consumer in consumers] == [["later"], [], ["rejected"]]


def test_the_oldest_rejection_is_forgotten_when_too_many_are_remembered() -> None:
    bench = Bench()
    consumer = bench.consumer()
    ready = bench.put(*range(REJECTED_MESSAGES + 1))
    assert len(bench.all(consumer)) == REJECTED_MESSAGES + 1
    for one in ready:
        bench.manager.release(consumer, one, reject=True)
    assert bench.all(consumer) == [0]
    assert len(bench.manager) == REJECTED_MESSAGES


def test_a_consumer_woken_for_a_rejected_message_that_is_gone_counts_as_on_its_way_to_no_other() -> None:
    bench = Bench()
    first, second = bench.consumer("a"), bench.consumer("b")
    bench.consumer("c")
    bench.consumer("d")
    (ready,) = bench.put("rejected")
    assert bench.all(first) == ["rejected"]
    bench.manager.release(first, ready, reject=True)
    bench.manager.remove(ready)
    bench.put(1)
    assert bench.woken == ["a", "b", "c"]
    assert bench.pull(second) == 1
    bench.put(2)
    assert bench.woken == ["a", "b", "c"]


def test_above_the_bound_the_oldest_messages_are_returned() -> None:
    bench = Bench(bound=2)
    assert [one.message for one in bench.manager.put([Ready(number) for number in range(5)])] == [0, 1, 2]
    assert bench.all(bench.consumer()) == [3, 4]


def test_all_waiting_messages_can_be_taken_back_in_order() -> None:
    bench = Bench()
    bench.consumer(selector=ONLY_A)
    for number, task in enumerate("abab"):
        bench.put(number, task=task)
    assert bench.manager.oldest is not None
    assert [one.message for one in bench.manager.take_back()] == [0, 1, 2, 3]
    assert len(bench.manager) == 0


def test_consumers_that_lost_interest_long_ago_are_listed() -> None:
    bench = Bench()
    credit = Credit()
    consumer = bench.consumer(credit=credit)
    bench.consumer("other")
    bench.time = 7
    credit.pause()
    bench.time = 20
    assert bench.manager.suspended(6) == []
    assert bench.manager.suspended(7) == [consumer]
    credit.resume()
    assert bench.manager.suspended(20) == []


def test_what_happened_is_counted_for_each_consumer_and_for_all_also_after_they_left() -> None:
    bench = Bench()
    first, second = bench.consumer("a"), bench.consumer("b")
    bench.put(1, 2, 3, size=10)
    assert bench.all(first) == [1, 2, 3]
    assert bench.pull(second) is None
    assert (first.delivered, first.bytes_delivered, second.delivered) == (3, 30, 0)
    bench.manager.remove_consumer(first)
    counters = bench.manager.counters
    assert (counters.delivered, counters.bytes_delivered, counters.wakeups, counters.misses) == (3, 30, 2, 2)


def test_threads_get_each_message_once_and_none_is_left() -> None:
    """Real threads: eight consumers and two producers, who begin together."""
    manager: ConsumerManager[int] = ConsumerManager(lambda: 0)
    begin, got = threading.Barrier(10), Counter[int]()
    every = threading.Semaphore(0)
    end = threading.Event()

    def consume(signal: threading.Semaphore) -> None:
        consumer: Consumer[int] = Consumer(signal.release, credit=Credit(1))
        manager.add_consumer(consumer)
        begin.wait()
        while not end.is_set():
            if (ready := manager.pull(consumer)) is None:
                signal.acquire()
                continue
            got[ready.message] += 1
            every.release()
            if consumer.credit:
                consumer.credit.give_back(silently=True)

    def produce(first: int) -> None:
        begin.wait()
        for number in range(first, 4_000, 2):
            manager.put([Ready(number)])

    signals = [threading.Semaphore(0) for _ in range(8)]
    threads = [threading.Thread(target=consume, args=(signal,)) for signal in signals]
    threads += [threading.Thread(target=produce, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    arrived = all(every.acquire(timeout=60) for _ in range(4_000))
    end.set()
    for signal in signals:
        signal.release()
    for thread in threads:
        thread.join()
    assert arrived
    assert got == Counter(range(4_000))
    assert manager.counters.wakeups_per_delivery <= 1.0
