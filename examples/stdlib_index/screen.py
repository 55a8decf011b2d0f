"""The output of the demo: a progress bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from astyqueue.clock import SystemClock
from astyqueue.model.views import Counts
from astyqueue.units import SECOND

#: The width of lines at most; without a terminal, exactly.
_WIDEST: Final = 100
#: Without a terminal, a line shows the progress each time this many percent more are done.
_STEP: Final = 20


class Screen:
    """Shows events with the seconds since the start. Text may have rich's markup, which `plain` escapes."""

    def __init__(self) -> None:
        """The seconds of events count from now."""
        on_terminal = sys.stdout.isatty()
        if not on_terminal:
            sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a pipe's encoding may lack letters
        self._console = Console(highlight=False)
        self._console.width = min(self._console.width, _WIDEST) if on_terminal else _WIDEST
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._shown = 0
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
        """The seconds since the start."""
        return (self._clock.monotonic() - self._began) / SECOND

    def say(self, what: RenderableType = "") -> None:
        """Print text, a table or an empty line, without the time."""
        self._console.print(what)

    def command(self, line: str) -> None:
        """Print a command to be copied; it is not broken into several lines."""
        self._console.print(f"  {plain(line)}", soft_wrap=True)

    def event(self, *paragraphs: str) -> None:
        """Print an event with the time, one line or more for each paragraph."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(justify="right", width=8, style="cyan")
        for time, text in zip([f"{self.seconds:.1f} s", *[""] * len(paragraphs)], paragraphs, strict=False):
            grid.add_row(time, text)
        self.say(grid)

    def table(self, title: str, *columns: str) -> Table:
        """Print the title and return an empty table, for the caller to fill and to `say`."""
        self.say(f"  [bold]{title}[/]")
        table = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            table.add_column(column, no_wrap=column != columns[-1])
        return table

    def progress(self, counts: Counts, total: int, note: str) -> None:
        """Show the progress: messages that have left the queue and dead letters are settled, of `total` sent."""
        settled = total - counts.total + counts.dead
        held = f"{counts.waiting} waiting, {counts.in_flight} in flight, {counts.dead} dead"
        self._progress.update(self._task, total=total, completed=settled, note=note or held)
        percent = 100 * settled // total
        if not self._console.is_terminal and percent >= self._shown + _STEP:
            self._shown = percent - percent % _STEP
            self.event(f"{percent} % done: {held}")

    def __enter__(self) -> Self:
        """Start the bar."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar, and leave it on the screen."""
        self._progress.stop()


def plain(text: object) -> str:
    """Text with its brackets escaped, so that rich shows them."""
    return escape(str(text))
