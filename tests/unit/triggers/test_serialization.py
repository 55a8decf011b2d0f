"""Triggers as JSON and back, and those that users register."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from astyqueue.clock import microseconds
from astyqueue.errors import BadInput, UnknownTrigger
from astyqueue.triggers import AnyOf, Cron, Days, Every, Excluding, Once, Times, Trigger, Triggers

START = datetime(2026, 5, 1, 9, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(4999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds are naive, the moments are not
DURATIONS = st.timedeltas(timedelta(milliseconds=1), timedelta(days=10_000))
MAYBE = st.one_of(st.none(), st.integers(1, 20))
ONCES = st.one_of(st.builds(Once, MOMENTS), st.builds(lambda delay: Once(delay=delay), DURATIONS))
EVERIES = st.builds(
    lambda interval, moments, **others: Every(interval, start=min(moments), end=max(moments), **others),
    DURATIONS,
    st.tuples(MOMENTS, MOMENTS),
    count=MAYBE,
    jitter=st.timedeltas(timedelta(0), timedelta(milliseconds=1)),
    seed=st.one_of(st.none(), st.text(max_size=5)),
)
CRONS = st.one_of(
    st.builds(
        Cron,
        st.sampled_from(["@daily", "0 9 * * mon-fri"]),
        st.sampled_from(["UTC", "Europe/Paris"]),
        start=st.none() | MOMENTS,
        count=MAYBE,
    ),
    st.builds(Cron.quartz, st.just("*/5 * * * * ?"), end=st.none() | MOMENTS),
    st.builds(lambda end: Cron("0 0 * * * 30", seconds=True, end=end), MOMENTS),
)
CALENDARS = st.sampled_from([Days(["12-25"], "Europe/Paris"), Times("* 0-5 * * *"), Times("* * * * * 5", seconds=True)])
SINGLE: st.SearchStrategy[Trigger] = st.one_of(ONCES, EVERIES, CRONS)
TRIGGERS = st.recursive(
    SINGLE,
    lambda inner: (
        st.builds(lambda triggers: AnyOf(*triggers), st.lists(inner, min_size=1, max_size=3))
        | st.builds(Excluding, inner, CALENDARS)
    ),
)


@given(trigger=TRIGGERS)
def test_a_trigger_comes_back_from_json_as_an_equal_one(trigger: Trigger) -> None:
    again = Triggers().read(json.loads(json.dumps(trigger.document())))
    assert again == trigger
    assert hash(again) == hash(trigger)
    assert again.anchored(0, seed="s") == trigger.anchored(0, seed="s")


def test_what_is_stored_stays_readable() -> None:
    stored: dict[str, JsonValue] = {
        "kind": "excluding",
        "trigger": {
            "kind": "any of",
            "triggers": [
                {"kind": "once", "at_us": 1_777_626_000_000_000},
                {
                    "kind": "every",
                    "interval_us": 3_600_000_000,
                    "start_us": 0,
                    "count": 5,
                    "jitter_us": 1_000_000,
                    "seed": "s",
                },
                {
                    "kind": "cron",
                    "expression": "0 9 * * *",
                    "zone": "Europe/Paris",
                    "form": "unix",
                    "end_us": 1_777_626_000_000_000,
                },
            ],
        },
        "calendars": [
            {"kind": "days", "days": ["12-25"], "zone": "UTC"},
            {"kind": "times", "expression": "* 0-5 * * *", "zone": "UTC", "form": "unix"},
        ],
    }
    assert Triggers().read(stored).document() == stored


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (None, "kind is None, not text"),
        ({"kind": "never"}, "its kind is 'never', which this astyqueue does not know"),
        ({"kind": "once"}, "one of the two"),
        ({"kind": "once", "at_us": "soon"}, "at_us is 'soon', not a whole number"),
        ({"kind": "once", "at_us": True}, "at_us is True, not a whole number"),
        ({"kind": "once", "at_us": 10**30}, "outside the years 1 to 9999"),
        ({"kind": "once", "delay_us": 10**30}, "longer than any duration"),
        ({"kind": "once", "at_us": 5, "colour": "red"}, "fields that this astyqueue does not know: colour"),
        ({"kind": "every"}, "at least a millisecond"),
        ({"kind": "every", "interval_us": 5_000, "seed": 5}, "seed is 5, not text"),
        ({"kind": "cron", "expression": "@daily", "zone": "UTC", "form": "other"}, "its form is 'other'"),
        ({"kind": "cron", "expression": "@never", "zone": "UTC", "form": "unix"}, "the short forms are"),
        ({"kind": "any of", "triggers": 5}, "triggers is 5, not a list"),
        ({"kind": "any of", "triggers": []}, "one trigger or more"),
        (
            {"kind": "excluding", "trigger": {"kind": "once", "at_us": 5}, "calendars": [{"kind": "moon"}]},
            "its kind is 'moon'",
        ),
        (
            {
                "kind": "excluding",
                "trigger": {"kind": "once", "at_us": 5},
                "calendars": [{"kind": "days", "days": [5], "zone": "UTC"}],
            },
            "invalid day",
        ),
        ({"kind": "custom", "name": "moon", "arguments": 5}, "its arguments are not a JSON object"),
    ],
)
def test_what_is_no_trigger_is_refused_and_never_guessed(document: JsonValue, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        Triggers().read(document)


def registered() -> Triggers:
    triggers = Triggers()

    @triggers.register("after the full hour")
    def after_the_hour(moment: datetime, *, minutes: int) -> datetime | None:
        return moment.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1, minutes=minutes)

    assert after_the_hour(minutes=5).name == "after the full hour"
    return triggers


OWN: JsonValue = {"kind": "custom", "name": "after the full hour", "arguments": {"minutes": 5}}


def test_a_registered_trigger_goes_by_its_name_and_its_arguments() -> None:
    trigger = registered().read(OWN)
    assert trigger.after(microseconds(START)) == microseconds(START + timedelta(minutes=65))
    assert trigger.document() == OWN
    assert trigger == registered().read(OWN)
    assert hash(trigger) == hash(registered().read(OWN))
    assert AnyOf(trigger, Once(START)) == registered().read(AnyOf(trigger, Once(START)).document())


def test_a_name_that_is_not_registered_here_is_named() -> None:
    with pytest.raises(
        UnknownTrigger, match="no trigger named 'after the full hour' is registered in this process"
    ) as raised:
        Triggers().read(OWN)
    assert raised.value.name == "after the full hour"


def test_a_name_is_taken_once() -> None:
    with pytest.raises(BadInput, match="registered already: give another name"):
        registered().register("after the full hour")


def test_arguments_are_json() -> None:
    triggers = Triggers()
    make = triggers.register("own")(lambda _: None)
    with pytest.raises(BadInput, match="the arguments of trigger 'own' must be JSON"):
        make(since=START)
    assert make().after(0) is None


@pytest.mark.parametrize(
    "answer", [START, START - timedelta(days=1), START.replace(tzinfo=None) + timedelta(days=1), 5]
)
def test_an_answer_that_is_not_later_is_refused(answer: object) -> None:
    make = Triggers().register("own")(lambda _: answer)  # type: ignore[arg-type, return-value]  # wrong answers are the point
    with pytest.raises(BadInput, match="it must return None, or an aware datetime later than that"):
        make().after(microseconds(START))
