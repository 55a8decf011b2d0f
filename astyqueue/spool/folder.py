"""The folder of a spool: a sub-folder for each queue, with the queue's settings and a numbered one for each process.

    DIRECTORY/queue-emails/settings.json
    DIRECTORY/queue-emails/1/journal-1.page, journal.forwarded.cursor, refused-1.page ...
    DIRECTORY/queue-emails/2/...

A process takes the first number that no living process has, with what a dead one left there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.clock import Clock
from astyqueue.files import replace_file
from astyqueue.journal import BYTES, ReadOnlyJournal
from astyqueue.journal.disk import LocalDisk, make_durable_directory
from astyqueue.journal_errors import JournalError, JournalInUse
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.process_journal import JournalState, ProcessJournal, state_of
from astyqueue.structured_log import log_event
from astyqueue.text import exact

_QUEUE: Final = "queue-"
_SETTINGS: Final = "settings.json"
_LOCK: Final = "journal.lock"
_PAGES: Final = "journal-*.page"
#: The journals of which this process logged that they cannot be read: each health probe looks at all of them again.
_LOGGED: Final[set[Path]] = set()
_log: Final = logging.getLogger("astyqueue.spool")


class Traces(NamedTuple):
    """When a process opened a journal last, as its file system counts, 0 if none did; and the pages with their sizes.

    A file system may count in steps of 10 ms: a journal that was opened twice within one may differ in its pages only.
    """

    opened_ns: int
    pages: frozenset[tuple[str, int]]


class SpoolFolder:
    """The folder of one queue."""

    def __init__(self, directory: Path, queue: str) -> None:
        """Nothing is created yet."""
        self.queue: Final = queue
        self.path: Final = directory / f"{_QUEUE}{queue}"

    def load_settings(self) -> bytes | None:
        """The settings of the queue that a process stored; None if none did."""
        try:
            return (self.path / _SETTINGS).read_bytes()
        except FileNotFoundError:
            return None

    def save_settings(self, content: bytes) -> None:
        """Store the settings, unless they are stored already; the folder is created."""
        if self.load_settings() != content:
            make_durable_directory(LocalDisk(), self.path)
            replace_file(self.path / _SETTINGS, content)

    def forget_settings(self) -> None:
        """Remove the stored settings, which are those of a queue that was dropped: the next process asks the store."""
        (self.path / _SETTINGS).unlink(missing_ok=True)

    def numbers(self) -> list[int]:
        """The numbers of the journals that are there."""
        if not self.path.is_dir():
            return []
        return sorted(int(one.name) for one in self.path.iterdir() if one.name.isdecimal() and one.is_dir())

    def was_written(self, number: int) -> bool:
        """Whether a process ever appended to this journal: one that was just numbered has no lock to show yet."""
        return any((self.path / str(number)).glob(_PAGES))

    def open(self, number: int, options: SpoolOptions, clock: Clock) -> ProcessJournal:
        """The journal of this number; JournalInUse if a living process has it open."""
        return ProcessJournal(self.path / str(number), options, clock)

    def claim(self, options: SpoolOptions, clock: Clock) -> ProcessJournal:
        """The first journal that no process has open, with what is in it; one that cannot be opened is passed, too.

        Raises what the disk does only if it does so for a new journal.
        """
        known, number = frozenset(self.numbers()), 1
        while True:
            try:
                return self.open(number, options, clock)
            except JournalInUse:
                pass
            except (JournalError, OSError) as error:
                if number not in known:
                    raise
                self.note_unreadable(number, error)
            number += 1

    def note_unreadable(self, number: int, error: Exception) -> None:
        """Log once in this process that a journal cannot be opened or looked at."""
        place = self.path / str(number)
        if place not in _LOGGED:
            _LOGGED.add(place)
            log_event(_log, logging.WARNING, "spool_journal_unreadable", queue=self.queue, journal=number, error=error)

    def traces(self, number: int) -> Traces:
        """What a process that uses this journal changes."""
        place = self.path / str(number)
        opened_ns, pages = 0, set()
        with contextlib.suppress(FileNotFoundError):
            opened_ns = (place / _LOCK).stat().st_mtime_ns
        for page in place.glob(_PAGES):
            with contextlib.suppress(FileNotFoundError):  # a living process removes its pages meanwhile
                pages.add((page.name, page.stat().st_size))
        return Traces(opened_ns, frozenset(pages))

    def states(self, *, without: Collection[int] = ()) -> list[JournalState]:
        """The state of each journal, as the disk shows it; processes may use them meanwhile.

        One that this process may not look at is logged, and left out.
        """
        found = []
        for number in self.numbers():
            if number not in without:
                try:
                    found.append(self.state(number))
                except (JournalError, OSError) as error:
                    self.note_unreadable(number, error)
        return found

    def state(self, number: int) -> JournalState:
        """The state of one journal, as the disk shows it."""
        place = self.path / str(number)
        with ReadOnlyJournal.open(place, codec=BYTES) as journal:
            return state_of(place, journal, in_use=_is_locked(place / _LOCK))


def _is_locked(path: Path) -> bool:
    try:
        with contextlib.closing(LocalDisk().open(path, write=True)) as file:
            return not file.lock(exclusive=False)
    except FileNotFoundError:
        return False


def queues_in(directory: Path) -> Iterator[str]:
    """The names of the queues that have a spool in this directory."""
    if directory.is_dir():
        for one in sorted(directory.iterdir()):
            if one.is_dir() and one.name.startswith(_QUEUE):
                yield one.name.removeprefix(_QUEUE)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the spool of an app: of all queues, in the journals of all processes of this machine.

    `failing_since`: the first process that cannot forward could not since then.
    """

    messages: int
    oldest: datetime | None
    refused: int
    bytes: int
    failing_since: datetime | None

    def as_json(self) -> dict[str, object]:
        """The same, with moments as text."""
        oldest, since = self.oldest and exact(self.oldest), self.failing_since and exact(self.failing_since)
        return asdict(self) | {"oldest": oldest, "failing_since": since}


def backlog_of(directory: Path) -> Backlog:
    """What waits in this directory; it reads the end of each journal."""
    states = [state for name in queues_in(directory) for state in SpoolFolder(directory, name).states()]
    return Backlog(
        messages=sum(state.messages for state in states),
        oldest=min((state.oldest for state in states if state.oldest), default=None),
        refused=sum(state.refused for state in states),
        bytes=sum(state.bytes for state in states),
        failing_since=min((state.failing_since for state in states if state.failing_since), default=None),
    )


def log_undeclared(directory: Path, queues: Iterable[str]) -> None:
    """Log the queues of which messages wait in this directory although the app does not declare them."""
    for name in queues:
        folder = SpoolFolder(directory, name)
        if waiting := sum(state.messages for state in folder.states()):
            effect = "they are not forwarded: declare it, or run astyqueue spool drain"
            log_event(
                _log,
                logging.WARNING,
                "spool_queue_undeclared",
                queue=name,
                messages=waiting,
                folder=folder.path,
                effect=effect,
            )


def log_unopened(queue: str, error: Exception) -> None:
    """Log that an app could not open a queue for which messages of an earlier process may wait."""
    effect = "what waits for it is not forwarded by this process"
    log_event(_log, logging.WARNING, "spool_queue_not_opened", queue=queue, error=error, effect=effect)
