"""The report: its numbers are the queue's, it needs no other file, and it makes sense of few events and of none."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from operator import itemgetter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from astyqueue import Delivery, MessageQueue, connect
from astyqueue.errors import BadInput
from astyqueue.model.event import Event, Kind
from astyqueue.spark.pipeline.batch import Job, Span
from astyqueue.spark.pipeline.report.html import count, length, share
from astyqueue.spark.pipeline.report.page import write
from astyqueue.spark.pipeline.slo import DEFAULT, Objectives
from tests.spark.pipeline.histories import DAY, NOON, QUEUE, Life, fired, frame, told
from tests.spark.pipeline.test_property import quantile

SENT, BAD = 60, 4
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
ENDED = {Kind.DONE, Kind.DEAD, Kind.RELEASED}


class Reading(HTMLParser):
    """The cards of a page by their names, its titles, its tables row by row, and whatever it would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cards: dict[str, str] = {}
        self.titles: list[str] = []
        self.rows: list[list[str]] = []
        self.fetched: list[str] = []
        self._open: list[str] = []
        self._card = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self._open.append(tag)
        self._card = told.get("data-name") or self._card
        self.fetched += [
            value for name, value in attrs if name in {"src", "href"} and value and not value.startswith("#")
        ]
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        match self._open[-1:]:
            case ["b"] if self._card:
                self.cards[self._card] = data
            case ["h3"]:
                self.titles.append(data)
            case ["td"] | ["code"] if self.rows:
                self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass


def worked_on(queue: MessageQueue) -> None:
    """Messages are sent, done, tried again, and rejected."""
    queue.send_many(range(SENT))
    again = set(range(BAD, 2 * BAD))
    while queue.counts().total > BAD:
        take_some(queue, again)
    queue.close()


def take_some(queue: MessageQueue, again: set[int]) -> None:
    with queue.receive(20) as batch:
        for delivery in batch:
            handle(delivery, again)


def handle(delivery: Delivery, again: set[int]) -> None:
    number = int(str(delivery.body))
    if number < BAD:
        delivery.reject(f"number {number} is too small")
    elif number in again:
        again.remove(number)
        delivery.release(0)


@pytest.fixture(scope="module")
def page(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    """The report on a queue that was worked on, and its history as the queue itself tells it."""
    folder = tmp_path_factory.mktemp("report")
    url = f"sqlite:///{folder}/work.db?synchronous=normal"
    with connect(url) as connection:
        worked_on(connection.queue("work", history="all"))
    with connect(url) as connection:
        queue = connection.queue("work")
        history = list(queue.history())
        counts = queue.counts()
    assert (counts.dead, counts.waiting) == (BAD, 0)
    Job(spark, folder / "lake").run(url, ["work"], Span(kept=DAY))
    write(folder / "lake", folder / "report.html")
    return folder / "report.html", history


def last(history: Sequence[Event], kind: Kind) -> dict[object, Event]:
    return {event.message: event for event in history if event.kind is kind and not event.lost}


def first_waits(history: Sequence[Event]) -> list[int]:
    """Of each message, from when it was due to the first time it was begun."""
    began = [
        (event.began, event.due or 0, event.message)
        for event in history
        if event.began is not None and event.kind in ENDED
    ]
    first = {message: moment - due for moment, due, message in sorted(began, key=itemgetter(0), reverse=True)}
    return list(first.values())


def test_the_numbers_of_the_report_are_those_of_the_queue(page: tuple[Path, list[Event]]) -> None:
    path, history = page
    cards = Reading(path.read_text()).cards
    done, dead = last(history, Kind.DONE), last(history, Kind.DEAD)
    assert (cards["sent"], cards["done"], cards["dead"]) == (count(SENT), count(SENT - BAD), count(BAD))
    assert (len(done), len(dead)) == (SENT - BAD, BAD)
    waits = first_waits(history)
    runs = [event.at - event.began for event in history if event.began is not None and event.kind in ENDED]
    ends = [event.took for event in (*done.values(), *dead.values()) if event.took is not None]
    for name, values in {"wait": waits, "run": runs, "end": ends}.items():
        assert cards[f"{name}-p95"] == length(quantile(values, 0.95))
    assert cards["objective"] == share(sum(wait <= 10_000_000 for wait in waits), len(waits))


def test_failures_and_rows_are_reported_as_the_history_has_them(page: tuple[Path, list[Event]]) -> None:
    path, _ = page
    reading = Reading(path.read_text())
    assert ["number <number> is too small", "\N{EN DASH}", str(BAD), str(BAD)] in [row[:4] for row in reading.rows]
    assert {"Throughput", "Failures", "Rows", "Machines", "How long it took"} <= set(reading.titles)
    assert {"Schedules", "Tenants"} & set(reading.titles) == set()


def test_the_page_needs_nothing_but_itself(page: tuple[Path, list[Event]]) -> None:
    text = page[0].read_text()
    assert Reading(text).fetched == []
    assert re.findall(r"<script|@import|url\(|https?://(?!www\.w3\.org)", text) == []
    assert re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text) == [POLICY]
    assert text.count("<svg") == len(re.findall(r"<svg[^>]*><title>[^<]+</title>", text)) > 0


def test_a_browser_shows_the_numbers(page: tuple[Path, list[Event]], browser: str) -> None:
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={page[0].parent}/browser",
        "--dump-dom",
    ]
    shown = subprocess.run([*command, page[0].as_uri()], capture_output=True, text=True, timeout=100, check=True).stdout
    assert Reading(shown).cards == Reading(page[0].read_text()).cards != {}
    assert shown.count("<svg") > 0


def built(spark: SparkSession, folder: Path, *events: Event) -> Reading:
    """The report on a history."""
    Job(spark, folder / "lake").run_on(
        lambda *_, **__: frame(spark, events), {QUEUE: DAY}, Span(NOON - DAY, NOON + DAY)
    )
    write(folder / "lake", folder / "report.html")
    return Reading((folder / "report.html").read_text())


@pytest.mark.full
def test_a_report_on_one_message_shows_its_figures_and_none_of_its_markup(spark: SparkSession, tmp_path: Path) -> None:
    reading = built(
        spark, tmp_path, *told(Life("<b>only</b>", task="<script>", tenant="a & b").claimed(1).done(2)), fired(3, 2)
    )
    assert (reading.cards["sent"], reading.cards["done"], reading.cards["wait-p95"]) == ("2", "1", "1.00 s")
    assert ["<script>", "1", *["1.00 s"] * 4, "1.00 s", "100 %"] in reading.rows
    assert "Schedules" in reading.titles
    assert "<script>" not in (tmp_path / "report.html").read_text()


def test_a_report_without_events_says_so(spark: SparkSession, tmp_path: Path) -> None:
    reading = built(spark, tmp_path)
    assert (reading.cards, reading.titles) == ({}, [])
    assert "has no events" in (tmp_path / "report.html").read_text()


def test_a_level_is_for_all_queues_or_for_the_one_it_names() -> None:
    found = Objectives.read(["wait<=5s", "emails: end <= 1h30m", "run<=2"])
    assert found.of("emails")[:2] == ("end", 5_400_000_000)
    assert found.of("others") == ("run", 2_000_000, "run<=2")
    assert Objectives.read([]).of("emails") == DEFAULT


@pytest.mark.parametrize(
    "text", ["wait", "wait<5s", "wait>=5s", "speed<=5s", "wait<=", "wait<=soon", "a queue:wait<=5s", ""]
)
def test_an_invalid_service_level_is_refused(text: str) -> None:
    with pytest.raises(BadInput):
        Objectives.read([text])
