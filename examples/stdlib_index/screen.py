"""What is shown: a moving bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from astyqueue.clock import SECOND, SystemClock
from astyqueue.model.views import Counts

#: Lines are no wider than this, and just so wide where there is no terminal to tell.
_WIDEST: Final = 100
#: Without a terminal, progress is told each time so many percent more are done.
_STEP: Final = 20


class Screen:
    """Tells what happens, each event with the seconds since the start. Text may have rich's markup; `plain` takes it out."""

    def __init__(self) -> None:
        """The clock of the screen starts now."""
        on_terminal = sys.stdout.isatty()
        if not on_terminal:
            sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a pipe or a file, whose encoding may know few letters
        self._console = Console(highlight=False)
        self._console.width = min(self._console.width, _WIDEST) if on_terminal else _WIDEST
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._told = 0
        text = (
            TextColumn("  [bold]done[/]"),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*text, console=self._console, disable=not self._console.is_terminal)
        self._task = self._progress.add_task("", total=None, note="")

    @property
    def seconds(self) -> float:
        """How long this has been going on."""
        return (self._clock.monotonic() - self._began) / SECOND

    def say(self, what: RenderableType = "") -> None:
        """Something of its own."""
        self._console.print(what)

    def command(self, line: str) -> None:
        """A line to be copied, so it is not broken into several."""
        self._console.print(f"  {plain(line)}", soft_wrap=True)

    def event(self, *paragraphs: str) -> None:
        """Something happened now."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(justify="right", width=8, style="cyan")
        for time, text in zip([f"{self.seconds:.1f} s", *[""] * len(paragraphs)], paragraphs, strict=False):
            grid.add_row(time, text)
        self.say(grid)

    def table(self, title: str, *columns: str) -> Table:
        """Say the title; the table is to be filled, and said then."""
        self.say(f"  [bold]{title}[/]")
        table = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            table.add_column(column, no_wrap=column != columns[-1])
        return table

    def progress(self, counts: Counts, total: int, note: str) -> None:
        """How far it is: settled is what the queue does not hold any more, and its dead letters."""
        settled = total - counts.total + counts.dead
        held = f"{counts.waiting} waiting, {counts.in_flight} in flight, {counts.dead} dead"
        self._progress.update(self._task, total=total, completed=settled, note=note or held)
        percent = 100 * settled // total
        if not self._console.is_terminal and percent >= self._told + _STEP:
            self._told = percent - percent % _STEP
            self.event(f"{percent} % done: {held}")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the bar as it is."""
        self._progress.stop()


def plain(text: object) -> str:
    """Text that is shown as it is, whatever brackets it has."""
    return escape(str(text))
