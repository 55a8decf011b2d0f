"""What the terms of consumers change: priority, selector, bytes, standing by, and only browsing."""

from __future__ import annotations

from collections.abc import Mapping

from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.ready_buffer import Ready, Selector
from tests.unit.dispatch.test_consumer_manager import ONLY_A, Bench


def test_a_lower_one_gets_nothing_while_a_higher_one_is_there_and_all_when_it_left() -> None:
    bench = Bench()
    low, high = bench.consumer("low"), bench.consumer("high", priority=1)
    bench.put(1, 2)
    assert bench.woken == ["high"]
    assert bench.all(low) == []
    assert bench.pull(high) == 1
    bench.manager.remove_consumer(high)
    assert bench.woken == ["high", "low"]
    assert bench.all(low) == [2]


def test_a_lower_one_gets_the_third_when_the_higher_one_has_credit_for_two() -> None:
    bench = Bench()
    low, high = bench.consumer("low"), bench.consumer("high", priority=1, credit=Credit(2))
    bench.put(1, 2, 3)
    assert bench.all(high) == [1, 2]
    assert bench.woken == ["high", "low"]
    assert bench.all(low) == [3]


def test_a_lower_one_gets_what_the_selector_of_the_higher_one_refuses() -> None:
    bench = Bench()
    low, high = bench.consumer("low"), bench.consumer("high", priority=1, selector=ONLY_A)
    bench.put("for high", task="a")
    bench.put("for low", task="b")
    assert bench.woken == ["high", "low"]
    assert (bench.all(low), bench.all(high)) == (["for low"], ["for high"])


def test_a_lower_one_gets_what_the_higher_one_rejected() -> None:
    bench = Bench()
    low, high = bench.consumer("low"), bench.consumer("high", priority=1)
    (ready,) = bench.put(1)
    assert bench.all(high) == [1]
    bench.manager.release(high, ready, reject=True)
    assert bench.woken == ["high", "low"]
    assert bench.all(low) == [1]


def test_a_change_of_priority_counts_at_once() -> None:
    bench = Bench()
    low, high = bench.consumer("low"), bench.consumer("high", priority=1)
    bench.put(1)
    bench.manager.set_priority(low, 2)
    assert bench.all(high) == []
    assert bench.all(low) == [1]


def test_a_lower_one_that_waited_too_long_gets_the_next_message() -> None:
    bench = Bench(age=10)
    low, high = bench.consumer("low"), bench.consumer("high", priority=1)
    bench.put(1, 2, 3)
    assert bench.pull(high) == 1
    bench.time = 10
    bench.manager.recheck()
    assert bench.woken == ["high", "low"]
    assert (bench.all(high), bench.all(low)) == ([3], [2])
    bench.put(4)
    assert bench.woken == ["high", "low", "high"]


def test_what_is_kept_for_one_that_waited_goes_back_when_it_leaves() -> None:
    bench = Bench(age=10)
    low, high = bench.consumer("low"), bench.consumer("high", priority=1)
    bench.put(1, 2)
    assert bench.pull(high) == 1
    bench.time = 10
    bench.manager.recheck()
    bench.manager.remove_consumer(low)
    assert bench.all(high) == [2]


def test_each_message_is_shown_to_a_function_once() -> None:
    bench = Bench()
    seen: list[str | None] = []

    def accepts(task: str | None, _: Mapping[str, str]) -> bool:
        seen.append(task)
        return task == "z"

    consumer = bench.consumer(selector=Selector(accepts=accepts))
    for number in range(100):
        bench.put(number, task=str(number))
    bench.put("found", task="z")
    assert [bench.all(consumer) for _ in range(3)] == [["found"], [], []]
    assert len(seen) == 101


def test_headers_decide_and_a_function_that_raises_accepts_nothing() -> None:
    bench = Bench()
    tall = bench.consumer(selector=Selector(accepts=lambda _, headers: int(headers["height"]) > 3))
    bench.manager.put([Ready(height, headers={"height": height}) for height in ("2", "4", "?", "5")])
    assert bench.all(tall) == ["4", "5"]


def test_equal_selectors_of_several_consumers_take_turns() -> None:
    bench = Bench()
    for name in "ab":
        bench.consumer(name, selector=Selector(frozenset({"a"})))
    bench.put(1, task="a")
    bench.put(2, task="a")
    assert bench.woken == ["a", "b"]


def test_messages_that_wait_are_offered_to_a_selector_that_comes_later_or_goes() -> None:
    bench = Bench()
    bench.put(1, 2, task="a")
    bench.put(3, task="b")
    picky = bench.consumer("picky", selector=ONLY_A)
    assert bench.pull(picky) == 1
    bench.manager.remove_consumer(picky)
    assert bench.all(bench.consumer("all")) == [2, 3]


def test_a_message_larger_than_the_limit_goes_out_when_no_byte_is_used() -> None:
    bench = Bench()
    credit = Credit(size=10)
    consumer = bench.consumer(credit=credit)
    bench.put("huge", size=100)
    bench.put("small", size=1)
    assert bench.all(consumer) == ["huge"]
    credit.give_back(100)
    assert bench.all(consumer) == ["small"]


