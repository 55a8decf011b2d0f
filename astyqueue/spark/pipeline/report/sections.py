"""The sections of a report about one queue; a section without data has one sentence, or is left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

import numpy as np

from astyqueue.clock import instant
from astyqueue.spark.pipeline.report import time_series
from astyqueue.spark.pipeline.report.charts import Bar, Cell, Counts, Lengths, bars, heat, lines
from astyqueue.spark.pipeline.report.data import Cause, Figures, measured, number
from astyqueue.spark.pipeline.report.html import (
    MOST,
    NONE,
    Heading,
    count,
    folded,
    length,
    others,
    plain,
    share,
    table,
    tag,
    text,
)
from astyqueue.spark.pipeline.report.reader import MOST_NAMES, OTHERS, Summaries, Summary
from astyqueue.spark.pipeline.report.time_series import TimeSlices
from astyqueue.spark.pipeline.schemas import LENGTHS, PERCENTILES, shortened

TITLES: Final = {"wait": "Waiting", "run": "Running", "end": "End to end"}
_MEANINGS: Final = {name: meaning for name, _, meaning in LENGTHS}
#: Bars of one chart.
_BARS: Final = 12
#: Days of one map.
_DAYS: Final = 31
#: The note if names are counted together.
_MANY: Final = f"There were more than {count(MOST_NAMES)} different names; all further names count as others."


def plotted(title: str, note: str, *content: Element | None) -> Element:
    """A section with a title, a sentence on its meaning, and content."""
    return tag("section", tag("h3", title), tag("p", note, class_="note"), *content, class_="plot")


def throughput(figures: Figures, slices: TimeSlices) -> Element:
    """Messages over time."""
    drawn = time_series.throughput(figures, slices)
    most = max((value or 0 for line in drawn for _, value in line.points), default=0)
    each = plain(slices.width)
    note = f"Messages sent and done, and attempts that failed, in each {each}."
    seen = f"{' and '.join(line.name for line in drawn)} over time, at most {count(most)} in each {each}."
    picture = lines(seen, drawn, times=slices.times, scale=Counts(most))
    return plotted("Throughput", note, picture)


def latency(figures: Figures, which: str, slices: TimeSlices) -> Element | None:
    """A length (wait, run or end) over time; None if it was never measured."""
    drawn = time_series.lengths(figures, which, slices)
    values = [value for line in drawn for _, value in line.points if value is not None]
    if not values:
        return None
    summary = figures.lengths()[which]
    overall = ", ".join(f"{name} {cell}" for (name, _), cell in zip(PERCENTILES, percentiles_of(summary), strict=False))
    scale = Lengths(min(value for value in values if value > 0) if any(values) else 1, max(*values, 1))
    note = f"{_MEANINGS[which].capitalize()}; each step of the scale is about ten times the last."
    return plotted(
        f"{TITLES[which]} over time",
        note,
        lines(f"{TITLES[which]} over time. Over all: {overall}.", drawn, times=slices.times, scale=scale),
    )


def percentiles_of(summary: Summary) -> list[str]:
    """The percentiles and the maximum, as text."""
    return [*map(length, summary.percentiles or [None] * len(PERCENTILES)), length(summary.longest)]


def summed_up(figures: Figures) -> Element:
    """The table of percentiles of the whole period."""
    rows = [
        [TITLES[name], _MEANINGS[name], count(summary.number), *percentiles_of(summary)]
        for name, summary in figures.lengths().items()
    ]
    headings = [text(""), text("meaning"), *map(Heading, ("number", "p50", "p95", "p99", "longest"))]
    return table(headings, rows, "Percentiles")


def warm_hours(figures: Figures) -> Element | None:
    """The map of waits by day and hour; None without any."""
    title = "Waiting by hour"
    facts = figures.facts["hour"]
    waits = zip(facts.numbers("began").tolist(), facts.numbers("wait_p95").tolist(), strict=True)
    hours = sorted((instant(int(began)), waited) for began, waited in waits if not math.isnan(waited))
    if not hours:
        return None
    if len(hours) == 1:
        [(began, waited)] = hours
        note = f"All waits are in one hour, from {began:%Y-%m-%d %H:%M} UTC on: 95 % waited at most {length(waited)}."
        return plotted(title, note)
    days = sorted({began.date() for began, _ in hours})[-_DAYS:]
    hours = [hour for hour in hours if hour[0].date() >= days[0]]
    scale = Lengths(min(waited for _, waited in hours), max(waited for _, waited in hours))
    cells = [
        Cell(days.index(began.date()), began.hour, scale.place(waited), f"{began:%d %b %H:%M}: {length(waited)}")
        for began, waited in hours
    ]
    longest, most = max(hours, key=lambda hour: hour[1])
    seen = f"The longest was {length(most)}, in the hour from {longest:%d %b %H:%M} on."
    picture = heat(
        f"{title}. {seen}",
        rows=[f"{day:%d %b}" for day in days],
        columns=[f"{hour:02}" for hour in range(24)],
        cells=cells,
    )
    listed = table(
        [text("hour (UTC)"), Heading("p95 of waiting")],
        [[f"{began:%Y-%m-%d %H:%M}", length(waited)] for began, waited in sorted(hours, key=lambda hour: -hour[1])],
        title,
    )
    note = f"The wait that 95 % did not exceed, in each hour (UTC); darker is longer. {seen}"
    return plotted(title, note, picture, folded("as a table, the longest first", listed))


def failing(figures: Figures) -> Element:
    """The failures by cause."""
    title = "Failures"
    causes = figures.failures
    ranked, alike = causes.ranked(), causes.alike()
    if not ranked:
        return plotted(title, "No attempt failed, and nothing became a dead letter.")
    first, most = alike[0]
    drawn = [Bar(failure, times / most, count(times)) for failure, times in alike[:_BARS]]
    rows = [_cause(failure, task, cause) for (failure, task), cause in ranked[:MOST]]
    left = sum((cause for _, cause in ranked[MOST:]), causes.others)
    last = [
        others(len(ranked) - MOST, complete=not causes.others.times),
        NONE,
        count(left.times),
        count(left.dead),
        NONE,
    ]
    headings = [text("cause"), text("task"), *map(Heading, ("times", "made dead")), text("the last one")]
    note = "Attempts that failed and messages that died, by cause: the reason without its variable parts."
    picture = bars(f"Failures by cause; the most frequent: {first}, {count(most)} times.", drawn)
    listed = table(headings, rows, "Failures by cause and task", last if left.times else None)
    return plotted(title, note, picture, listed)


def _cause(failure: str, task: str, cause: Cause) -> Sequence[str | Element]:
    return [tag("code", failure), task or NONE, count(cause.times), count(cause.dead), cause.example]


def tasks(figures: Figures) -> Element | None:
    """The tasks with their running time, the slowest first; None if none ran."""
    names = figures.attempts.names("task")
    summaries = Summaries(names, figures.attempts.numbers("ran"))
    ranked = summaries.slowest()
    if not ranked:
        return None
    found = [(names.names[code] or "(no task)", summaries.of(code)) for code in ranked[:MOST]]
    longest = _p95(found[0][1])
    drawn = [Bar(task, _p95(summary) / max(longest, 1), length(_p95(summary))) for task, summary in found[:_BARS]]
    rows = [[task, *_cost(summary, summaries.together)] for task, summary in found]
    left = summaries.others(ranked[:MOST])
    last = (
        [others(len(ranked) - MOST, complete=names.complete), *_cost(left, summaries.together)] if left.number else None
    )
    headings = [text("task"), *map(Heading, ("attempts", "p50", "p95", "p99", "longest", "together", "share"))]
    note = "Running time of attempts: bars are the 95th percentile, the slowest task first; together is the sum."
    if not names.complete:
        note = f"{note} {_MANY}"
    picture = bars(f"Tasks by p95 of running; the slowest: {found[0][0]}, {length(longest)}.", drawn)
    return plotted("Slowest tasks", note, picture, table(headings, rows, "Tasks", last))


def _p95(summary: Summary) -> float:
    return summary.p95 or 0.0


def _cost(summary: Summary, together: float) -> list[str]:
    return [
        count(summary.number),
        *percentiles_of(summary),
        length(summary.together),
        share(summary.together, together),
    ]


def skew(figures: Figures) -> Element | None:
    """The distribution of messages over the rows of the queue; None without any."""
    rows = figures.facts["row"].names("member")
    sent = rows.sums(figures.facts["row"].numbers("sent"))
    ranked = sorted(np.flatnonzero(sent).tolist(), key=lambda code: (-sent[code], rows.names[code]))
    if not ranked:
        return None
    if len(ranked) == 1:
        return plotted("Rows", f"All messages were in one row, {rows.names[ranked[0]]}.")
    most, mean = float(sent.max()), float(sent.sum()) / len(ranked)
    ratio = f"{most / mean:.2f}"
    note = f"{len(ranked)} rows had {count(mean)} messages on average (dashed line), the fullest {ratio} times as many."
    drawn = [Bar(rows.names[code], float(sent[code]) / most, count(sent[code])) for code in ranked[:MOST]]
    return plotted("Rows", note, bars(f"Messages by row. {note}", drawn, mean / most))


def shares(figures: Figures, grain: str, title: str, *, note: str) -> Element | None:
    """The attempts, outcomes and running time of each machine or tenant; None without any."""
    columns = figures.facts[grain]
    members = columns.names("member")
    if not len(members.codes):
        return None
    cost = members.sums(columns.numbers("ran"))
    counts = {name: members.sums(columns.numbers(name)) for name in ("attempts", "done", "failed", "dead", "expired")}
    ranked = sorted(range(OTHERS + 1, len(cost)), key=lambda code: (-cost[code], members.names[code]))
    left = [*ranked[MOST:], OTHERS]

    def row(name: str, codes: Sequence[int]) -> list[str]:
        time = float(cost[codes].sum())
        return [
            name,
            *(count(counted[codes].sum()) for counted in counts.values()),
            length(time),
            share(time, float(cost.sum())),
        ]

    rows = [row(members.names[code], [code]) for code in ranked[:MOST]]
    last = (
        row(others(len(left) - 1, complete=members.complete), left) if len(left) > 1 or not members.complete else None
    )
    shown = note if members.complete else f"{note} {_MANY}"
    return plotted(title, shown, table([text(grain), *map(Heading, (*counts, "time", "share"))], rows, title, last))


def punctual(figures: Figures) -> Element | None:
    """How late schedules fired, and how late handlers of their messages began; None without schedules."""
    schedules = figures.schedules
    if not schedules.first:
        return None
    rows = [
        [
            *(
                shortened(str(record["schedule"])),
                f"{record['day']}",
                count(number(record, "fired")),
                count(number(record, "skipped")),
            ),
            *(length(measured(record, name)) for name in ("late_p50", "late_p95", "late_max")),
            *(
                count(number(record, "started")),
                length(measured(record, "start_p95")),
                share(number(record, "within_1s"), number(record, "started")),
            ),
        ]
        for record in schedules.first
    ]
    sums = schedules.sums
    counted = [
        count(sums["fired"]),
        count(sums["skipped"]),
        *[NONE] * 3,
        count(sums["started"]),
        NONE,
        share(sums["within_1s"], sums["started"]),
    ]
    last = [others(schedules.more), NONE, *counted] if schedules.more else None
    late = ("fired", "skipped", "fired late p50", "p95", "longest", "started", "started late p95", "within 1 s")
    note = "The time from each occurrence to its message, and from its due time to the start of its handler."
    headings = [text("schedule"), text("day"), *map(Heading, late)]
    return plotted("Schedules", note, table(headings, rows, "Schedules", last))
