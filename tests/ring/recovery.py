"""How soon handling recovered after each fault, in figures and as a table."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from itertools import pairwise
from typing import Final

from astyqueue.units import SECOND
from tests.ring.checks import CheckResult
from tests.ring.nemesis import InjectedFault
from tests.ring.observations import Observations, between
from tests.ring.run import RunResult

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
    "duplicates": "duplicates",
    "note": "",
}


def recoveries(run_result: RunResult, observations: Observations, result: CheckResult) -> list[Figures]:
    """Figures for each fault; all times are since it began."""
    handled = sorted(lease.delivered for lease in observations.leases)
    failed = [failure.at for failure in observations.failures]
    return [
        {
            "fault": str(injected.fault),
            "at_s": _seconds(injected.began - run_result.began),
            "lasted_s": _seconds(injected.ended - injected.began),
            **_pace(injected, handled),
            **_errors(injected, failed),
            "in_flight": result.in_flight[place],
            "duplicates": result.duplicates_of(place),
            "note": injected.note,
        }
        for place, injected in enumerate(run_result.faults)
    ]


def _pace(injected: InjectedFault, handled: list[int]) -> Figures:
    before = _rate(handled, injected.began - _BEFORE, injected.began)
    inside = handled[bisect_left(handled, injected.began) : bisect_left(handled, injected.until)]
    pause = max(later - earlier for earlier, later in pairwise([injected.began, *inside, injected.until]))
    return {
        "handled_per_s_before": round(before),
        "handled_per_s_during": round(_rate(handled, injected.began, max(injected.ended, injected.began + SECOND))),
        "longest_pause_s": _seconds(pause),
        "half_rate_again_s": _recovered(injected, handled, enough=before * _ENOUGH),
    }


def _recovered(injected: InjectedFault, handled: list[int], *, enough: float) -> float | None:
    """Seconds until the rate is enough again; None if it is not before the next fault.

    That is the start of the first window whose rate is enough, as is the median of all windows from it on.
    """
    windows = range(injected.began, injected.until - _WINDOW + 1, _WINDOW)
    rates = [_rate(handled, start, start + _WINDOW) for start in windows]
    for number, rate in enumerate(rates):
        if rate >= enough and statistics.median(rates[number:]) >= enough:
            return number * _WINDOW / SECOND
    return None


def _errors(injected: InjectedFault, failed: list[int]) -> Figures:
    inside = failed[bisect_left(failed, injected.began) : bisect_left(failed, injected.until)]
    first, last = (inside[0], inside[-1]) if inside else (None, None)
    return {
        "errors": len(inside),
        "first_error_s": None if first is None else _seconds(first - injected.began),
        "last_error_s": None if last is None else _seconds(last - injected.began),
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
