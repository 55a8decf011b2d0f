"""One consumer of several queues: whose turn it is, and who is woken while it is busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.multi_queue import MultiQueueConsumer, Pulled
from astyqueue.dispatch.consumers.ready_buffer import Ready


class Counting(ConsumerManager[str]):
    """A manager that counts its pulls."""

    def __init__(self, running: int | None = None) -> None:
        super().__init__(lambda: 0, running=running)
        self.pulls = 0

    def pull(self, consumer: Consumer[str], *, ended: bool = False) -> Ready[str] | None:
        self.pulls += 1
        return super().pull(consumer, ended=ended)


class Thread:
    """A handler thread of several queues, whose steps the test takes."""

    def __init__(
        self, *managers: ConsumerManager[str], weights: tuple[int, ...] = (), credit: Credit | None = None
    ) -> None:
        self.wakeups = 0
        self.consumer: MultiQueueConsumer[str] = MultiQueueConsumer(self._wake, credit)
        for number, manager in enumerate(managers):
            self.consumer.add_queue(manager, weight=weights[number] if weights else 1)

    def _wake(self) -> None:
        self.wakeups += 1

    def take(self) -> Pulled[str] | None:
        """Pull one message, and stay busy with it."""
        return self.consumer.pull()

    def handle(self) -> str | None:
        """Pull one message, which ends the one before."""
        pulled = self.take()
        return None if pulled is None else pulled.ready.message

    def handle_all(self) -> list[str]:
        return list(iter(self.handle, None))


def put(manager: ConsumerManager[str], *messages: str) -> None:
    manager.put([Ready(message) for message in messages])


def test_it_takes_turns_and_goes_on_where_it_stopped() -> None:
    queues = [Counting() for _ in range(3)]
    thread = Thread(*queues)
    for name, queue in zip("abc", queues, strict=True):
        put(queue, *name * 2)
    assert [thread.handle() for _ in range(4)] == ["a", "b", "c", "a"]
    put(queues[0], "a")
    assert thread.handle_all() == ["b", "c", "a"]


def test_turns_follow_the_weights_evenly_spread() -> None:
    heavy, light = Counting(), Counting()
    thread = Thread(heavy, light, weights=(3, 1))
    put(heavy, *"h" * 300)
    put(light, *"l" * 300)
    turns = "".join(thread.handle() or "-" for _ in range(400))
    assert Counter(turns) == {"h": 300, "l": 100}
    assert "hhhh" not in turns
    assert "ll" not in turns


def test_weights_count_only_under_load_and_nothing_is_saved_up() -> None:
    heavy, light = Counting(), Counting()
    thread = Thread(heavy, light, weights=(3, 1))
    put(light, *"l" * 100)
    assert thread.handle_all() == ["l"] * 100
    put(heavy, *"h" * 12)
    put(light, *"l" * 12)
    assert Counter(thread.handle() for _ in range(8)) == {"h": 6, "l": 2}


def test_after_nothing_it_is_woken_once_by_any_of_its_queues() -> None:
    first, second = Counting(), Counting()
    thread = Thread(first, second)
    assert thread.handle() is None
    put(second, "x")
    put(first, "y")
    assert thread.wakeups == 1
    assert sorted(thread.handle_all()) == ["x", "y"]
    put(first, "z")
    assert thread.wakeups == 2


def test_a_pull_looks_at_none_of_a_thousand_queues_that_have_nothing() -> None:
    queues = [Counting() for _ in range(1_000)]
    thread = Thread(*queues)
    assert thread.handle() is None
    for queue in queues:
        queue.pulls = 0
    for number in range(100):
        put(queues[number % 2], "x")
        assert thread.handle() == "x"
    assert thread.handle() is None
    assert sum(queue.pulls for queue in queues) <= 102


def test_another_is_woken_while_it_is_busy_with_a_message_of_another_queue() -> None:
    first, second = Counting(), Counting()
    busy, other = Thread(first, second), Thread(second)
    assert busy.handle() is None
    assert other.handle() is None
    put(first, "long")
    assert busy.take() is not None
    put(second, "x")
    assert (busy.wakeups, other.wakeups) == (1, 1)
    assert other.handle() == "x"


def test_a_wakeup_that_it_does_not_follow_is_handed_over() -> None:
    first, second = Counting(), Counting()
    busy, other = Thread(first, second), Thread(second)
    assert busy.handle() is None
    assert other.handle() is None
    put(second, "x")
    put(first, "long")
    assert (busy.wakeups, other.wakeups) == (1, 0)
    busy.consumer.remove_queue(second)
    assert other.wakeups == 1
    assert (busy.handle_all(), other.handle_all()) == (["long"], ["x"])


def test_when_it_becomes_busy_the_queues_that_woke_it_wake_others() -> None:
    first, second = Counting(), Counting()
    busy, other = Thread(first, second), Thread(second)
    assert busy.handle() is None
    assert other.handle() is None
    put(first, "long")
    put(second, "x")
    pulled = busy.take()
    assert pulled is not None
    assert (pulled.ready.message, other.wakeups) == ("long", 1)


def test_a_released_message_goes_back_to_its_queue() -> None:
    queue = Counting()
    thread = Thread(queue)
    put(queue, "x")
    pulled = thread.take()
    assert pulled is not None
    assert pulled.manager.release(pulled.consumer, pulled.ready)
    assert thread.handle_all() == ["x"]


def test_a_pause_sends_what_waits_to_others_and_a_resume_wakes_it() -> None:
    queue, credit = Counting(), Credit(1)
    first, second = Thread(queue, credit=credit), Thread(queue)
    assert (first.handle(), second.handle()) == (None, None)
    credit.pause()
    put(queue, "x")
    assert (first.wakeups, second.wakeups) == (0, 1)
    assert first.handle() is None
    credit.resume()
    assert first.wakeups == 1
    second.consumer.close()
    assert first.handle_all() == ["x"]


def test_a_queue_with_a_limit_runs_no_more_at_a_time_and_the_next_one_when_one_has_ended() -> None:
    queue, other = Counting(running=2), Counting()
    threads = [Thread(queue, other) for _ in range(3)]
    for thread in threads:
        assert thread.handle() is None
    put(queue, *"abcd")
    put(other, "x")
    assert [thread.wakeups for thread in threads] == [1, 1, 0]
    assert [thread.handle() for thread in threads] == ["a", "b", "x"]
    assert threads[2].handle() is None
    assert threads[0].handle() == "c"
    assert [thread.wakeups for thread in threads] == [1, 1, 1]
    put(other, "y")
    assert threads[2].handle() == "y"
    assert threads[1].handle() == "d"


def test_the_place_of_a_message_that_has_ended_goes_to_another_when_its_thread_goes_on_elsewhere() -> None:
    limited, other = Counting(running=1), Counting()
    first, second = Thread(other, limited), Thread(limited)
    assert (first.handle(), second.handle()) == (None, None)
    put(limited, "a")
    assert first.handle() == "a"
    put(limited, "b")
    put(other, "x")
    assert (first.wakeups, second.wakeups) == (1, 0)
    assert first.handle() == "x"
    assert second.wakeups == 1
    assert second.handle_all() == ["b"]


class Interrupted(Counting):
    """A manager whose quick pulls are followed by something that another thread does."""

    def __init__(self) -> None:
        super().__init__(running=1)
        self.then: Callable[[], object] = bool

    def pull_quickly(self, consumer: Consumer[str]) -> Ready[str] | None:
        ready = super().pull_quickly(consumer)
        self.then()
        return ready


def test_the_place_goes_to_another_also_if_a_message_elsewhere_comes_in_the_middle_of_the_pull() -> None:
    limited, other = Interrupted(), Counting()
    first, second = Thread(other, limited), Thread(limited)
    assert (first.handle(), second.handle()) == (None, None)
    put(limited, *"ab")
    assert [first.handle(), first.handle()] == ["a", "b"]
    put(limited, "c")
    limited.then = lambda: put(other, "x")
    assert first.handle() == "x"
    assert second.wakeups == 1
    assert second.handle() == "c"


def test_the_place_of_a_consumer_that_leaves_is_free() -> None:
    queue = Counting(running=1)
    first, second = Thread(queue), Thread(queue)
    assert (first.handle(), second.handle()) == (None, None)
    put(queue, "a", "b")
    assert first.handle() == "a"
    assert second.wakeups == 0
    first.consumer.close()
    assert second.wakeups == 1
    assert second.handle() == "b"
