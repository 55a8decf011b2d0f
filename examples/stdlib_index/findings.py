"""What came of it: tables of what was found, and the count that shows whether anything was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich import box
from rich.table import Table

from astyqueue.model.views import DeadLetter
from examples.stdlib_index.index import Index
from examples.stdlib_index.screen import Screen, plain

#: Rows of a table, and how many classes and functions make a package worth ranking.
_ROWS: Final = 5
_WORTH_RANKING: Final = 40


@dataclass(frozen=True, slots=True)
class Balance:
    """Every file, counted outside the queue: by the disk, by the demo's own database, and by the dead letters."""

    sent: int
    on_disk: int
    done: int
    dead: int
    twice: int

    @property
    def lost(self) -> int:
        """Files that left no result and no dead letter."""
        return self.on_disk - self.done - self.dead

    @property
    def good(self) -> bool:
        """Nothing was lost, although a worker was killed in the middle of something."""
        return self.lost == 0 and self.twice > 0

    def __str__(self) -> str:
        """The line that tells."""
        return f"sent {self.sent}, done {self.done}, dead {self.dead}, lost {self.lost}, delivered twice {self.twice}"


def show_dead(screen: Screen, letters: Sequence[DeadLetter]) -> None:
    """The files that are no Python, and why."""
    if not letters:
        screen.say("  No dead letters: this Python came without the files of its test suite that cannot be parsed.\n")
        return
    table = _table("Dead letters: files that cannot be parsed, kept with the reason", "file", "reason")
    for path, reason in sorted((path_of(letter), letter.reason) for letter in letters):
        table.add_row(plain(path), plain(reason))
    screen.console.print(table)


def path_of(letter: DeadLetter) -> str:
    """The file that a message was about."""
    match letter.body:
        case {"args": [str(path), *_]}:
            return path
    return str(letter.id)


def show_found(screen: Screen, index: Index) -> None:
    """Totals, the longest functions, and how well packages are documented."""
    query = "SELECT count(*), sum(lines), sum(functions), sum(classes), sum(documented) * 100.0 / sum(documentable) FROM files"
    files, lines, functions, classes, percent = index.database.execute(query).fetchone()
    longest = _table("The longest functions", "lines", "function", "file", right=1)
    for row in index.database.execute("SELECT longest_lines, longest, path FROM files ORDER BY 1 DESC LIMIT ?", (_ROWS,)):
        longest.add_row(*(plain(str(cell)) for cell in row))
    screen.console.print(longest)
    _show_documented(screen, index)
    screen.say(f"  {files:,} files, {lines:,} lines, {functions:,} functions, {classes:,} classes, {percent:.0f} % with a docstring\n")


def _show_documented(screen: Screen, index: Index) -> None:
    query = """SELECT package, sum(documented) * 100.0 / sum(documentable) AS percent FROM files WHERE package != 'test'
               GROUP BY package HAVING sum(documentable) > ? ORDER BY percent DESC, package"""
    ranked = [(package, f"{percent:.0f} %") for package, percent in index.database.execute(query, (_WORTH_RANKING,))]
    table = _table("Docstrings on modules, classes and functions, by package", "best", "", "worst", "")
    for best, worst in zip(ranked[:_ROWS], ranked[: -_ROWS - 1 : -1], strict=True):
        table.add_row(*best, *worst)
    screen.console.print(table)


def _table(title: str, *columns: str, right: int = 0) -> Table:
    """A table with a title; so many columns from the left are numbers."""
    table = Table(title=f"[bold]{title}", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=True)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place < right else "left", overflow="fold")
    return table
