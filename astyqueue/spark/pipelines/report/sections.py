"""The parts of a report about one queue; one that has nothing to show says so in a sentence, or is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import Element

import numpy as np

from astyqueue.spark.pipelines.outputs import LENGTHS, PARTS
from astyqueue.spark.pipelines.report import series
from astyqueue.spark.pipelines.report.figures import Figures, Summary
from astyqueue.spark.pipelines.report.markup import tag
from astyqueue.spark.pipelines.report.plots import Bar, Cell, bars, heat, lines
from astyqueue.spark.pipelines.report.records import Record, by_member, measured, moment, number, total
from astyqueue.spark.pipelines.report.scales import Counts, Lengths
from astyqueue.spark.pipelines.report.series import Stretches
from astyqueue.spark.pipelines.report.tables import MOST, Heading, folded, table, text
from astyqueue.spark.pipelines.report.wording import NONE, count, length, plain, share

TITLES: Final = {"wait": "Waiting", "run": "Running", "end": "End to end"}
_MEANINGS: Final = {name: told for name, _, told in LENGTHS}
#: Bars of one picture.
_BARS: Final = 12
#: Days of one map.
_DAYS: Final = 31


def plotted(title: str, told: str, *content: Element | None) -> Element:
    """A part with a title and a sentence on what it shows."""
    return tag("section", tag("h3", title), tag("p", told, class_="note"), *content, class_="plot")


def throughput(figures: Figures, stretches: Stretches) -> Element:
    """Messages over time."""
    drawn = series.throughput(figures, stretches)
    most = max((value or 0 for line in drawn for _, value in line.points), default=0)
    each = plain(stretches.width)
    told = f"Messages sent and done, and attempts that failed, in each {each}."
    seen = f"{' and '.join(line.name for line in drawn)} over time, at most {count(most)} in each {each}."
    picture = lines(seen, drawn, times=stretches.times, scale=Counts(most))
    return plotted("Throughput", told, picture)


def latency(figures: Figures, which: str, stretches: Stretches) -> Element | None:
    """How long something took, over time; nothing if it never happened."""
    drawn = series.lengths(figures, which, stretches)
    values = [value for line in drawn for _, value in line.points if value is not None]
    if not values:
        return None
    summary = figures.lengths()[which]
    told = ", ".join(f"{name} {cell}" for (name, _), cell in zip(PARTS, parts_of(summary), strict=False))
    scale = Lengths(min(value for value in values if value > 0) if any(values) else 1, max(*values, 1))
    note = f"{_MEANINGS[which].capitalize()}; each step of the scale is ten times the last, or so."
    return plotted(
        f"{TITLES[which]} over time",
        note,
        lines(f"{TITLES[which]} over time. Over all: {told}.", drawn, times=stretches.times, scale=scale),
    )


def parts_of(summary: Summary) -> list[str]:
    """The percentiles and the longest, spelled."""
    return [*map(length, summary.parts or [None] * len(PARTS)), length(summary.longest)]


def summed_up(figures: Figures) -> Element:
    """The percentiles of the whole period."""
    rows = [[TITLES[name], _MEANINGS[name], count(summary.number), *parts_of(summary)] for name, summary in figures.lengths().items()]
    return table([text(""), text("what is measured"), *map(Heading, ("how many", "p50", "p95", "p99", "longest"))], rows, "Percentiles")


def warm_hours(figures: Figures) -> Element | None:
    """When messages waited long, by hour of the day."""
    title = "Waiting by hour"
    hours = [(moment(hour, "began"), waited) for hour in figures.of_grain("hour") if (waited := measured(hour, "wait_p95")) is not None]
    if not hours:
        return None
    if len(hours) == 1:
        [(began, waited)] = hours
        return plotted(title, f"All of it was within one hour, from {began:%Y-%m-%d %H:%M} UTC on: 95 % waited at most {length(waited)}.")
    days = sorted({began.date() for began, _ in hours})[-_DAYS:]
    scale = Lengths(min(waited for _, waited in hours), max(waited for _, waited in hours))
    cells = [
        Cell(days.index(began.date()), began.hour, scale.place(waited), f"{began:%d %b %H:%M}: {length(waited)}")
        for began, waited in hours
        if began.date() in days
    ]
    longest, most = max(hours, key=lambda hour: hour[1])
    seen = f"The longest was {length(most)}, in the hour from {longest:%d %b %H:%M} on."
    picture = heat(f"{title}. {seen}", rows=[f"{day:%d %b}" for day in days], columns=[f"{hour:02}" for hour in range(24)], cells=cells)
    listed = table(
        [text("hour (UTC)"), Heading("p95 of waiting")], [[f"{began:%Y-%m-%d %H:%M}", length(waited)] for began, waited in hours], title
    )
    told = f"The wait that 95 % did not exceed, in each hour (UTC); the darker, the longer. {seen}"
    return plotted(title, told, picture, folded("as a table", listed))


def failing(figures: Figures) -> Element:
    """What went wrong, by cause."""
    title = "Failures"
    alike = Counter[str]()
    causes: dict[tuple[str, str], list[Record]] = {}
    for record in figures.failures:
        alike[str(record["failure"])] += number(record, "times")
        causes.setdefault((str(record["failure"]), str(record["task"])), []).append(record)
    if not causes:
        return plotted(title, "No attempt failed, and nothing became a dead letter.")
    [(first, most)] = alike.most_common(1)
    drawn = [Bar(failure, times / most, count(times)) for failure, times in alike.most_common(_BARS)]
    ranked = sorted(causes.items(), key=lambda cause: -total(cause[1], "times"))
    rows = [_cause(failure, task, some) for (failure, task), some in ranked]
    headings = [text("cause"), text("task"), *map(Heading, ("times", "made dead")), text("the last one")]
    told = "Attempts that failed and messages that died, by cause: what differs from one time to the next is left out of the reason."
    picture = bars(f"Failures by cause; the most frequent: {first}, {count(most)} times.", drawn)
    return plotted(title, told, picture, table(headings, rows, "Failures by cause and task"))


def _cause(failure: str, task: str, records: Sequence[Record]) -> Sequence[str | Element]:
    last = max(records, key=lambda record: moment(record, "last"))
    counts = [count(total(records, name)) for name in ("times", "dead")]
    return [tag("code", failure), task or NONE, *counts, str(last["example"] or "")]


def tasks(figures: Figures) -> Element | None:
    """Tasks, the slowest first, and what they cost."""
    named, ran = figures.attempts.texts("task"), figures.attempts.numbers("ran")
    found = {str(task): Summary.of(ran[named == task]) for task in np.unique(named)}
    ranked = sorted(((task, summary) for task, summary in found.items() if summary.number), key=lambda one: -(one[1].parts or (0, 0))[1])
    if not ranked:
        return None
    cost = {task: float(np.nansum(ran[named == task])) for task, _ in ranked}
    slowest, longest = ranked[0][0] or "(no task)", max((summary.parts or (0, 0))[1] for _, summary in ranked)
    drawn = [
        Bar(task or "(no task)", (summary.parts or (0, 0))[1] / max(longest, 1), length((summary.parts or (0, 0))[1]))
        for task, summary in ranked[:_BARS]
    ]
    rows = [
        [task or "(no task)", count(summary.number), *parts_of(summary), length(cost[task]), share(cost[task], sum(cost.values()))]
        for task, summary in ranked
    ]
    headings = [text("task"), *map(Heading, ("attempts", "p50", "p95", "p99", "longest", "together", "share"))]
    told = "How long attempts ran: the bars are what 95 % did not exceed, the slowest task first. Together is what they cost in time."
    return plotted(
        "Slowest tasks",
        told,
        bars(f"Tasks by p95 of running; the slowest: {slowest}, {length(longest)}.", drawn),
        table(headings, rows, "Tasks"),
    )


def skew(figures: Figures) -> Element | None:
    """How evenly messages are spread over the rows of the queue."""
    sizes = by_member(figures.of_grain("row"), "sent")
    sizes = {row: sent for row, sent in sizes.items() if sent}
    if not sizes:
        return None
    if len(sizes) == 1:
        return plotted("Rows", f"All messages were in one row, {next(iter(sizes))}.")
    most, mean = max(sizes.values()), sum(sizes.values()) / len(sizes)
    ranked = sorted(sizes.items(), key=lambda row: (-row[1], row[0]))
    told = f"{len(sizes)} rows had {count(mean)} messages in the mean (the dashed line); the fullest had {most / mean:.2f} times as many."
    drawn = [Bar(row, sent / most, count(sent)) for row, sent in ranked[:MOST]]
    return plotted("Rows", told, bars(f"Messages by row. {told}", drawn, mean / most))


def shares(figures: Figures, grain: str, title: str, *, told: str) -> Element | None:
    """What each machine, or each tenant, did and cost."""
    records = figures.of_grain(grain)
    cost = by_member(records, "ran")
    if not cost:
        return None
    counts = {name: by_member(records, name) for name in ("attempts", "done", "failed", "dead", "expired")}
    ranked = sorted(cost, key=lambda member: (-cost[member], member))
    rows = [
        [member, *(count(counts[name][member]) for name in counts), length(cost[member]), share(cost[member], sum(cost.values()))]
        for member in ranked
    ]
    return plotted(title, told, table([text(grain), *map(Heading, (*counts, "time", "share"))], rows, title))


def punctual(figures: Figures) -> Element | None:
    """How late schedules fired, and when what they sent began; nothing if there were none."""
    if not figures.schedules:
        return None
    rows = [
        [
            *(str(record["schedule"]), f"{record['day']}", count(number(record, "fired")), count(number(record, "skipped"))),
            *(length(measured(record, name)) for name in ("late_p50", "late_p95", "late_max")),
            *(
                count(number(record, "started")),
                length(measured(record, "start_p95")),
                share(number(record, "within_1s"), number(record, "started")),
            ),
        ]
        for record in sorted(figures.schedules, key=lambda record: (str(record["schedule"]), str(record["day"])))
    ]
    late = ("fired", "skipped", "fired late p50", "p95", "longest", "started", "started late p95", "within 1 s")
    told = "From each slot to the message it sent, and from when that was due to when a handler began with it."
    return plotted("Schedules", told, table([text("schedule"), text("day"), *map(Heading, late)], rows, "Schedules"))
