"""The bytes in docs/how-to/production.md are what the protocol writes, and what an sstable adds to each column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pytest
from pydantic_core import to_json

from astyqueue import Message, MessageQueue
from astyqueue.protocol.layout.rows import key_row
from astyqueue.protocol.steps import Commit, Request, Send
from astyqueue.store import ENTRIES, HISTORY, Batch, Name
from astyqueue.testing import Recording, TimeMachine
from tests.support.places import Place
from tests.unit.test_docs import DOCS, table_below

#: What is counted is the same in every store.
pytestmark = pytest.mark.stores("memory")

#: A name is two numbers below 128 and a state, of a byte each, and an id.
NAME: Final = 19
#: What an sstable has besides name and value: for a column flags, lengths, the write time and its part of the indexes;
#: for a partition its key once more in the index; and a whole tombstone. Measured by `python -m benchmarks sizes`.
COLUMN: Final = range(12, 19)
PARTITION: Final = range(45, 65)
TOMBSTONE: Final = range(30, 36)
COUNT: Final = 400
BODY: Final = {"to": "ada@example.org"}
KEY: Final = "order:{:010}"


def told(figure: str) -> int:
    """The bytes that the page gives under this name, without a body and a key."""
    rows = table_below(DOCS / "how-to/production.md", "| bytes of one copy")
    [cell] = [cells[1] for cells in rows if f"`{figure}`" in cells[2]]
    return int(re.findall(r"\d+", cell)[-1])


class Columns:
    """The columns that a queue's requests leave: the bytes of their names and values, and how many are deleted."""

    def __init__(self, requests: list[Request]) -> None:
        self.present: dict[tuple[str, str, Name], int] = {}
        self.deleted: set[tuple[str, Name]] = set()
        for request in requests:
            batches = request.batches if isinstance(request, Send) else ()
            for batch in (request.batch,) if isinstance(request, Commit) else batches:
                self._apply(batch)

    def _apply(self, batch: Batch) -> None:
        for name in batch.deletes:
            self.present.pop((batch.table, batch.row, name), None)
            self.deleted.add((batch.row, name))
        for put in batch.puts:
            self.present[batch.table, batch.row, put.name] = NAME + len(put.value)

    def sizes(self, table: str, rows: str = "") -> list[int]:
        """The bytes of each column of a table, in rows whose names begin so."""
        return [size for (at, row, _), size in self.present.items() if at == table and row.startswith(rows)]


Work = Callable[[MessageQueue], object]
Fill = Callable[..., Columns]


def send(headers: dict[str, str] | None = None) -> Work:
    return lambda queue: queue.send_many([BODY] * COUNT, headers=headers)


def send_keyed(unique: str | None = None) -> Work:
    messages = [Message(BODY, key=KEY.format(number), unique=unique) for number in range(COUNT)]
    return lambda queue: queue.send_many(messages)


def settle(sent: Work, *, limit: int = 200) -> Work:
    """Send, then receive and ack this many together."""

    def settled(queue: MessageQueue) -> None:
        sent(queue)
        while batch := queue.receive(limit):
            batch.ack()

    return settled


@pytest.fixture
def fill(place: Place, clock: TimeMachine) -> Fill:
    """The columns that some work on a fresh queue leaves."""

    def after(work: Work, **options: object) -> Columns:
        store = Recording(place.store(clock))
        with MessageQueue.builder().store(store).name("benchmark").clock(clock).options(**options).build() as queue:
            store.requests.clear()
            work(queue)
        return Columns(store.requests)

    return after


@pytest.mark.parametrize(
    ("work", "figure", "columns"),
    [
        (send(), "waiting_bytes", 1),
        (send({"task": "shop.mail.welcome"}), "waiting_task_bytes", 1),
        (send_keyed("reject"), "waiting_unique_bytes", 2),
    ],
    ids=["plain", "task", "unique"],
)
def test_a_waiting_message_has_the_bytes_that_the_page_tells(fill: Fill, work: Work, figure: str, columns: int) -> None:
    own = sum(fill(work).sizes(ENTRIES)) / COUNT - len(to_json(BODY)) - (len(KEY.format(0)) if columns > 1 else 0)
    assert round((told(figure) - own) / columns) in COLUMN


@pytest.mark.parametrize(
    ("work", "figure", "deletes"),
    [
        (settle(send()), "settled_bytes", 1),
        (settle(send(), limit=1), "settled_singly_bytes", 2),
        (settle(send_keyed("reject")), "settled_unique_bytes", 2),
    ],
    ids=["together", "singly", "unique"],
)
def test_a_settled_message_has_the_tombstones_that_the_page_tells(
    fill: Fill, work: Work, figure: str, deletes: int
) -> None:
    left = fill(work)
    assert round(len(left.deleted) / COUNT) == deletes
    assert sum(left.sizes(ENTRIES)) / COUNT < 1
    assert round(told(figure) / deletes) in TOMBSTONE


def test_a_hint_of_a_key_has_the_bytes_that_the_page_tells(fill: Fill) -> None:
    hints = fill(settle(send_keyed())).sizes(ENTRIES, "benchmark:key:")
    assert len(hints) == COUNT
    row = len(key_row("benchmark", KEY.format(0)))
    own = sum(hints) / COUNT + row - len(KEY.format(0))
    assert round(told("hint_bytes") - own - COLUMN[len(COLUMN) // 2]) in PARTITION


def test_an_event_has_the_bytes_that_the_page_tells(fill: Fill) -> None:
    written = fill(settle(send()), history="all").sizes(HISTORY)
    each = len(written) / (3 * COUNT)  # of an event, and of the place where it is listed
    assert round((told("event_bytes") - sum(written) / (3 * COUNT)) / each) in COLUMN
