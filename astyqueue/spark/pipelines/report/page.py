"""The report: one HTML page about every queue in a folder of tables."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element

from astyqueue.clock import instant
from astyqueue.errors import BadInput
from astyqueue.files import replace_file
from astyqueue.spark.pipelines.report import sections
from astyqueue.spark.pipelines.report.columns import Summary
from astyqueue.spark.pipelines.report.figures import Days, Figures, load
from astyqueue.spark.pipelines.report.markup import page, tag
from astyqueue.spark.pipelines.report.series import Stretches
from astyqueue.spark.pipelines.report.wording import NONE, count, length, level, moment, share

_COUNTED = (("sent", ""), ("done", ""), ("dead", "bad"), ("retried", ""), ("expired", ""), ("cancelled", ""))
#: Nothing is fetched, run or sent, whatever stood in the names of tasks: a browser sees to it once more.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
#: Where a service level is met so often, it is met.
_MET = 0.99


def write(folder: Path, path: Path, days: Days | None = None) -> list[Figures]:
    """Make the page from the tables of a folder; what it tells. Nothing of the page comes from elsewhere.

    A page that was there is replaced, whole or not at all; a new one is its owner's alone. BadInput if the path is that of anything else.
    """
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        message = f"{path} is a link, a folder or a device, and none of these is replaced by a report: name a file"
        raise BadInput(message)
    found = load(folder, days)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, page(report(found)).encode())
    return found


def report(queues: Sequence[Figures]) -> Element:
    """The page."""
    names = ", ".join(figures.queue for figures in queues) or "no queue"
    title = f"What became of the messages: {names}"
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
    main = tag("main", tag("h1", "What became of the messages"), tag("p", _period(queues), class_="soft"))
    if len(queues) > 1:
        main.append(tag("nav", *[tag("a", figures.queue, href=f"#queue-{figures.queue}") for figures in queues], aria_label="Queues"))
    for figures in queues:
        main.extend(list(_queue(figures)))
    main.append(_footer())
    return tag("html", head, tag("body", main), lang="en")


def _period(queues: Sequence[Figures]) -> str:
    periods = [figures.period for figures in queues if figures.period]
    if not periods:
        return "Nothing has been read yet."
    first, last = min(period[0] for period in periods), max(period[1] for period in periods)
    return f"From {moment(instant(int(first)))} to {moment(instant(int(last)))}: {length(last - first)}."


def _queue(figures: Figures) -> Iterable[Element]:
    """Everything about one queue."""
    yield tag("h2", f"Queue {figures.queue}", id=f"queue-{figures.queue}")
    period = figures.period
    if period is None:
        yield tag("p", "Its history tells of nothing in this period. A queue keeps all of it with the setting history=all.")
        return
    yield tag("p", f"Its history was read up to {moment(figures.read_until)}.", class_="soft")
    yield cards(figures)
    yield sections.plotted("How long it took", "Of every hundred, 50, 95 and 99 did not take longer.", sections.summed_up(figures))
    stretches = Stretches.of(*period)
    parts = (
        sections.throughput(figures, stretches),
        *(sections.latency(figures, which, stretches) for which in sections.TITLES),
        sections.warm_hours(figures),
        sections.failing(figures),
        sections.tasks(figures),
        sections.punctual(figures),
        sections.skew(figures),
        sections.shares(figures, "tenant", "Tenants", told="What each tenant's messages cost in running time, by the header of that name."),
        sections.shares(figures, "host", "Machines", told="What each machine did; lines without attempts are machines that only sent."),
    )
    yield from (part for part in parts if part is not None)


def cards(figures: Figures) -> Element:
    """The figures that matter most."""
    counts, lengths = figures.counts(), figures.lengths()
    open_ = counts["waiting"] + counts["in flight"]
    shown = [
        _card(count(counts[name]), name, name=name, style=style if counts[name] else "")
        for name, style in _COUNTED
        if counts[name] or name in ("sent", "done", "dead")
    ]
    if open_:
        shown.append(_card(count(open_), "not done yet", name="open"))
    shown += [_card(_part(lengths[name], 1), f"p95 {sections.TITLES[name].lower()}", name=f"{name}-p95") for name in lengths]
    met, of = figures.total("objective_met"), figures.total("objective_of")
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


def _part(summary: Summary, place: int) -> str:
    return length(summary.parts[place]) if summary.parts else NONE


def _card(value: str, told: str, *, name: str, style: str = "") -> Element:
    return tag("div", tag("b", value), tag("span", told), class_=f"card {style}".strip(), data_name=name)


def _footer() -> Element:
    told = (
        "Messages count once, also when they were done more than once; sent, done and dead are as they stood when the history was read. "
        "Percentiles are exact. A message waits until a handler began for the first time; an attempt whose worker died has no running "
        "time. Times are UTC."
    )
    return tag("footer", tag("p", told))
