"""The journal of one process in a spool: what it sent, how far that was forwarded, and what the store refused."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from astyqueue.clock import Clock
from astyqueue.journal import BYTES, Cursor, Journal, Reader, ReadOnlyJournal, Record
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.record import RefusedMessage

#: The cursor of the forwarder, and the journal of refused messages.
FORWARDED: Final = "forwarded"
REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class JournalState:
    """The journal of one process.

    `messages` wait to be forwarded, the first since `oldest`; `bytes` is what all its pages take on the disk. `refused`
    were set aside, `dropped` made room for later ones since the journal was opened, if this process has it open.
    `in_use`: a living process has it open, and forwards it.
    """

    number: int
    messages: int
    bytes: int
    oldest: datetime | None
    refused: int
    dropped: int
    in_use: bool


def state_of(folder: Path, journal: Journal[bytes] | ReadOnlyJournal[bytes], *, in_use: bool) -> JournalState:
    """The state of the journal in this folder, also while other threads and processes use it."""
    stat = journal.stat()
    done = max(stat.cursors.get(FORWARDED, 0), stat.first_sequence - 1)
    with journal.read(after=done) as records:
        oldest = records.take(1)
    with ReadOnlyJournal.open(folder, codec=BYTES, prefix=REFUSED) as refused:
        aside = refused.stat()
    return JournalState(
        number=int(folder.name),
        messages=max(0, stat.last_sequence - done) if oldest else 0,
        bytes=stat.bytes + aside.bytes,
        oldest=oldest[0].arrived if oldest else None,
        refused=aside.last_sequence - aside.first_sequence + 1 if aside.last_sequence else 0,
        dropped=stat.dropped_records,
        in_use=in_use,
    )


class ProcessJournal:
    """One journal, open for writing by this process alone. `append` is for all threads, the rest for the forwarder."""

    def __init__(self, folder: Path, options: SpoolOptions, clock: Clock) -> None:
        """Open it, or create it; JournalInUse if another process has it open."""
        self.folder: Final = folder
        self.number: Final = int(folder.name)
        self._options: Final = options
        self._clock: Final = clock
        self._journal: Final[Journal[bytes]] = Journal.open(folder, codec=BYTES, clock=clock, **options.of_journal)
        self._cursor: Final[Cursor] = self._journal.cursor(FORWARDED)
        self._reader: Final[Reader[bytes]] = self._journal.read(cursor=self._cursor)
        self._taken: list[Record[bytes]] = []
        self._refused: Journal[bytes] | None = None
        self._lock: Final = threading.Lock()
        self._closed = False

    def append(self, payloads: Sequence[bytes]) -> None:
        """Append records; on return they survive what the durability of the spool says, at least this process.

        JournalFull says how many of them were appended; the others are not in the journal.
        """
        self._journal.append_and_flush(payloads)

    def pending(self, limit: int) -> list[Record[bytes]]:
        """The next records that were not confirmed, up to `limit`; the same ones until they are."""
        if not self._taken:
            self._taken = self._reader.take(limit)
        return self._taken

    def has_more(self) -> bool:
        """Whether a record waits."""
        return bool(self._taken) or self._reader.has_more()

    def confirm(self, record: Record[bytes]) -> None:
        """Note durably that this record and all before it need not be sent again, and free what they took."""
        self._cursor.commit(record)
        self._taken = [later for later in self._taken if later.sequence > record.sequence]
        self._journal.reclaim()

    def refuse(self, record: Record[bytes], reason: str) -> None:
        """Set a record aside, durably; JournalFull if the journal of refused messages is at the cap."""
        with self._lock:
            if self._refused is None:
                options = self._options.of_refused
                self._refused = Journal.open(self.folder, codec=BYTES, prefix=REFUSED, clock=self._clock, **options)
        self._refused.append(RefusedMessage(reason, self._clock.now(), record.value).pack())

    def state(self) -> JournalState:
        """What waits in it, and what was set aside."""
        return state_of(self.folder, self._journal, in_use=True)

    def abandon(self) -> None:
        """Close its files in a forked child: their locks, those of pages that are read too, end with the parent."""
        self._reader.abandon()
        self._journal.abandon()
        if self._refused is not None:
            self._refused.abandon()

    def close(self) -> None:
        """Let another process have it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._reader.close()
        try:
            if self._refused is not None:
                self._refused.close()
        finally:
            self._journal.close()
