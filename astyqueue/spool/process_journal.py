"""The journal of one process in a spool: what it sent, how far that was forwarded, and what the store refused."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from astyqueue.clock import Clock, instant
from astyqueue.errors import Closed
from astyqueue.journal import BYTES, Cursor, Journal, Reader, ReadOnlyJournal
from astyqueue.journal.reader import LossLog
from astyqueue.journal.records import Damage, Position
from astyqueue.journal_errors import JournalError, JournalFailed
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.outage import load_outage
from astyqueue.spool.record import PendingMessage
from astyqueue.spool.refused_journal import REFUSED, RefusedJournal

FORWARDED: Final = "forwarded"
#: Messages of one batch: five full commits of 200 for a row, one look at the queue, one write of the cursor. A batch
#: ends before if the bytes of its records reach this: the forwarder has each of them in memory several times.
LOT: Final = 1_000
_LOT_BYTES: Final = 8 << 20
#: How far the forwarder reads on behind the first message that is not forwarded, because its row cannot be written now:
#: in messages, which bounds how many a process that dies leaves to be sent again, and in bytes of those that wait.
_AHEAD: Final = 10 * LOT
_BYTES_AHEAD: Final = 16 << 20
#: For looks at the state: each call and each health probe looks at the same records again.
_LOSS_LOG: Final = LossLog()


@dataclass(frozen=True, slots=True)
class JournalState:
    """The journal of one process.

    `messages` wait to be forwarded, the first since `oldest`; `bytes` is what all its pages take on the disk. `refused`
    were set aside. `dropped` were in pages that made room for later ones: at most that number is lost, as some had been
    read or forwarded before. At least `unreadable` could not be read from the disk. Both count since the journal was
    opened, if this process has it open. `in_use`: a living process has it open, and forwards it. `last_error` is why
    that process, or the last that had it, could not forward since `failing_since`; empty and None if it could.
    """

    number: int
    messages: int
    bytes: int
    oldest: datetime | None
    refused: int
    dropped: int
    unreadable: int
    in_use: bool
    last_error: str
    failing_since: datetime | None


def state_of(
    folder: Path, journal: Journal[bytes] | ReadOnlyJournal[bytes], *, in_use: bool, unreadable: int = 0
) -> JournalState:
    """The state of the journal in this folder, also while other threads and processes use it."""
    stat = journal.stat()
    done = max(stat.cursors.get(FORWARDED, 0), stat.first_sequence - 1)
    with journal.read(after=done) as records:
        records.share_log(_LOSS_LOG)
        oldest = records.take(1)
    with ReadOnlyJournal.open(folder, codec=BYTES, prefix=REFUSED) as refused:
        aside = refused.stat()
    outage = load_outage(folder)
    return JournalState(
        number=int(folder.name),
        messages=max(0, stat.last_sequence - done) if oldest else 0,
        bytes=stat.bytes + aside.bytes,
        oldest=oldest[0].arrived if oldest else None,
        refused=aside.last_sequence - aside.first_sequence + 1 if aside.first_sequence else 0,
        dropped=stat.dropped_records,
        unreadable=unreadable,
        in_use=in_use,
        last_error=outage.error if outage else "",
        failing_since=instant(outage.since_us) if outage else None,
    )


class ProcessJournal:
    """One journal, open for writing by this process alone. `append` is for all threads, the rest for the forwarder.

    The forwarder confirms messages in any order. The cursor is committed before the first that waits, so those behind
    it that were confirmed are sent again by the next process, which is without effect.
    """

    def __init__(self, folder: Path, options: SpoolOptions, clock: Clock) -> None:
        """Open it, or create it; JournalInUse if another process has it open."""
        self.folder: Final = folder
        self.number: Final = int(folder.name)
        self.unreadable = 0
        self.failure: JournalFailed | None = None
        self._options: Final = options
        self._journal: Final[Journal[bytes]] = Journal.open(folder, codec=BYTES, clock=clock, **options.of_journal)
        try:
            self._cursor: Final[Cursor] = self._journal.cursor(FORWARDED)
            self._reader: Reader[bytes] = self._journal.read(cursor=self._cursor)
        except BaseException:
            with contextlib.suppress(JournalError, OSError):
                self._journal.close()
            raise
        self._is_astray = False
        self._waiting: dict[int, PendingMessage] = {}
        self._confirmed: dict[int, Position] = {}
        self._refused: Final = RefusedJournal(folder, options, clock)
        self._lock: Final = threading.Lock()
        self._closed = False

    def append(self, payloads: Sequence[bytes]) -> None:
        """Append records; on return they survive what the durability of the spool says, at least this process.

        It does not wait for room: JournalFull says how many of them were appended; the others are not in the journal.
        After JournalFailed the journal takes nothing more, and the forwarder opens it again.
        """
        try:
            self._journal.append_and_flush(payloads)
        except JournalFailed as failure:
            self.failure = failure
            raise
        except Closed:
            if self.failure is not None:
                raise JournalFailed(self.failure.place, self.failure.reason) from None
            raise

    def pending(self, held: Collection[str]) -> list[PendingMessage]:
        """The next messages that were not confirmed, up to a batch, without those of the rows that are `held`.

        After any error the next call begins behind the cursor again: the reader may have passed records that were lost.
        """
        if self._is_astray:
            self._read_again()
        self._is_astray = True
        found, size = self._free(held)
        while len(found) < LOT and size < _LOT_BYTES and self._may_read():
            records = self._reader.take(LOT - len(found), _LOT_BYTES - size)
            if not records:
                break
            self._waiting |= {one.sequence: PendingMessage.of(one) for one in records}
            found, size = self._free(held)
        self._is_astray = False
        return found

    def _read_again(self) -> None:
        """Forget all that is not committed, and read from the cursor on."""
        reader, self._reader = self._reader, self._journal.read(cursor=self._cursor)
        self._waiting.clear()
        self._confirmed.clear()
        reader.close()

    def _free(self, held: Collection[str]) -> tuple[list[PendingMessage], int]:
        """The messages that wait, without those of rows that are `held`, up to a batch; and their bytes."""
        found, size = [], 0
        for one in self._waiting.values():
            if one.row not in held:
                found.append(one)
                size += len(one.value)
                if len(found) >= LOT or size >= _LOT_BYTES:
                    break
        return found, size

    def _may_read(self) -> bool:
        """Whether the forwarder may read on, although earlier messages wait for their rows."""
        if len(self._waiting) + len(self._confirmed) >= _AHEAD:
            return False
        return sum(len(one.value) for one in self._waiting.values()) < _BYTES_AHEAD

    def has_more(self) -> bool:
        """Whether a message waits; after an error one may."""
        if self._is_astray or self._waiting:
            return True
        self._is_astray = True
        found = self._reader.has_more()
        self._is_astray = False
        return found

    def confirm(self, done: Iterable[PendingMessage]) -> bool:
        """Note durably that these messages need not be sent again, and free what they took; whether that made room."""
        for one in done:
            del self._waiting[one.sequence]
            self._confirmed[one.sequence] = Position(one.sequence, one.arrived_us)
        first = min(self._waiting, default=None)
        passed = [sequence for sequence in self._confirmed if first is None or sequence < first]
        if not passed:
            return False
        self._cursor.commit(self._confirmed[max(passed)])
        for sequence in passed:
            del self._confirmed[sequence]
        return self._journal.reclaim() > 0

    def damage(self) -> list[Damage]:
        """What could not be read since the last call; `unreadable` counts the messages in it, at least."""
        found = [one for one in self._reader.skipped if not self._was_dropped(one) and not self._was_passed(one)]
        self._reader.skipped.clear()
        self.unreadable += sum(max(1, one.before - one.after - 1) if one.after else 1 for one in found)
        return found

    def _was_dropped(self, damage: Damage) -> bool:
        """Whether these are pages that made room for later ones, which are counted as dropped."""
        page = self.folder / f"journal-{damage.page}.page"
        return self._options.drops_oldest and not damage.size and not page.exists()

    def _was_passed(self, damage: Damage) -> bool:
        """Whether an earlier process has reported it: a reader passes the beginning of its page again."""
        committed = self._cursor.position
        return committed is not None and 0 < damage.before <= committed.sequence

    def refuse(self, message: PendingMessage, reason: str) -> None:
        """Set a message aside, durably; JournalFull if the journal of refused messages is at its cap."""
        with self._lock:
            self._refused.append(reason, message.value)

    def state(self) -> JournalState:
        """What waits in it, and what was set aside."""
        return state_of(self.folder, self._journal, in_use=True, unreadable=self.unreadable)

    def abandon(self) -> None:
        """Close its files in a forked child: their locks, those of pages that are read too, end with the parent."""
        self._reader.abandon()
        self._journal.abandon()
        self._refused.abandon()

    def discard(self, failure: JournalFailed) -> None:
        """Close it after its disk failed, so that it can be opened again; later appends raise this error."""
        self.failure = failure
        with contextlib.suppress(JournalError, OSError):
            self.close()

    def close(self) -> None:
        """Let another process have it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._reader.close()
        try:
            self._refused.close()
        finally:
            self._journal.close()
