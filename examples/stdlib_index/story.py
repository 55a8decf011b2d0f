"""How the demo goes: everything is sent, two workers work, one is killed while it runs a task, and the other takes over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.queue.queue import MessageQueue
from examples.stdlib_index.jobs import index
from examples.stdlib_index.library import LIBRARY
from examples.stdlib_index.screen import Screen, plain
from examples.stdlib_index.workers import Worker, Workers

#: The kill comes when so much is done (percent), and while the worker is busy with a file of this many bytes: on a file
#: that takes only a moment the task might be over before the signal is there.
_KILL_AT: Final = 15
_BIG: Final = 60_000
#: From here on any file will do.
_KILL_AT_LAST: Final = 60
#: Seconds between two looks, and after which something must be wrong.
_LOOK: Final = 0.01
_TOO_LONG: Final = 180


class Stopped(Exception):
    """The demo cannot go on."""


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
        self._killed: Worker | None = None
        self._killed_at = 0.0
        self._caught: list[str] = []
        self._lease = queue.settings.behaviour.lease_us / SECOND

    def go_on(self) -> None:
        """Look again and again until every message is settled."""
        percent = 0
        while percent < 100:  # noqa: PLR2004 - percent
            percent = self._look()
            if self._survivor.ended_within(_LOOK):
                raise Stopped(f"{self._survivor} has ended, and nobody asked it to:\n{self._survivor.last_words()}")
            if self._screen.seconds > _TOO_LONG:
                raise Stopped(f"not done after {_TOO_LONG} seconds; the last that {self._survivor} said:\n{self._survivor.last_words()}")
            if self._killed is None and percent >= _KILL_AT:
                self._strike(least=_BIG if percent < _KILL_AT_LAST else 0)
            self._watch_for_takers()

    def _look(self) -> int:
        counts = self._queue.counts()
        self._screen.progress(counts, self._sent, self._note())
        return 100 * (self._sent - counts.total + counts.dead) // self._sent

    def _note(self) -> str:
        left = self._killed_at + self._lease - self._screen.seconds
        return f"the lease of {self._killed} ends in {left:.1f} s" if self._caught and left > 0 else ""

    def _strike(self, least: int) -> None:
        """Kill a worker that is running a task, and make sure afterwards that it was."""
        if not any((LIBRARY / path).stat().st_size >= least for path in index.running(self._victim.process)):
            return
        self._victim.kill()
        caught = index.running(self._victim.process)  # it is dead: this does not change any more
        if not caught:
            self._screen.event(f"{self._victim} was killed, but between two tasks; {self._replaced()} starts, to be killed in its place")
            return
        self._killed, self._killed_at, self._caught = self._victim, self._screen.seconds, caught
        self._screen.event(
            f"[red]{self._killed} was killed (SIGKILL) while it ran {_listed(caught)}[/]",
            "Nobody tells the queue, nobody cleans up. What it held, begun or not, is still its own until its lease",
            f"ends, in {self._lease:.0f} s at most; then it is handed out again. {str(self._survivor).capitalize()} goes on meanwhile.",
        )

    def _replaced(self) -> Worker:
        self._victim = self._workers.start()
        return self._victim

    def _watch_for_takers(self) -> None:
        for path in tuple(self._caught):
            again = index.started_again(path, self._victim.process)
            if again is None:
                continue
            taker = self._workers.by_process(again[0])
            self._caught.remove(path)
            self._screen.event(f"[green]the lease has ended: {taker} takes over {plain(path)}[/] (attempt {again[1]})")


def _listed(paths: Sequence[str]) -> str:
    return " and ".join(map(plain, paths))
