"""How the demo goes: two workers work, one is killed while it runs a task, and the other takes over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.queue.queue import MessageQueue
from examples.stdlib_index.jobs import index
from examples.stdlib_index.library import LIBRARY
from examples.stdlib_index.screen import Screen, plain
from examples.stdlib_index.workers import COMMAND, Workers

#: The kill comes when so much is done (percent), and while the worker is busy with a file of this many bytes: a file that
#: takes only a moment might be done before the signal is there.
_KILL_AT: Final = 15
_BIG: Final = 60_000
#: From here on any file will do.
_KILL_AT_LAST: Final = 60
#: Seconds between two looks at what the workers run, and at what the queue counts; and after which something must be wrong.
_LOOK: Final = 0.01
_COUNT: Final = 0.1
_TOO_LONG: Final = 180


class Stopped(Exception):
    """The demo cannot go on; the text says why."""


class Story:
    """What happens between the first message and the last."""

    def __init__(self, queue: MessageQueue, workers: Workers, *, screen: Screen, sent: int) -> None:
        """Two workers start."""
        self._queue = queue
        self._workers = workers
        self._screen = screen
        self._sent = sent
        self._survivor = workers.start()
        self._victim = workers.start()
        #: What the victim was running when it was killed, and the part of it that nobody has taken over yet.
        self.caught: tuple[str, ...] = ()
        self._orphans: list[str] = []
        #: The processes that were killed: one, unless a kill came between two tasks.
        self.killed: list[int] = []
        self._lease = queue.settings.behaviour.lease_us / SECOND
        self._lease_ends = 0.0
        self._percent = 0
        self._counted = 0.0

    def go_on(self) -> None:
        """Look again and again until every message is settled."""
        self._screen.event(f"{self._survivor} and {self._victim} start, each a process of its own:", f"[bold]{' '.join(COMMAND)}[/]")
        while self._percent < 100:  # noqa: PLR2004 - percent
            self._count()
            if not self.caught and self._percent >= _KILL_AT and self._is_busy():
                self._strike()
            self._watch_orphans()
            if self._survivor.ended_within(_LOOK):
                self._stop(f"{self._survivor} has ended, and nobody asked it to")
            if self._screen.seconds > _TOO_LONG:
                self._stop(f"{self._sent} messages are not done after {_TOO_LONG} seconds")

    def _stop(self, why: str) -> None:
        message = f"{why}. The last that it said, in {self._survivor.log}:\n{self._survivor.last_words()}"
        raise Stopped(message)

    def _count(self) -> None:
        """Ask the queue how far it is, now and then."""
        if self._screen.seconds - self._counted < _COUNT:
            return
        counts = self._queue.counts()
        left = self._lease_ends - self._screen.seconds
        self._screen.progress(counts, self._sent, f"the lease of {self._victim} ends in {max(left, 0):.1f} s" if self._orphans else "")
        self._percent = 100 * (self._sent - counts.total + counts.dead) // self._sent
        self._counted = self._screen.seconds

    def _is_busy(self) -> bool:
        """Whether the worker to be killed is in the middle of something that takes a while."""
        least = _BIG if self._percent < _KILL_AT_LAST else 0
        return any((LIBRARY / path).stat().st_size >= least for path in index.running(self._victim.process))

    def _strike(self) -> None:
        """Kill a worker, and make sure afterwards that it was running a task."""
        self._victim.kill()
        self.killed.append(self._victim.process)
        self.caught = tuple(index.running(self._victim.process))  # it is dead: this does not change any more
        if not self.caught:
            missed, self._victim = self._victim, self._workers.start()
            self._screen.event(f"{missed} was killed between two tasks; {self._victim} starts, to be killed in the middle of one")
            return
        self._orphans = list(self.caught)
        self._lease_ends = self._screen.seconds + self._lease
        self._screen.event(
            f"[bold red]{self._victim} was killed (SIGKILL) while it ran {_listed(self.caught)}[/]",
            f"Nobody tells the queue, nobody tidies up. What {self._victim} held stays its own until its lease ends, in "
            f"{self._lease:.0f} s at most; then it is handed out again. Meanwhile {self._survivor} goes on with the rest.",
        )

    def _watch_orphans(self) -> None:
        """Tell of each file that somebody has taken over."""
        for path in tuple(self._orphans):
            if process := index.taker(path, after=self._victim.process):
                self._orphans.remove(path)
                self._screen.event(f"[bold green]its lease has ended: {self._workers.named(process)} takes over {plain(path)}[/]")


def _listed(paths: Sequence[str]) -> str:
    return " and ".join(map(plain, paths))
