"""`astyqueue worker -p N`: starts N worker processes, restarts those that die, and passes signals on to them.

The supervisor imports no app and opens no store, so nothing that tasks do can end it. Each process is the same command
again, with an environment that makes it ignore `-p` wherever that was set.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from astyqueue.cli.config import here, search_here
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.worker.health_server import Health
from astyqueue.cli.worker.process_pipes import Stage, Status
from astyqueue.cli.worker.signals import ENDS, ends_handled
from astyqueue.cli.worker.supervised_process import SupervisedProcess
from astyqueue.clock import SystemClock
from astyqueue.dispatch.worker_log import log_event
from astyqueue.text import length_text, reason_of
from astyqueue.units import SECOND

#: After this many processes in a row that died at once, within 10 s of their start, the supervisor gives up. Those that
#: found no store do not count.
_DEATHS: Final = 5
#: The pause before a process is started again, doubled after each one that died at once, up to the second figure.
_PAUSE: Final = SECOND
_LONGEST: Final = 60 * SECOND
#: Signals that end no process: they are passed on at every stage of the end.
PASSED_ON: Final = (signal.SIGUSR1, signal.SIGUSR2)
_FROZEN: Final = "none of its threads runs: it is suspended, or a C extension holds the interpreter"
#: Seconds between two looks at what the processes say of themselves, and at source files.
_LOOK: Final = 1.0
_LOOK_AT_SOURCES: Final = 0.5


class _SignalStream:
    """The signals to this process, as bytes of a pipe, so that one call waits for them and for a time."""

    def __init__(self) -> None:
        self._read_end, write_end = os.pipe()
        os.set_blocking(write_end, False)
        os.set_blocking(self._read_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (*ends_handled(), *PASSED_ON, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float) -> bytes:
        """The signals that have come; waits for one for at most this time."""
        ready, _, _ = select.select([self._read_end], [], [], seconds)
        return os.read(self._read_end, 4096) if ready else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionOptions:
    """A process counts as frozen after `silence` (microseconds); with `kills` the supervisor then kills it.

    `changed` returns a source file that changed since its last call; None: processes are not reloaded.
    """

    silence: int
    kills: bool
    changed: Callable[[], str | None] | None = None


class SourceWatch:
    """Notices changes of source files, for `--reload`, without importing the app.

    It watches the `.py` files of the package that the app is in, or those beside the module that it is in.
    """

    def __init__(self, app: str) -> None:
        """`app` is given as module:name. The current directory is searched first, as for the app itself."""
        self._folders = list(_folders(app.partition(":")[0].partition(".")[0]))
        self._seen = self._times()

    def changed(self) -> str | None:
        """A file that was changed, added or removed since the last call; None if there is none."""
        before, self._seen = self._seen, self._times()
        different = dict(before.items() ^ self._seen.items())
        return min(different, default=None)

    def _times(self) -> dict[str, int]:
        return {str(path): time for folder, deep in self._folders for path, time in _sources(folder, deep=deep)}


def _folders(package: str) -> Iterator[tuple[Path, bool]]:
    """The folders to watch, and whether those below them count too."""
    search_here()
    found = importlib.util.find_spec(package) if package else None
    if found is not None and found.submodule_search_locations is not None:
        yield from ((Path(place), True) for place in found.submodule_search_locations)
    else:
        origin = found.origin if found is not None else None
        yield Path(origin).parent if origin else here(), False


def _sources(folder: Path, *, deep: bool) -> Iterator[tuple[Path, int]]:
    """The files and the times of their last change, without those that are removed meanwhile."""
    for place, below, names in os.walk(folder):
        if not deep:
            below.clear()
        for path in (Path(place, name) for name in names if name.endswith(".py")):
            with contextlib.suppress(OSError):
                yield path, path.stat().st_mtime_ns


class ProcessSupervisor:
    """Runs worker processes until all have ended for good. Use it in the main thread: it handles signals."""

    def __init__(self, count: int, watched: SupervisionOptions) -> None:
        """Nothing is started yet."""
        command = [sys.executable, *sys.orig_argv[1:]]
        self._children = [SupervisedProcess(number, command) for number in range(1, count + 1)]
        self._watched = watched
        self._clock = SystemClock()
        self._stage = Stage.NONE
        self._frozen: set[int] = set()
        self._given_up: int | None = None

    def run(self) -> int:
        """The exit code: that with which it gave up, or the greatest of its processes."""
        signals = _SignalStream()
        for child in self._children:
            self._start(child)
        while not all(child.over for child in self._children):
            for number in signals.wait(self._wait_at_most()):
                self._on_signal(number)
            for child in self._children:
                child.listen()
                if child.reap():
                    self._on_end(child)
                elif child.runs:
                    self._watch(child)
            self._reload_if_changed()
            self._start_due()
        log_event(logging.INFO, "all_ended", codes=",".join(str(child.code) for child in self._children))
        return self._given_up if self._given_up is not None else max(child.code for child in self._children)

    def _wait_at_most(self) -> float:
        moments = [child.restart_at for child in self._children if child.restart_at is not None]
        left = [max(0, moment - self._clock.monotonic()) / SECOND for moment in moments]
        return min([*left, _LOOK if self._watched.changed is None else _LOOK_AT_SOURCES])

    def _on_signal(self, number: int) -> None:
        if number in PASSED_ON:
            for child in self._children:
                child.request(Stage.NONE, number)
        elif number in ENDS:
            self._end(number)

    def _end(self, number: int) -> None:
        """Go one stage further: the first signal drains the workers, the second stops them, the third kills them."""
        self._stage = Stage(min(self._stage + 1, Stage.KILL))
        log_event(logging.INFO, "end_requested", stage=self._stage.name.lower())
        for child in self._children:
            child.restart_at, child.restarts_on_change = None, False
            if self._stage is Stage.KILL:
                child.kill()
            else:
                child.request(self._stage, number)

    def _on_end(self, child: SupervisedProcess) -> None:
        """Decide whether a process that ended is started again."""
        facts = {"child": child.number, "code": child.code}
        if self._stage or (child.code == ExitCode.DONE and not child.reloads):
            log_event(logging.INFO, "ended", **facts)
        elif child.reloads or child.code == ExitCode.AGAIN:
            # One with a limit below what it needs from the start would else be started without a pause.
            pause = 0 if child.reloads or not child.died_at_once else _PAUSE
            child.reset_deaths()
            child.restart_at = self._clock.monotonic() + pause
        elif self._watched.changed is not None:
            child.restarts_on_change = True
            log_event(logging.ERROR, "died", **facts, again="when a source file changes")
        elif child.code == ExitCode.BAD_INPUT:
            self._give_up(child, ExitCode.BAD_INPUT, "its options or its app are wrong: a restart cannot help")
        elif child.deaths >= _DEATHS:
            self._give_up(child, ExitCode.CHILDREN_DIED, f"{child.deaths} in a row died at once")
        else:
            pause = min(_LONGEST, _PAUSE << min(max(child.short_lives - 1, 0), 10))
            child.restart_at = self._clock.monotonic() + pause
            log_event(logging.ERROR, "died", **facts, again_in=length_text(pause))

    def _watch(self, child: SupervisedProcess) -> None:
        """Log once that a process says nothing any longer, and kill it if it is to exit when it stalls."""
        silent = child.silent(self._watched.silence)
        if not silent:
            self._frozen.discard(child.number)
            return
        kills = self._watched.kills
        if kills or child.number not in self._frozen:
            facts = {"child": child.number, "silent": length_text(silent), "killed": kills}
            log_event(logging.ERROR, "frozen", **facts, hint=_FROZEN)
        self._frozen.add(child.number)
        if kills:
            child.kill()
            child.heard = self._clock.monotonic()

    def health(self) -> Health:
        """Alive unless a process has stalled or is frozen; ready if at least one process is."""
        live = not any(
            Status.LIVE not in child.status or child.silent(self._watched.silence)
            for child in self._children
            if child.runs
        )
        ready = any(Status.READY in child.status for child in self._children)
        state = "draining" if self._stage else "running" if live else "stalled"
        processes = [{"child": one.number, "ready": Status.READY in one.status} for one in self._children]
        return Health(live, ready and not self._stage, {"state": state, "processes": processes})

    def _give_up(self, child: SupervisedProcess, code: ExitCode, reason: str) -> None:
        log_event(logging.CRITICAL, "gives_up", child=child.number, code=child.code, reason=reason)
        self._given_up = code
        self._end(signal.SIGTERM)

    def _reload_if_changed(self) -> None:
        """Have all processes drain and start again when a source file has changed."""
        if self._watched.changed is None or self._stage or (file := self._watched.changed()) is None:
            return
        log_event(logging.INFO, "reload", file=file)
        for child in self._children:
            if child.restarts_on_change:
                child.restart_at, child.restarts_on_change = self._clock.monotonic(), False
            child.reloads = child.runs
            child.request(Stage.DRAIN, signal.SIGTERM)

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for child in self._children:
            if child.restart_at is not None and child.restart_at <= now:
                self._start(child)

    def _start(self, child: SupervisedProcess) -> None:
        """Start a process, or try again after a pause: the others run on."""
        try:
            child.start()
        except OSError as error:  # the system has too many processes, or too little memory
            child.restart_at = self._clock.monotonic() + _PAUSE
            facts = {"child": child.number, "error": reason_of(error), "again_in": length_text(_PAUSE)}
            log_event(logging.ERROR, "not_started", **facts)
