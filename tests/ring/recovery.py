"""How soon handling recovered after each fault, in figures and as a table."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from itertools import pairwise
from typing import Final

from astyqueue.units import SECOND
from tests.ring.checks import Verdict
from tests.ring.nemesis import Befallen
from tests.ring.observations import Testimony, between
from tests.ring.run import Played

Figures = dict[str, object]
_WINDOW: Final = SECOND // 2
_BEFORE: Final = 4 * SECOND
_ENOUGH: Final = 0.5
_HEADINGS: Final = {
    "fault": "fault",
    "at_s": "at, s",
    "lasted_s": "lasted, s",
    "handled_per_s_before": "handled a second before",
    "handled_per_s_during": "during",
    "longest_pause_s": "longest pause, s",
    "half_rate_again_s": "half the rate again after, s",
    "errors": "errors",
    "first_error_s": "first error after, s",
    "last_error_s": "last error after, s",
    "in_flight": "in flight",
    "doubles": "doubles",
    "note": "",
}


def recoveries(played: Played, told: Testimony, verdict: Verdict) -> list[Figures]:
    """Figures for each fault; all times are since it began."""
    handled = sorted(holding.delivered for holding in told.holdings)
    failed = [failure.at for failure in told.failures]
    return [
        {
            "fault": str(befallen.fault),
            "at_s": _seconds(befallen.began - played.began),
            "lasted_s": _seconds(befallen.ended - befallen.began),
            **_pace(befallen, handled),
            **_errors(befallen, failed),
            "in_flight": verdict.in_flight[place],
            "doubles": verdict.doubles_of(place),
            "note": befallen.note,
        }
        for place, befallen in enumerate(played.faults)
    ]


def _pace(befallen: Befallen, handled: list[int]) -> Figures:
    before = _rate(handled, befallen.began - _BEFORE, befallen.began)
    inside = handled[bisect_left(handled, befallen.began) : bisect_left(handled, befallen.until)]
    pause = max(later - earlier for earlier, later in pairwise([befallen.began, *inside, befallen.until]))
    return {
        "handled_per_s_before": round(before),
        "handled_per_s_during": round(_rate(handled, befallen.began, max(befallen.ended, befallen.began + SECOND))),
        "longest_pause_s": _seconds(pause),
        "half_rate_again_s": _recovered(befallen, handled, enough=before * _ENOUGH),
    }


def _recovered(befallen: Befallen, handled: list[int], *, enough: float) -> float | None:
    """Seconds until the rate is enough again; None if it is not before the next fault.

    That is the start of the first window whose rate is enough, as is the median of all windows from it on.
    """
    windows = range(befallen.began, befallen.until - _WINDOW + 1, _WINDOW)
    rates = [_rate(handled, start, start + _WINDOW) for start in windows]
    for number, rate in enumerate(rates):
        if rate >= enough and statistics.median(rates[number:]) >= enough:
            return number * _WINDOW / SECOND
    return None


def _errors(befallen: Befallen, failed: list[int]) -> Figures:
    inside = failed[bisect_left(failed, befallen.began) : bisect_left(failed, befallen.until)]
    first, last = (inside[0], inside[-1]) if inside else (None, None)
    return {
        "errors": len(inside),
        "first_error_s": None if first is None else _seconds(first - befallen.began),
        "last_error_s": None if last is None else _seconds(last - befallen.began),
    }


def _rate(moments: list[int], since: int, until: int) -> float:
    return between(moments, since, until) * SECOND / (until - since)


def _seconds(microseconds: int) -> float:
    return round(microseconds / SECOND, 1)


def table(figures: list[Figures]) -> str:
    """The figures in Markdown."""
    rows = [
        list(_HEADINGS.values()),
        ["---"] * len(_HEADINGS),
        *([_cell(each[name]) for name in _HEADINGS] for each in figures),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
