"""The errors of journals and spools, a branch of the tree in `astyqueue.errors`.

JournalError                a journal did not carry out a call, or cannot be read
├── JournalInUse            another process, or another object, writes to it or has this cursor
├── JournalFull             its cap or the disk leaves no room; what was accepted before is kept
│   └── SpoolFull           the spool of a queue has no room; it has a report of what was sent
├── JournalFailed           the disk did not carry out a write or a sync; the journal takes nothing more
└── UndecodableRecord       the codec refused the bytes of a record
"""

from __future__ import annotations

from typing import Any

from astyqueue.errors import AstyqueueError


class JournalError(AstyqueueError):
    """A journal did not carry out a call, or cannot be read."""


class JournalInUse(JournalError):
    """Another process, or another object of this one, has the journal open for writing, or has this cursor."""

    def __init__(self, what: str, place: str, holder: str) -> None:
        """`what` is "journal" or the cursor, `place` the file that is locked, `holder` the process that locked it."""
        self.what = what
        self.place = place
        self.holder = holder
        super().__init__(
            f"{what} is in use: {holder or 'another process'} has locked {place}. "
            "Close it there; the system frees the lock when that process ends"
        )


class JournalFull(JournalError):
    """A journal has no room: its cap is reached, or the disk is full. Records accepted before are kept."""

    def __init__(self, place: str, reason: str, *, appended: int = 0) -> None:
        """`appended` values of this call were accepted; the others were not."""
        self.place = place
        self.reason = reason
        self.appended = appended
        super().__init__(
            f"journal {place} is full ({reason}): {appended} values of this call were appended, the others were not. "
            "An append reclaims pages itself: it finds room once all cursors have passed the oldest page, or `retain` "
            "lets it go, and no reader is inside (in a spool: once the store takes messages), with a larger cap, or "
            "with disk space"
        )


class SpoolFull(JournalFull):
    """The spool of a queue has no room. Messages sent before are kept."""

    def __init__(self, place: str, queue: str, reason: str, *, appended: int = 0, report: Any = None) -> None:  # noqa: ANN401 - see below
        """`appended` messages of this call were sent; after `send_many`, the `SendReport` has their ids.

        The items from number `len(report.ids)` on were not sent.
        """
        super().__init__(place, reason, appended=appended)
        self.queue = queue
        self.report = report
        text = (
            f"spool of queue {queue!r} is full ({reason}): {appended} messages of this call are in it, the others not. "
            "The store empties it (why it does not: `astyqueue spool status`). Raise its cap or free disk space"
        )
        self.args = (text,)


class JournalFailed(JournalError):
    """The disk did not carry out a write or a sync of a journal, which takes nothing more until it is opened again.

    A cursor that it did not store stays open, at the place before or at the new one. One that it did not remove may be
    closed.
    """

    def __init__(self, place: str, reason: str, *, what: str = "", removal: bool = False) -> None:
        """`reason` is what the system reported, `what` the cursor if it is not the journal itself.

        With `removal` the cursor was to be removed, and not stored.
        """
        self.place = place
        self.reason = reason
        self.what = what
        self.removal = removal
        super().__init__(self._text())

    def _text(self) -> str:
        if self.removal:
            return (
                f"{self.what} in {self.place} was not removed ({self.reason}), or may be there again after a crash: "
                "it keeps pages from being reclaimed. Check the disk, open the cursor and remove it again"
            )
        if self.what:
            return (
                f"{self.what} in {self.place} was not stored ({self.reason}): records behind its place before may come "
                "again. Check the disk, and commit again"
            )
        return (
            f"journal {self.place} takes nothing more, because a write or a sync failed ({self.reason}): records since "
            "the last sync may be lost. Check the disk and open the journal again, which keeps all that can be read"
        )


class UndecodableRecord(JournalError):
    """The codec refused the bytes of a record, which are as they were appended."""

    def __init__(self, sequence: int, why: str) -> None:
        """`sequence` is the record's."""
        self.sequence = sequence
        self.why = why
        super().__init__(
            f"record {sequence} cannot be decoded ({why}): read with the codec it was written with, "
            f"or continue behind it by read(after={sequence})"
        )
