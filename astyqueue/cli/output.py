"""What commands print on stdout: for people a table or a list of facts, with `--json` one JSON object on each line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Protocol, TypeVar, cast, runtime_checkable

import click

from astyqueue.model.moments import with_age

Record = Mapping[str, object]
T = TypeVar("T")
#: Longer cells of a table are cut, so that a row stays a line.
_WIDEST: Final = 60
#: Columns of a terminal that has room for every table.
_UNBOUNDED: Final = 1_000


@runtime_checkable
class Told(Protocol):
    """What knows its own form for programs."""

    def as_json(self) -> Record:
        """All of it, in what JSON has."""
        ...


class Output:
    """Prints records."""

    def __init__(self, now: datetime, *, as_json: bool) -> None:
        """Ages are told as of `now`."""
        self.as_json = as_json
        self._now = now

    def one(self, found: T, *, shown: Callable[[T], Record]) -> None:
        """One thing, all of it; `shown` says what people are to see."""
        if self.as_json:
            _print_json(_own_json(found))
            return
        record = shown(found)
        width = max(map(len, record))
        for name, value in record.items():
            click.echo(f"{_title(name):<{width}}  {self._told(value)}")

    def listing(self, found: Iterable[T], *, shown: Callable[[T], Record], none: str, as_json: Callable[[T], Record] | None = None) -> None:
        """Several things of one kind; `none` is said to people when there are none."""
        if self.as_json:
            for one in found:
                _print_json((as_json or _own_json)(one))
            return
        records = list(map(shown, found))
        if not records:
            click.echo(none)
            return
        titles = [_title(name) for name in records[0]]
        rows = [[_cut(self._told(value)) for value in record.values()] for record in records]
        _table(titles, rows) if sys.stdout.isatty() else _aligned(titles, rows)

    def done(self, sentence: str, record: Record) -> None:
        """What was done: a sentence for people, its facts for programs."""
        if self.as_json:
            _print_json(record)
        else:
            click.echo(sentence)

    def _told(self, value: object) -> str:
        match value:
            case None:
                return "-"
            case bool():
                return "yes" if value else "no"
            case datetime():
                return with_age(value, self._now)
            case dict() | list() | tuple():
                return json.dumps(value, ensure_ascii=False, default=str)
        return str(value)


def _print_json(record: Record) -> None:
    click.echo(json.dumps(record, ensure_ascii=False))


def _own_json(found: object) -> Record:
    """A thing as it tells itself to programs."""
    return found.as_json() if isinstance(found, Told) else cast("Record", found)


def _title(name: str) -> str:
    return name.replace("_", " ")


def _cut(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"


def _aligned(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table without frames, for files and pipes."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    for row in (titles, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table for a terminal."""
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
    # A terminal that is too narrow breaks the lines itself: what was cut or folded here could not be copied.
    console.width = max(console.width, console.measure(table, options=console.options.update(max_width=_UNBOUNDED)).maximum)
    console.print(table, crop=False)
