"""The course of the demo: two workers run tasks, one is killed during a task, and the other takes over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from astyqueue.queue.queue import MessageQueue
from astyqueue.units import SECOND
from examples.stdlib_index.facts import LIBRARY
from examples.stdlib_index.jobs import index
from examples.stdlib_index.screen import Screen, plain
from examples.stdlib_index.workers import COMMAND, Workers

#: The kill comes when this much is done (percent), while the worker is busy with a file of at least _BIG bytes: a small
#: file
#: might be done before the signal arrives.
_KILL_AT: Final = 15
_BIG: Final = 60_000
#: From this percentage on, the kill comes during a file of any size.
_KILL_AT_LAST: Final = 60
#: Seconds between two checks of the running tasks, and of the queue's counts; and seconds after which the demo gives
#: up.
_LOOK: Final = 0.01
_COUNT: Final = 0.1
_TOO_LONG: Final = 180


class Stopped(Exception):
    """The demo cannot continue; the text says why."""


class Story:
    """Kills one of two workers, and watches until every message is settled."""

    def __init__(self, queue: MessageQueue, workers: Workers, *, screen: Screen, sent: int) -> None:
        """Start two workers; the second is to be killed."""
        self._queue = queue
        self._workers = workers
        self._screen = screen
        self._sent = sent
        self._survivor = workers.start()
        self._victim = workers.start()
        #: The files that the victim was running when it was killed; those that no worker has taken over yet.
        self.caught: tuple[str, ...] = ()
        self._orphans: list[str] = []
        #: The processes that were killed: one, unless a kill came between two tasks.
        self.killed: list[int] = []
        self._lease = queue.settings.behaviour.lease_us / SECOND
        self._lease_ends = 0.0
        self._percent = 0
        self._counted = 0.0

    def go_on(self) -> None:
        """Poll until every message is settled; Stopped if the surviving worker ends or _TOO_LONG passes."""
        self._screen.event(
            f"{self._survivor} and {self._victim} start, each a process of its own:", f"[bold]{' '.join(COMMAND)}[/]"
        )
        while self._percent < 100:  # noqa: PLR2004 - percent
            self._count()
            if not self.caught and self._percent >= _KILL_AT and self._is_busy():
                self._strike()
            self._watch_orphans()
            if self._survivor.ended_within(_LOOK):
                self._stop(f"{self._survivor} has ended unexpectedly")
            if self._screen.seconds > _TOO_LONG:
                self._stop(f"{self._sent} messages are not done after {_TOO_LONG} seconds")

    def _stop(self, why: str) -> None:
        message = f"{why}. The last lines of its log, {self._survivor.log}:\n{self._survivor.last_words()}"
        raise Stopped(message)

    def _count(self) -> None:
        """Count the queue at most every _COUNT seconds, and show the progress."""
        if self._screen.seconds - self._counted < _COUNT:
            return
        counts = self._queue.counts()
        left = self._lease_ends - self._screen.seconds
        self._screen.progress(
            counts, self._sent, f"the lease of {self._victim} ends in {max(left, 0):.1f} s" if self._orphans else ""
        )
        self._percent = 100 * (self._sent - counts.total + counts.dead) // self._sent
        self._counted = self._screen.seconds

    def _is_busy(self) -> bool:
        """Whether the victim runs a task that is long enough to be killed in it."""
        least = _BIG if self._percent < _KILL_AT_LAST else 0
        return any((LIBRARY / path).stat().st_size >= least for path in index.running(self._victim.process))

    def _strike(self) -> None:
        """Kill the victim; if it was between two tasks, start another victim."""
        self._victim.kill()
        self.killed.append(self._victim.process)
        self.caught = tuple(index.running(self._victim.process))  # it is dead: this no longer changes
        if not self.caught:
            missed, self._victim = self._victim, self._workers.start()
            self._screen.event(f"{missed} was killed between two tasks; {self._victim} starts, to be killed during one")
            return
        self._orphans = list(self.caught)
        self._lease_ends = self._screen.seconds + self._lease
        self._screen.event(
            f"[bold red]{self._victim} was killed (SIGKILL) while it ran {_listed(self.caught)}[/]",
            f"The queue is not notified, and no process cleans up. Messages of {self._victim} stay leased until the "
            f"lease ends, in {self._lease:.0f} s at most; then they are delivered again. "
            f"{self._survivor} continues with the rest.",
        )

    def _watch_orphans(self) -> None:
        """Show each file that another worker has taken over."""
        for path in tuple(self._orphans):
            if process := index.taker(path, after=self._victim.process):
                self._orphans.remove(path)
                self._screen.event(
                    f"[bold green]its lease has ended: {self._workers.named(process)} takes over {plain(path)}[/]"
                )


def _listed(paths: Sequence[str]) -> str:
    return " and ".join(map(plain, paths))
