"""Output of commands on stdout: a table or a list of facts, or with `--json` one JSON object on each line.

All text is made `printable` here, because most of it was written by producers and handlers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast, runtime_checkable

import click

from astyqueue.cli.errors import Failure
from astyqueue.printable import printable
from astyqueue.text import with_age

if TYPE_CHECKING:
    from astyqueue.model.views import Stored

Record = Mapping[str, object]
T = TypeVar("T")
#: The most characters of columns with text of any length, which is cut so that each row stays on one line. What a
#: command takes again, such as an id or a key, is whole; a sender may choose the name of a task as long as it likes.
_WIDEST: Final = dict.fromkeys(("body", "reason", "why", "paused", "trigger", "last error"), 60) | dict.fromkeys(
    ("task", "oldest task"), 200
)
#: Columns of a terminal that fits every table.
_UNBOUNDED: Final = 1_000_000


@runtime_checkable
class HasJson(Protocol):
    """An object that has a JSON form."""

    def as_json(self) -> Record:
        """All fields, as JSON values."""
        ...


@contextmanager
def progress_bar(*, in_bytes: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
    """A progress bar on stderr. What it yields takes a label, how much is done, and of how much (None: not known)."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text = TextColumn("{task.description}", markup=False)
    numbers = DownloadColumn() if in_bytes else MofNCompleteColumn()
    with Progress(text, BarColumn(), numbers, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda label, done, total: bar.update(task, description=printable(label), completed=done, total=total)


def _title(name: str) -> str:
    return name.replace("_", " ")


class Output:
    """Prints records."""

    def __init__(self, now: datetime, *, as_json: bool) -> None:
        """Ages are computed at `now`."""
        self.as_json = as_json
        self.now = now

    def one(self, found: T, *, shown: Callable[[T], Record], titled: Callable[[str], str] = _title) -> None:
        """Print one object in full; without `--json`, its fields from `shown` under titles from `titled`."""
        if self.as_json:
            _print_json(_own_json(found))
            return
        record = shown(found)
        width = max(map(len, record))
        for name, value in record.items():
            click.echo(f"{titled(name):<{width}}  {printable(self._text(value))}")

    def listing(
        self,
        found: Iterable[T],
        *,
        shown: Callable[[T], Record],
        none: str,
        as_json: Callable[[T], Record] | None = None,
        limit: int | None = None,
        titled: Callable[[str], str] = _title,
    ) -> None:
        """Print a list of objects, or `none` if it is empty. If there are more than `limit`, say so on stderr."""
        things = iter(found)
        first = things if limit is None else islice(things, limit)
        if self.as_json:
            for one in first:
                _print_json((as_json or _own_json)(one))
        else:
            self._rows(list(map(shown, first)), none, titled)
        self.say_if_more(things, limit)

    @staticmethod
    def say_if_more(rest: Iterator[object], limit: int | None) -> None:
        """Say on stderr that there is more, if `limit` have been shown and there is a `rest`."""
        if limit is not None and next(rest, None) is not None:
            click.echo(f"astyqueue: there are more than these {limit}; --limit shows more", err=True)

    def _rows(self, records: list[Record], none: str, titled: Callable[[str], str]) -> None:
        if not records:
            click.echo(none)
            return
        titles = [titled(name) for name in records[0]]
        rows = [[self._cell(name, value) for name, value in record.items()] for record in records]
        _table(titles, rows) if sys.stdout.isatty() else _aligned(titles, rows)

    def _cell(self, name: str, value: object) -> str:
        text = printable(self._text(value))
        widest = _WIDEST.get(name)
        return text if widest is None or len(text) <= widest else f"{text[: widest - 1]}…"

    def done(self, sentence: str, record: Record) -> None:
        """Print the result of a command that changed something: the sentence, or with `--json` the record.

        If stdout cannot be written, the error has the sentence: repeated, the command would do it again.
        """
        try:
            self.lines([sentence], record)
        except OSError as error:
            message = f"this was done, but stdout could not be written ({error.strerror}): {sentence}"
            raise Failure(message) from error

    def lines(self, lines: Iterable[str], record: Record) -> None:
        """Print the lines, or with `--json` the record."""
        if self.as_json:
            _print_json(record)
            return
        for line in lines:
            click.echo(printable(line))

    def _text(self, value: object) -> str:
        match value:
            case None:
                return "-"
            case bool():
                return "yes" if value else "no"
            case datetime():
                return with_age(value, self.now)
            case dict() | list() | tuple():
                return json.dumps(value, ensure_ascii=False, default=str)
        return str(value)


def output_now(*, as_json: bool) -> Output:
    """Output of a command that opens no store: ages are computed now."""
    from astyqueue.clock import SystemClock, instant

    return Output(instant(SystemClock().now()), as_json=as_json)


def json_line(record: Record) -> str:
    """One line of JSON: ASCII on a terminal or if stdout cannot encode it, else with all printable characters."""
    writes_all = (sys.stdout.encoding or "").lower().startswith("utf")
    return printable(json.dumps(record, ensure_ascii=sys.stdout.isatty() or not writes_all))


def body_of(message: Stored) -> str:
    """The body as JSON, where the text "1" differs from the number 1; if the message cannot be decoded, the reason."""
    return message.problem or json.dumps(message.body, ensure_ascii=False)


def _print_json(record: Record) -> None:
    click.echo(json_line(record))


def _own_json(found: object) -> Record:
    """The JSON form of an object that has one; a mapping is its own."""
    return found.as_json() if isinstance(found, HasJson) else cast("Record", found)


def _aligned(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without borders, for files and pipes."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for title in titles:
        table.add_column(title, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console()
    # Cells that are cut or folded here could not be copied, so a terminal that is too narrow wraps the lines itself.
    console.width = max(
        console.width, console.measure(table, options=console.options.update(max_width=_UNBOUNDED)).maximum
    )
    console.print(table, crop=False)
