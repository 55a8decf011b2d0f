"""The result of the demo: tables of facts, and the balance that shows whether a message was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from astyqueue.model.views import DeadLetter
from examples.stdlib_index.index import Index
from examples.stdlib_index.screen import Screen, plain

#: Rows of a table; and the number of modules, classes and functions that a ranked package has more than.
_ROWS: Final = 5
_WORTH_RANKING: Final = 40


@dataclass(frozen=True, slots=True)
class Balance:
    """Counts of files from outside the queue: on the disk, in the demo's own database, and in the dead letters."""

    sent: int
    on_disk: int
    done: int
    dead: int
    twice: int

    @property
    def lost(self) -> int:
        """The number of files without a result and without a dead letter."""
        return self.on_disk - self.done - self.dead

    @property
    def good(self) -> bool:
        """Whether nothing was lost although a worker was killed during a task."""
        return self.lost == 0 and self.twice > 0

    def __str__(self) -> str:
        """The balance in one line."""
        return f"sent {self.sent}, done {self.done}, dead {self.dead}, lost {self.lost}, delivered twice {self.twice}"


def show_found(screen: Screen, index: Index) -> None:
    """Show the longest functions, the share of docstrings by package, and totals."""
    longest = screen.table("The longest functions", "lines", "function", "file")
    for row in index.database.execute(
        "SELECT longest_lines, longest, path FROM files ORDER BY 1 DESC LIMIT ?", (_ROWS,)
    ):
        longest.add_row(*map(plain, row))
    screen.say(longest)
    _show_documented(screen, index)
    query = """SELECT count(*), sum(lines), sum(functions), sum(classes), sum(documented) * 100.0 / sum(documentable)
               FROM files"""
    files, lines, functions, classes, percent = index.database.execute(query).fetchone()
    screen.say(f"  [bold]In all[/] {files:,} files, {lines:,} lines, {functions:,} functions, {classes:,} classes")
    screen.say(f"  [bold]With a docstring[/] {percent:.0f} % of modules, classes and functions\n")


def _show_documented(screen: Screen, index: Index) -> None:
    query = """SELECT package, sum(documented) * 100.0 / sum(documentable) AS percent FROM files WHERE package != 'test'
               GROUP BY package HAVING sum(documentable) > ? ORDER BY percent DESC, package"""
    ranked = [(package, f"{percent:.0f} %") for package, percent in index.database.execute(query, (_WORTH_RANKING,))]
    table = screen.table("Docstrings, by package (without the tests)", "most", "", "least", "")
    for most, least in zip(ranked[:_ROWS], ranked[: -_ROWS - 1 : -1], strict=True):
        table.add_row(*most, *least)
    screen.say(table)


def show_dead(screen: Screen, letters: Sequence[DeadLetter]) -> None:
    """Show the files that cannot be parsed, with the reason."""
    if not letters:
        screen.say("  No dead letters: this Python lacks those files of its test suite that cannot be parsed.\n")
        return
    table = screen.table("Dead letters: files that cannot be parsed, kept with the reason", "file", "reason")
    for path, reason in sorted((_path_of(letter), letter.reason) for letter in letters):
        table.add_row(plain(path), plain(reason))
    screen.say(table)


def _path_of(letter: DeadLetter) -> str:
    """The file that a message names, else the id of the message."""
    match letter.body:
        case {"args": [str(path), *_]}:
            return path
    return str(letter.id)


def show_balance(screen: Screen, balance: Balance) -> None:
    """Show the balance, in green if it is good, else in red."""
    screen.say(f"[bold {'green' if balance.good else 'red'}]{balance}[/]")


def explain_twice(screen: Screen, *, caught: int, killed: int, twice: int) -> None:
    """Show why `twice` messages were delivered twice: killed workers began `killed` and did not end `caught`."""
    reasons = [f"{caught} that the kill interrupted"]
    if killed > caught:
        reasons.append(f"{killed - caught} that had ended, but the worker was killed before it acked them")
    if twice > killed:
        reasons.append(f"{twice - killed} whose lease ran out because this machine was too busy to renew it")
    screen.say(f"[dim]Delivered twice: {'; '.join(reasons)}. Each has one row, because the task is idempotent.[/]\n")
