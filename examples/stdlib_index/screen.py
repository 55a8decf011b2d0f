"""What is shown: a moving bar on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from astyqueue.clock import SECOND, SystemClock
from astyqueue.model.views import Counts

#: How wide a line is where there is no terminal to tell.
_WIDTH: Final = 100
#: Without a terminal, progress is told each time so many percent are done.
_STEP: Final = 20


class Screen:
    """Tells what happens, each event with the seconds since the start."""

    def __init__(self) -> None:
        """The clock of the screen starts now."""
        if not sys.stdout.isatty():
            sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a pipe or a file, whose encoding may know few letters
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._told = 0
        bar = TextColumn("  [bold]indexed"), BarColumn(), MofNCompleteColumn(), TextColumn("[dim]{task.fields[note]}"), TimeElapsedColumn()
        self._progress = Progress(*bar, console=self.console, disable=not self.console.is_terminal, refresh_per_second=20)
        self._task = self._progress.add_task("", total=None, note="")

    @property
    def seconds(self) -> float:
        """How long this has been going on."""
        return (self._clock.monotonic() - self._began) / SECOND

    def say(self, text: str = "") -> None:
        """A line of its own; `[bold]` and the like are markup."""
        self.console.print(text)

    def event(self, text: str, *more: str) -> None:
        """Something happened now."""
        self.say(f"  [cyan]{self.seconds:5.1f} s[/]  {text}")
        for line in more:
            self.say(f"           {line}")

    def progress(self, counts: Counts, total: int, note: str) -> None:
        """How far it is: what the queue does not hold any more, and its dead letters, are settled."""
        settled = total - counts.total + counts.dead
        held = f"{counts.waiting} waiting, {counts.in_flight} in flight, {counts.backing_off} backing off, {counts.dead} dead"
        self._progress.update(self._task, total=total, completed=settled, note=note or held)
        if not self.console.is_terminal and (percent := 100 * settled // total) >= self._told + _STEP:
            self._told = percent - percent % _STEP
            self.event(f"{percent} % settled: {held}")

    def __enter__(self) -> Self:
        """Show the bar."""
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Leave the bar as it is, if it came anywhere."""
        self._progress.stop()


def plain(text: str) -> str:
    """Text that is shown as it is, whatever brackets it has."""
    return escape(text)
