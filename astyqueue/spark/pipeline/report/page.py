"""The report: one HTML page about every queue in a folder of tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element

from astyqueue.clock import instant
from astyqueue.errors import BadInput, NotFound
from astyqueue.files import may_be_replaced, replace_file
from astyqueue.spark.pipeline.report import sections
from astyqueue.spark.pipeline.report.data import Days, Figures, load
from astyqueue.spark.pipeline.report.html import count, length, level, moment, page, share, tag
from astyqueue.spark.pipeline.report.time_series import TimeSlices

_COUNTED = (("sent", ""), ("done", ""), ("dead", "bad"), ("retried", ""), ("expired", ""), ("cancelled", ""))
#: The browser fetches, runs and sends nothing, even if markup in the names of tasks were not escaped.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: The share of lengths within the limit from which on a service level counts as met.
_MET = 0.99


def write(folder: Path, path: Path, days: Days | None = None) -> list[Figures]:
    """Write the page on the tables of a folder; returns its figures. The page refers to no other file or host.

    An existing page is replaced, whole or not at all; a new one is readable by its owner only. BadInput if the path is
    a link, a folder or a device, NotFound if the tables have nothing of the days; the page is then left as it is.
    """
    if not may_be_replaced(path):
        message = f"{path} is a link, a folder or a device, which a report does not replace: name a file"
        raise BadInput(message)
    found = load(folder, days)
    if days is not None and days != Days() and not any(figures.period for figures in found):
        message = f"the tables in {folder} have nothing of {days}; {path} was not written: give other days"
        raise NotFound(message)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page(report(found)).encode())
    return found


def report(queues: Sequence[Figures]) -> Element:
    """The page as an element."""
    names = ", ".join(figures.queue for figures in queues) or "no queue"
    title = f"Message outcomes: {names}"
    style = tag("style")
    style.text = files(__package__).joinpath("style.css").read_text()
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        style,
    )
    main = tag("main", tag("h1", "Message outcomes"), tag("p", _period(queues), class_="soft"))
    if len(queues) > 1:
        main.append(
            tag(
                "nav",
                *[tag("a", figures.queue, href=f"#queue-{figures.queue}") for figures in queues],
                aria_label="Queues",
            )
        )
    for figures in queues:
        main.extend(list(_queue(figures)))
    main.append(_footer(max((figures.approximate for figures in queues), default=0)))
    return tag("html", head, tag("body", main), lang="en")


def _period(queues: Sequence[Figures]) -> str:
    periods = [figures.period for figures in queues if figures.period]
    if not periods:
        return "Nothing has been read yet."
    first, last = min(period[0] for period in periods), max(period[1] for period in periods)
    return f"From {moment(instant(int(first)))} to {moment(instant(int(last)))}: {length(last - first)}."


def _queue(figures: Figures) -> Iterable[Element]:
    """The elements about one queue."""
    yield tag("h2", f"Queue {figures.queue}", id=f"queue-{figures.queue}")
    period = figures.period
    if period is None:
        yield tag("p", "Its history has no events in this period. With history=all a queue keeps all events.")
        return
    yield tag("p", f"Its history was read up to {moment(figures.read_until)}.", class_="soft")
    yield cards(figures)
    yield sections.plotted("How long it took", "The 50th, 95th and 99th percentiles.", sections.summed_up(figures))
    slices = TimeSlices.of(*period)
    of_tenants = "The running time of each tenant's messages, by the header `tenant`."
    of_machines = "The attempts of each machine; machines without attempts only sent."
    parts = (
        sections.throughput(figures, slices),
        *(sections.latency(figures, which, slices) for which in sections.TITLES),
        sections.warm_hours(figures),
        sections.failing(figures),
        sections.tasks(figures),
        sections.punctual(figures),
        sections.skew(figures),
        sections.shares(figures, "tenant", "Tenants", note=of_tenants),
        sections.shares(figures, "host", "Machines", note=of_machines),
    )
    yield from (part for part in parts if part is not None)


def cards(figures: Figures) -> Element:
    """The most important figures of a queue."""
    counts, lengths = figures.counts(), figures.lengths()
    open_ = counts["waiting"] + counts["in flight"]
    shown = [
        _card(count(counts[name]), name, name=name, style=style if counts[name] else "")
        for name, style in _COUNTED
        if counts[name] or name in ("sent", "done", "dead")
    ]
    if open_:
        shown.append(_card(count(open_), "not done yet", name="open"))
    shown += [
        _card(length(lengths[name].p95), f"p95 {sections.TITLES[name].lower()}", name=f"{name}-p95") for name in lengths
    ]
    met, of = figures.met()
    if of:
        shown.append(
            _card(
                share(met, of),
                f"met {level(figures.objective)}",
                name="objective",
                style="good" if met >= _MET * of else "bad",
            )
        )
    return tag("div", *shown, class_="cards")


def _card(value: str, caption: str, *, name: str, style: str = "") -> Element:
    return tag("div", tag("b", value), tag("span", caption), class_=f"card {style}".strip(), data_name=name)


def _footer(approximate: int) -> Element:
    """What the figures mean; `approximate` is the number of days whose tables have approximate percentiles."""
    exact = (
        f"Percentiles of hours and of schedules are approximate on {approximate} day{'s' * (approximate > 1)}, "
        "which were built with --approximate; all others are exact."
        if approximate
        else "Percentiles are exact."
    )
    notes = (
        "Messages count once, also if they were done more than once; sent, done and dead are as of the reading. "
        f"{exact} A message waits until a handler begins for the first time; an attempt whose worker "
        "died has no running time. Times are UTC."
    )
    return tag("footer", tag("p", notes))
