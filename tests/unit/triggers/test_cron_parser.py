"""What is wrong with a cron expression is said with the field and the reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from astyqueue.errors import BadExpression, BadInput
from astyqueue.triggers import Cron
from astyqueue.triggers.cron.matcher import LAST
from astyqueue.triggers.cron.parser import Form, read_expression

#: How the reason goes on if an element is neither a value nor a range nor steps.
OTHER_FORMS = ", a range such as 1-5, steps such as */2, or a list of those"
REFUSED = [
    ("60 * * * *", "minute", "60 is out of bounds: give 0 to 59"),
    ("0 24 * * *", "hour", "24 is out of bounds: give 0 to 23"),
    ("0 0 0 * *", "day of month", "0 is out of bounds: give 1 to 31 or L for the last"),
    ("0 0 1-32 * *", "day of month", "32 is out of bounds: give 1 to 31 or L for the last"),
    ("0 0 * 13 *", "month", "13 is out of bounds: give 1 to 12 or jan to dec"),
    ("0 0 * * 8", "day of week", "8 is out of bounds: give 0 to 7 or sun to sat"),
    ("0 0 * march *", "month", "'march' is not understood: give 1 to 12 or jan to dec"),
    ("0 0 * * fry", "day of week", "'fry' is not understood: give 0 to 7 or sun to sat"),
    ("x * * * *", "minute", "'x' is not understood: give 0 to 59"),
    ("-5 * * * *", "minute", f"'-5' is not understood: give 0 to 59{OTHER_FORMS}"),
    ("1.5 * * * *", "minute", f"'1.5' is not understood: give 0 to 59{OTHER_FORMS}"),
    ("\u0663 * * * *", "minute", f"'\u0663' is not understood: give 0 to 59{OTHER_FORMS}"),
    ("1,,2 * * * *", "minute", "an element before, between or after its commas is empty"),
    ("*/0 * * * *", "minute", "the step of '*/0' is not from 1 to 59: steps restart with each cycle of the field"),
    ("*/60 * * * *", "minute", "the step of '*/60' is not from 1 to 59: steps restart with each cycle of the field"),
    ("0 */24 * * *", "hour", "the step of '*/24' is not from 1 to 23: steps restart with each cycle of the field"),
    ("5-1/2 * * * *", "minute", "the range '5-1/2' wraps around: write it as two"),
    ("0 5-5 * * *", "hour", "the range '5-5' begins where it ends: write 5"),
    ("0 0 * * fri-5", "day of week", "the range 'fri-5' begins where it ends: write fri"),
    ("0 0 * * fri#6", "day of week", "'fri#6' is weekday number 6, but a month has 5 at most"),
    ("0 0 * * 1-5#2", "day of week", f"'1-5#2' is not understood: give 0 to 7 or sun to sat{OTHER_FORMS}"),
    ("0 0 * * L", "day of week", "'l' is not understood: give 0 to 7 or sun to sat"),
    ("L * * * *", "minute", "'l' is not understood: give 0 to 59"),
    ("0 0 L-3 * *", "day of month", "'l' is not understood: give 1 to 31 or L for the last"),
    ("0 0 30 2 *", "day of month", "none of the given months has such a day, so this would never fire"),
    ("0 0 31 4,6,9,11 *", "day of month", "none of the given months has such a day, so this would never fire"),
    ("0 0 ? * *", "day of month", f"'?' is not understood: give 1 to 31 or L for the last{OTHER_FORMS}"),
    ("@reboot", "", "the short forms are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"),
]


@pytest.mark.parametrize(("expression", "field", "why"), REFUSED, ids=[expression for expression, *_ in REFUSED])
def test_what_cannot_be_read_is_refused_with_the_field_and_the_reason(expression: str, field: str, why: str) -> None:
    with pytest.raises(BadExpression) as raised:
        Cron(expression)
    assert (raised.value.expression, raised.value.field, raised.value.why) == (expression, field, why)
    assert str(raised.value) == f"cron expression {expression!r}{field and ', '}{field}: {why}"
    assert isinstance(raised.value, BadInput)


@pytest.mark.parametrize(
    ("expression", "field", "why"),
    [
        ("0 0 12 * * *", "day of week", "[?] in exactly one of day-of-month and day-of-week"),
        ("0 0 12 ? * ?", "day of week", "[?] in exactly one of day-of-month and day-of-week"),
        ("0 0 12 ? * 0", "day of week", "0 is out of bounds: give 1 to 7 or sun to sat"),
        ("? 0 12 ? * 1", "second", "'[?]' is not understood"),
        ("0 0 12 ? * 1 1969", "year", "1969 is out of bounds: give 1970 to 2099"),
        ("0 0 12 ? * 1 2030-2026", "year", "wraps around"),
        ("0 0 12 29 2 ? 2027", "day of month", "never fire"),
        ("0 12 ? * 1", "", "has 5 fields, and this form has 6 fields .* or 7 fields"),
    ],
)
def test_quartz_has_rules_of_its_own(expression: str, field: str, why: str) -> None:
    with pytest.raises(BadExpression, match=why) as raised:
        Cron.quartz(expression)
    assert raised.value.field == field


def test_a_sixth_field_has_to_be_asked_for() -> None:
    with pytest.raises(
        BadExpression, match=r"Cron\(\.\.\., seconds=True\) takes seconds as a last field and Cron\.quartz as the first"
    ):
        Cron("* * * * * *")
    with pytest.raises(BadExpression, match="has 5 fields, and this form has 6 fields"):
        Cron("* * * * *", seconds=True)


def test_the_error_shows_no_more_of_an_expression_than_one_reads() -> None:
    with pytest.raises(BadExpression) as raised:
        Cron("9" * 5_000)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("expression", "weekdays"),
    [
        ("0 0 * * 0-7", tuple((day, 0) for day in range(7))),
        ("0 0 * * 7-2", ((0, 0), (1, 0), (2, 0))),
        ("0 0 * * 1-7/2", ((0, 0), (1, 0), (3, 0), (5, 0))),
        ("0 0 * * friL,7#1", ((0, 1), (5, LAST))),
        ("0 0 * * *", None),
        ("0 0 * * */1", None),
    ],
)
def test_sunday_is_0_and_7(expression: str, weekdays: object) -> None:
    assert read_expression(expression, "unix").weekdays == weekdays


def test_blanks_and_capitals_do_not_matter() -> None:
    assert Cron(" 0  9 * JAN   Mon-FRI ") == Cron("0 9 * JAN Mon-FRI")
    assert Cron("0 9 * JAN Mon-FRI").after(0) == Cron("0 9 * jan mon-fri").after(0)
    assert Cron("@Daily").after(0) == Cron("@daily").after(0)


@given(
    text=st.text(alphabet="0123456789*/-,#?LWljanfri @", max_size=25),
    form=st.sampled_from(["unix", "seconds", "quartz"]),
)
def test_whatever_is_written_is_read_or_refused(text: str, form: Form) -> None:
    try:
        fields = read_expression(text, form)
    except BadExpression:
        return
    assert fields.first(0) is not None


FIELDS = {
    "minutes": range(60),
    "hours": range(24),
    "month_days": range(1, 32),
    "months": range(1, 13),
    "weekdays": range(7),
    "seconds": range(60),
}


def elements(field: str) -> Iterator[str]:
    """Values, ranges, also those that go round, and steps: around the ends of a field and in its middle."""
    least, most = FIELDS[field][0], 7 if field == "weekdays" else FIELDS[field][-1]
    values = sorted({least, least + 1, (least + most) // 2, most - 1, most})
    heads = ["*", *map(str, values), *(f"{low}-{high}" for low, high in product(values, values))]
    for head, step in product(heads, ("", "/1", "/2", "/3", "/5", f"/{(most - least) // 2}", f"/{most - least}")):
        yield head + step


@pytest.mark.parametrize("field", FIELDS)
def test_what_is_read_is_what_croniter_reads(field: str) -> None:
    index, compared = list(FIELDS).index(field), 0
    for element in elements(field):
        expression = " ".join(element if at == index else "*" for at in range(len(FIELDS)))
        try:
            read = getattr(read_expression(expression, "seconds"), field)
        except BadExpression:
            continue
        days = FIELDS[field] if read is None else [value[0] if field == "weekdays" else value for value in read]
        wanted = croniter.expand(expression)[0][index]
        assert (element, list(days)) == (element, list(FIELDS[field]) if wanted == ["*"] else wanted)
        compared += 1
    assert compared > 100