def test_a_consumer_short_of_bytes_is_woken_when_it_has_enough_and_not_before() -> None:
    bench = Bench()
    credit = Credit(size=10)
    consumer = bench.consumer(credit=credit)
    bench.put(1, 2, size=4)
    bench.put(3, size=8)
    assert bench.all(consumer) == [1, 2]
    credit.give_back(4)
    assert bench.woken == ["c"]
    credit.give_back(4)
    assert bench.woken == ["c", "c"]
    assert bench.all(consumer) == [3]


def test_a_lower_priority_gets_what_does_not_fit_above() -> None:
    bench = Bench()
    high, low = bench.consumer("high", priority=1, credit=Credit(size=10)), bench.consumer("low")
    bench.put(1, size=8)
    bench.put(2, size=8)
    assert bench.all(high) == [1]
    assert bench.woken == ["high", "low"]
    assert bench.all(low) == [2]


def test_when_the_message_that_did_not_fit_went_elsewhere_the_next_one_is_looked_at() -> None:
    bench = Bench()
    short, other = bench.consumer("short", credit=Credit(size=10)), bench.consumer("other", credit=Credit(1))
    bench.put("first", size=8)
    assert bench.pull(short) == "first"
    bench.put("large", size=8)
    assert bench.pull(short) is None
    bench.put("small", size=2)
    assert bench.pull(other) == "large"
    assert bench.woken == ["short", "other", "short"]
    assert bench.pull(short) == "small"


def test_when_the_message_that_did_not_fit_expired_the_next_one_is_looked_at() -> None:
    bench = Bench()
    consumer = bench.consumer(credit=Credit(size=10))
    bench.manager.put([Ready("first", size=8), Ready("large", size=8, expires=5), Ready("small", size=2)])
    assert bench.all(consumer) == ["first"]
    bench.manager.recheck()
    assert bench.woken == ["c"]
    bench.time = 5
    bench.manager.recheck()
    assert bench.woken == ["c", "c"]
    assert bench.all(consumer) == ["small"]


def test_the_next_one_is_looked_at_also_if_its_consumer_pulls_before_the_recheck() -> None:
    bench = Bench()
    consumer = bench.consumer(credit=Credit(size=10))
    bench.manager.put([Ready("first", size=8), Ready("large", size=8, expires=5), Ready("small", size=2)])
    assert bench.all(consumer) == ["first"]
    bench.time = 5
    bench.all(consumer)
    bench.manager.recheck()
    assert bench.all(consumer) == ["small"]


def test_the_second_gets_nothing_until_the_first_leaves_and_then_goes_on_in_order() -> None:
    bench = Bench(live=1)
    first, second = bench.consumer("a"), bench.consumer("b")
    bench.put(1, 2, 3)
    assert bench.pull(first) == 1
    assert bench.all(second) == []
    bench.manager.remove_consumer(first)
    assert bench.woken == ["a", "b"]
    assert bench.all(second) == [2, 3]


def test_one_that_left_while_it_stood_by_is_not_promoted() -> None:
    bench = Bench(live=1)
    first, second, third = (bench.consumer(name) for name in "abc")
    bench.put(1)
    bench.manager.remove_consumer(second)
    bench.manager.remove_consumer(first)
    assert bench.woken == ["a", "c"]
    assert bench.all(third) == [1]


def test_each_sees_all_messages_once_and_the_consumers_get_them_all_the_same() -> None:
    bench = Bench()
    bench.put(1)
    browsers = [bench.consumer(name, browser=True) for name in "ab"]
    bench.put(2)
    assert bench.woken == ["a", "b"]
    assert [bench.all(browser) for browser in browsers] == [[1, 2], [1, 2]]
    assert bench.all(bench.consumer()) == [1, 2]


def test_a_selector_and_what_is_gone_are_respected_and_the_end_is_none() -> None:
    bench = Bench()
    browser = bench.consumer(browser=True, selector=ONLY_A)
    assert bench.all(browser) == []
    bench.put("other", task="b")
    gone, _ = bench.put("gone", "there", task="a")
    bench.manager.remove(gone)
    assert bench.all(browser) == ["there"]


def test_a_released_message_is_not_shown_again() -> None:
    bench = Bench()
    browser, consumer = bench.consumer("b", browser=True), bench.consumer("c")
    (ready,) = bench.put(1)
    assert bench.all(browser) == [1]
    assert bench.all(consumer) == [1]
    bench.manager.release(consumer, ready)
    assert bench.woken == ["b", "c", "c"]
    assert bench.all(browser) == []


def test_one_that_never_pulls_keeps_a_bounded_number_of_messages() -> None:
    bench = Bench()
    browser, consumer = bench.consumer("b", browser=True), bench.consumer("c")
    for number in range(1_000):
        bench.put(number)
        assert bench.all(consumer) == [number]
    assert len(bench.manager._browsers.unseen[browser]) <= 66  # noqa: SLF001 - its memory is what is shown
