"""The history of the nastiest messages there are, in the pipeline and on its page.

Nothing fails, hides or is counted wrongly.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from astyqueue import connect
from astyqueue.model.event import Event, Kind
from astyqueue.printable import printable
from astyqueue.spark.pipeline.batch import Job, Span
from astyqueue.spark.pipeline.report.html import count
from astyqueue.spark.pipeline.report.page import write
from astyqueue.spark.pipeline.schemas import ATTEMPTS, EVENTS, FAILURES, MESSAGES, NAME_LENGTH, shortened
from tests.spark.pipeline.histories import DAY
from tests.spark.pipeline.test_report import Reading, last
from tests.support.nasty import fill, schedule

#: Elements of the page; whatever else is in it was put there by a message.
ELEMENTS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "h1",
        "h2",
        "h3",
        "p",
        "div",
        "b",
        "span",
        "section",
        "footer",
    ),
    *(
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "code",
        "details",
        "summary",
        "svg",
        "line",
        "text",
        "path",
        "circle",
        "rect",
    ),
}


class Told(NamedTuple):
    """A page, the folder of its tables, and what the queue itself tells."""

    page: str
    folder: Path
    history: Sequence[Event]
    dead: int
    sent: int


class Elements(HTMLParser):
    """The elements of a page, the names of their attributes and all texts, as a browser takes them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.texts += [value or "" for _, value in attrs]

    def handle_data(self, data: str) -> None:
        if self.get_starttag_text() != "<style>":
            self.texts.append(data)


pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The report on a queue through which they all went."""
    folder = tmp_path_factory.mktemp("nasty")
    url = f"sqlite:///{folder}/nasty.db?synchronous=normal"
    with connect(url) as connection:
        queue = connection.queue("nasty", history="all")
        sent = len(fill(queue))
        schedule(queue)
    with connect(url) as connection:
        queue = connection.queue("nasty")
        history, dead = list(queue.history()), queue.counts().dead
    Job(spark, folder / "lake").run(url, ["nasty"], Span(kept=DAY))
    write(folder / "lake", folder / "report.html")
    return Told((folder / "report.html").read_text(), folder, history, dead, sent)


def test_every_text_on_the_page_can_be_seen_and_none_of_them_is_markup(told: Told) -> None:
    found = Elements(told.page)
    assert found.elements <= ELEMENTS
    assert not [name for name in found.attributes if name.startswith("on")]
    hidden = {character for text in found.texts for character in text.replace("\n", "") if not character.isprintable()}
    assert {character for character in hidden if unicodedata.category(character) != "Zs"} == set()


def test_the_numbers_are_those_of_the_queue(told: Told) -> None:
    cards = Reading(told.page).cards
    sent = {event.message for event in told.history if event.kind is Kind.SENT}
    assert len(sent) >= told.sent
    assert cards["sent"] == count(len(sent))
    assert cards["done"] == count(len(last(told.history, Kind.DONE)))
    assert (cards["dead"], len(last(told.history, Kind.DEAD))) == (count(told.dead), told.dead)


def test_each_event_message_and_attempt_is_in_its_table(told: Told, spark: SparkSession) -> None:
    events = spark.read.schema(EVENTS.schema).parquet(str(told.folder / "lake" / EVENTS.name))
    assert events.count() == len(told.history)
    messages = (
        spark.read.schema(MESSAGES.schema)
        .parquet(str(told.folder / "lake" / MESSAGES.name))
        .select("message", "task")
        .collect()
    )
    tasks = {str(event.message): event.task for event in told.history if event.message}
    assert {row["message"]: row["task"] for row in messages} == {
        message: shortened(task) if task is not None else None for message, task in tasks.items()
    }
    attempts = (
        spark.read.schema(ATTEMPTS.schema)
        .parquet(str(told.folder / "lake" / ATTEMPTS.name))
        .select("task")
        .distinct()
        .collect()
    )
    assert max(len(row["task"] or "") for row in attempts) == NAME_LENGTH


def test_the_page_tells_of_the_most_frequent_failures_as_they_are(told: Told, spark: SparkSession) -> None:
    failures = spark.read.schema(FAILURES.schema).parquet(str(told.folder / "lake" / FAILURES.name)).collect()
    times = Counter[str]()
    for row in failures:
        times[row["failure"]] += row["times"]
    shown = [int(row[2]) for row in Reading(told.page).rows if len(row) == 5]
    assert sum(shown) == sum(times.values())
    most = [failure for failure, number in times.items() if number == max(times.values())]
    seen = {
        f"Failures by cause; the most frequent: {printable(failure)}, {count(times[failure])} times."
        for failure in most
    }
    assert len(seen & set(Elements(told.page).texts)) == 1
