"""A thread that a signal interrupts, as by Ctrl-C: what other threads append stays readable, and none of them hangs."""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import accumulate
from threading import Thread
from typing import Final, NoReturn

import pytest

from astyqueue.clock import SystemClock
from astyqueue.findings import Severity, worst
from astyqueue.journal import BYTES, Reader, ReadOnlyJournal, Record
from astyqueue.journal.writing import page_writer
from astyqueue.journal_errors import JournalFull
from astyqueue.testing import TimeMachine
from astyqueue.waiting import Wakeup
from tests.support.interrupting import Interrupting, uninterrupted
from tests.support.simulated_disk import SimulatedDisk
from tests.unit.journal.conftest import FOLDER, Opening, until_true

PATIENCE: Final = 10
BEFORE: Final = [b"before" + b"." * 30, b"before too" + b"." * 40]
SOME: Final = [b"%d" % number + b"x" * 40 for number in range(4)]
LARGE: Final = b"large" + b"x" * 900
AFTER: Final = [b"after", b"after that", b"in the next page" + b"." * 350]


def interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def in_time(call: Callable[[], object]) -> None:
    """Have another thread do this, which fails if it hangs."""
    outcome = Future[object]()

    def do() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - it is raised by the test
            outcome.set_exception(error)

    Thread(target=do, daemon=True).start()
    outcome.result(PATIENCE)


def test_what_is_appended_after_an_interrupted_append_can_be_read(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    checksums = itertools.count(1)

    def third_is_interrupted(data: bytes, start: int = 0) -> int:
        return interrupted() if next(checksums) == 3 else zlib.crc32(data, start)

    journal = opened(page_size="1MiB")
    with monkeypatch.context() as patched:
        patched.setattr(page_writer, "crc32", third_is_interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append_many([b"a", b"b", b"c"])
    journal.append(b"after")
    journal.close()
    assert [record.value for record in opened().read()][-1] == b"after"


class Seen:
    """What one reader has seen."""

    def __init__(self, reader: Reader[bytes]) -> None:
        self._reader = reader
        self._records: list[Record[bytes]] = []

    def look(self) -> None:
        with uninterrupted():
            self._records += self._reader.take(100)

    def check(self) -> None:
        """All records but those of the interrupted call must be there, once and in order; of these, the first ones."""
        self.look()
        values, sequences = [one.value for one in self._records], [one.sequence for one in self._records]
        assert self._reader.skipped == []
        assert (values[: len(BEFORE)], values[-len(AFTER) :]) == (BEFORE, AFTER)
        assert values[len(BEFORE) : -len(AFTER)] in ([], [LARGE], *accumulate([[one] for one in SOME]))
        assert sequences == sorted(set(sequences))


class Stage:
    """A journal of which a call is interrupted: two records are appended before, and two after that.

    A reader of this process and one of another follow it from the beginning.
    """

    def __init__(self, opened: Opening, clock: TimeMachine, durability: str) -> None:
        self.disk = SimulatedDisk()
        self._reopened = partial(
            opened, disk=self.disk, durability=durability, page_size=512, when_full="raise", batch_delay="1h"
        )
        self.journal = self._reopened()
        self._here = Seen(self.journal.read())
        self.elsewhere = Seen(ReadOnlyJournal.open(FOLDER, codec=BYTES, disk=self.disk, clock=clock).read())
        for value in BEFORE:
            self.journal.append(value)

    def interrupt(self, call: Callable[[Stage], object], at: int) -> bool:
        """Interrupt the call at this point, if it has so many."""
        with contextlib.suppress(KeyboardInterrupt, JournalFull), Interrupting(at, package="astyqueue") as interrupting:
            call(self)
        self.disk.room, self.disk.before_truncate = None, int
        return interrupting.points >= at

    def check(self) -> None:
        """Append what comes after, and look at all that can be read: here, elsewhere, and when it is opened again."""
        self.elsewhere.look()
        self.journal.flush()
        assert [one.value for one in self.journal.read()][: len(BEFORE)] == BEFORE
        for value in AFTER:
            self.journal.append(value)
        self.journal.flush()
        assert worst(self.journal.verify()) <= Severity.NOTE  # of the index of a page that a full disk cut
        for seen in (self._here, self.elsewhere, Seen(self.journal.read())):
            seen.check()
        self.journal.close()
        Seen(self._reopened().read()).check()


def append_to_a_full_disk(stage: Stage, room: int, values: list[bytes]) -> None:
    """The reader of another process sees the part of the write that has room, before that is cut."""
    stage.journal.flush()
    stage.disk.room, stage.disk.before_truncate = room, stage.elsewhere.look
    stage.journal.append_and_flush(values)


CALLS: Final[dict[str, Callable[[Stage], object]]] = {
    "appends": lambda stage: stage.journal.append_many(SOME),
    "appends and flushes": lambda stage: stage.journal.append_and_flush(SOME),
    "appends to a full disk": lambda stage: append_to_a_full_disk(stage, 0, SOME),
    "appends to a disk that is full soon": lambda stage: append_to_a_full_disk(stage, 100, SOME),
    "appends a record of several pages to a disk that is full soon": lambda stage: append_to_a_full_disk(
        stage, 1250, [LARGE]
    ),
    "appends a record of several pages": lambda stage: stage.journal.append(LARGE),
    "flushes": lambda stage: stage.journal.flush(),
    "syncs": lambda stage: stage.journal.sync(),
    "reclaims the last page": lambda stage: stage.journal.reclaim(last_page=True),
}


@pytest.mark.parametrize(("call", "durability"), [*((call, "none") for call in CALLS), ("appends", "each")])
def test_a_call_that_is_interrupted_wherever_it_can_be_costs_no_other_record(
    call: str, durability: str, clock: TimeMachine, opened: Opening
) -> None:
    for at in itertools.count(1):
        stage = Stage(opened, clock, durability)
        if not stage.interrupt(CALLS[call], at):
            break
        in_time(stage.check)
    assert at > 10


def test_a_sync_that_is_interrupted_keeps_no_other_sync_and_no_close_from_its_end(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(durability="none")
    journal.append(b"a")
    with monkeypatch.context() as patched:
        patched.setattr(page_writer.PageWriter, "unsynced", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.sync()
    in_time(journal.sync)
    assert journal.stat().synced_sequence == 1
    in_time(journal.close)


def test_an_append_that_is_interrupted_as_it_starts_the_thread_for_batches_leaves_that_to_the_next(
    opened: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(durability="batch", page_size="1MiB", clock=SystemClock())
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append(b"a")
    journal.append(b"b")
    until_true(lambda: journal.stat().synced_sequence == 2)


def test_an_append_that_is_interrupted_as_it_wakes_the_thread_for_batches_leaves_that_to_the_next(
    opened: Opening, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = opened(durability="batch", page_size="1MiB")
    journal.append(b"a")
    clock.when_waiting(1, PATIENCE)
    clock.advance("10ms")
    until_true(lambda: journal.stat().synced_sequence == 1)
    clock.when_waiting(1, PATIENCE)  # the thread rests
    with monkeypatch.context() as patched:
        patched.setattr(Wakeup, "set", interrupted)
        for value in (b"b", b"c"):
            with pytest.raises(KeyboardInterrupt):
                journal.append(value)
