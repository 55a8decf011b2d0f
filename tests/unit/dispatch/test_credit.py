"""When a consumer is interested, and when a change of that is reported."""

from __future__ import annotations

import pytest

from astyqueue.dispatch.consumers.credit import Credit


def reporting(credit: Credit) -> list[bool]:
    reports: list[bool] = []
    credit.listen(lambda: reports.append(credit.interested))
    return reports


@pytest.mark.parametrize(
    ("messages", "size", "taken", "interested"),
    [
        (0, 0, [5] * 100, True),
        (2, 0, [5], True),
        (2, 0, [5, 5], False),
        (0, 10, [5], True),
        (0, 10, [5, 5], False),
        (0, 10, [100], False),
        (0, 10, [0], True),
    ],
)
def test_interest_ends_with_either_limit(messages: int, size: int, taken: list[int], *, interested: bool) -> None:
    credit = Credit(messages, size)
    assert all(credit.take(one) for one in taken)
    assert credit.interested is interested


def test_nothing_is_taken_beyond_a_limit_or_while_paused_or_not_permitted() -> None:
    credit = Credit(1)
    assert credit.take(0)
    assert not credit.take(0)
    assert not Credit(permitted=False).take(0)
    paused = Credit()
    paused.pause()
    assert not paused.take(0)


def test_only_changes_are_reported() -> None:
    credit = Credit(2)
    reports = reporting(credit)
    credit.take(0)
    credit.give_back()
    credit.pause()
    credit.pause()
    credit.permit(permitted=False)
    credit.resume()
    credit.permit(permitted=True)
    assert reports == [False, True]


def test_an_end_of_interest_by_taking_is_not_reported_and_its_return_is_unless_silent() -> None:
    credit = Credit(1)
    reports = reporting(credit)
    credit.take(0)
    credit.give_back(silently=True)
    credit.take(0)
    credit.give_back()
    assert reports == [True]


def test_after_a_message_that_did_not_fit_interest_waits_until_it_does() -> None:
    credit = Credit(size=10)
    assert credit.take(4)
    assert credit.take(4)
    assert not credit.fits(8)
    assert not credit.interested
    credit.give_back(4)
    assert not credit.interested
    credit.give_back(4)
    assert credit.interested


def test_the_size_it_was_short_of_is_forgotten_on_request_and_by_taking_a_message() -> None:
    credit = Credit(size=10)
    credit.take(4)
    assert not credit.take(8)
    reports = reporting(credit)
    credit.forget_need()
    assert reports == [True]
    assert not credit.take(8)
    credit.give_back(4)
    assert credit.take(4)
    assert credit.interested


def test_a_listener_that_left_gets_no_reports() -> None:
    credit = Credit()
    seen: list[int] = []

    def listener() -> None:
        seen.append(1)

    credit.listen(listener)
    credit.unlisten(listener)
    credit.pause()
    assert seen == []
