"""The spool of a queue in this process: what sends append to, what its owner sees, and its orderly end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from astyqueue.clock import Clock, SystemClock, instant
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.journal_errors import JournalError
from astyqueue.observe.observers import Observers
from astyqueue.spool.folder import SpoolFolder
from astyqueue.spool.forwarder import Deliver, Forwarder
from astyqueue.spool.open_journals import OpenJournals
from astyqueue.spool.options import SpoolOptions
from astyqueue.spool.process_journal import JournalState
from astyqueue.spool.record import SpooledMessage
from astyqueue.spool.room import Room
from astyqueue.stores.fork_hooks import HeldLocks, call_at_forks
from astyqueue.structured_log import log_event
from astyqueue.units import SECOND

#: How long `close` waits for the thread, which may be in a request to the store; it then ends with that request.
_PATIENCE_US: Final = 5 * SECOND
_log: Final = logging.getLogger("astyqueue.spool")


@dataclass(frozen=True, slots=True)
class SpoolStatus:
    """What waits in the folder of a queue, in the journals of all processes.

    `messages` wait to be forwarded, the first since `oldest`; `bytes` is what all pages take on the disk. `refused`
    were set aside, because the store refuses them for ever; `last_refusal` is why this process set one aside last.
    `last_error` and `failing_since` are those of this process: the store could not be reached since then, or some of
    its rows, or the disk fails; empty and None once all is forwarded again. `dropped` were in pages that made room for
    later ones: at most that number is lost. At least `unreadable` could not be read. Both are those of this process.
    """

    messages: int
    bytes: int
    oldest: datetime | None
    refused: int
    dropped: int
    unreadable: int
    last_refusal: str
    last_error: str
    failing_since: datetime | None
    journals: tuple[JournalState, ...]


class ConnectionSpools:
    """The spools of the queues of one connection: their common options, and those to close with it. Thread-safe."""

    def __init__(self, options: SpoolOptions) -> None:
        """No spool is open yet."""
        self.options: Final = options
        self._open: Final[dict[Spool, None]] = {}

    def add(self, spool: Spool) -> None:
        """Close this one with the others; one of a forked child adds itself there."""
        self._open[spool] = None

    def remove(self, spool: Spool) -> None:
        """Forget one that was closed; does nothing for another one."""
        self._open.pop(spool, None)

    def close(self) -> None:
        """Close all, at the same time: with the store away this takes as long as for one queue.

        One for which no thread can be started is closed by this thread.
        """
        threads = []
        for one in list(self._open):
            thread = threading.Thread(target=one.close, name="astyqueue-spool-close")
            try:
                thread.start()
            except RuntimeError:
                one.close()
            else:
                threads.append(thread)
        for thread in threads:
            thread.join()


class Spool:
    """The spool of one queue in this process. Thread-safe; a forked child makes one of its own."""

    def __init__(
        self, options: SpoolOptions, queue: str, clock: Clock | None = None, *, among: ConnectionSpools | None = None
    ) -> None:
        """Nothing is opened before `start`; from then until it is closed it is `among` those of a connection."""
        self.folder: Final = SpoolFolder(options.directory, queue)
        self._options: Final = options
        self._clock: Final = clock or SystemClock()
        self.waits_for_room: Final = options.waits_for_room
        self.room: Final = Room(queue, self._clock)
        self._among: Final = ConnectionSpools(options) if among is None else among
        self._lock: Final = threading.Lock()
        self._files: Final = threading.Lock()
        self._held = HeldLocks()
        self._journals: OpenJournals | None = None
        self._forwarder: Forwarder | None = None
        self._closed = False
        self._over: Final = threading.Event()

    def anew(self) -> Spool:
        """The same for a forked child, with a journal of its own."""
        return Spool(self._options, self.folder.queue, self._clock, among=self._among)

    def start(self, deliver: Deliver, observers: Observers) -> None:
        """Take a journal that no process has open, with what is in it, and forward with `deliver`; once.

        `observers` get events of what was forwarded and refused.
        """
        if self._forwarder is not None:
            return
        with self._lock:
            if self._forwarder is None and not self._closed:
                call_at_forks(self)
                with self._files:
                    journals = self._journals = OpenJournals(self.folder, self._options, self._clock, self._files)
                try:
                    forwarder = Forwarder(
                        journals, deliver=deliver, clock=self._clock, observers=observers, room=self.room
                    )
                    forwarder.start()
                except BaseException:
                    journals.close()
                    raise
                self._forwarder = forwarder
                self._among.add(self)

    def append(self, messages: Sequence[SpooledMessage]) -> None:
        """Append messages; on return they are as durable as the spool's durability says.

        When the spool is full this drops the oldest if `when_full` says so, or raises JournalFull: it does not wait.
        With "block" its caller waits in `room` then, and appends what is left.
        """
        forwarder = self._running()
        if messages:
            try:
                forwarder.journals.own.append([message.pack() for message in messages])
            finally:
                forwarder.appended()

    def _running(self) -> Forwarder:
        if self._forwarder is None or self._closed:
            message = f"the spool of queue {self.folder.queue!r} was closed: build the queue again"
            raise Closed(message)
        return self._forwarder

    def status(self) -> SpoolStatus:
        """What waits now; it reads the folder."""
        forwarder = self._forwarder
        with self._files:
            journals = [] if forwarder is None or self._closed else forwarder.journals.all
            own = [journal.state() for journal in journals]
            found = [*own, *self.folder.states(without={journal.number for journal in journals})]
        outage = forwarder.outage if forwarder else None
        return SpoolStatus(
            messages=sum(one.messages for one in found),
            bytes=sum(one.bytes for one in found),
            oldest=min((one.oldest for one in found if one.oldest), default=None),
            refused=sum(one.refused for one in found),
            dropped=sum(one.dropped for one in own),
            unreadable=forwarder.unreadable if forwarder else 0,
            last_refusal=forwarder.last_refusal if forwarder else "",
            last_error=outage.last_error if outage else "",
            failing_since=instant(outage.since_us) if outage and outage.since_us is not None else None,
            journals=tuple(sorted(found, key=lambda one: one.number)),
        )

    def drain(self, timeout: Duration = "1m") -> bool:
        """Wait until this process has forwarded all it may: its own messages, and those that dead processes left.

        False if that takes longer. Processes that live forward theirs themselves.
        """
        return self._running().drain(as_microseconds(timeout), patient=True)

    def close(self) -> None:
        """Forward what waits for as long as the spool's `drain`, unless the store is away; what is left is logged.

        It stays on the disk, and the next process that has this spool forwards it.
        """
        with self._lock:
            forwarder, was_closed = self._forwarder, self._closed
            self._closed = True
        self.room.look_again()
        if forwarder is None:
            return
        # What follows for a second caller, such as the end of the store, would cut short what the first has begun.
        if was_closed:
            self._over.wait((self._options.drain_us + _PATIENCE_US) / SECOND)
            return
        try:
            forwarder.drain(self._options.drain_us, patient=False)
            has_ended = forwarder.close(_PATIENCE_US)
        finally:
            self._among.remove(self)
            self._over.set()
        if has_ended:
            self._log_left(forwarder.journals.own.number)

    def _log_left(self, number: int) -> None:
        """Log the messages that are left in this journal; a disk that does not show them is logged, too."""
        try:
            with self._files:
                left = self.folder.state(number).messages
        except (JournalError, OSError) as error:
            self.folder.note_unreadable(number, error)
            return
        if left:
            log_event(
                _log,
                logging.WARNING,
                "spool_closed_with_messages",
                queue=self.folder.queue,
                messages=left,
                folder=self.folder.path,
            )

    def before_fork(self) -> None:
        """Wait until no thread is opening or closing a journal."""
        self._held.take((self._files,))

    def after_fork(self, *, child: bool) -> None:
        """Go on in the parent; in the child, abandon what the parent has."""
        self._held.release()
        if child:
            self.abandon()

    def abandon(self) -> None:
        """Close the files of the journals without a write and without a lock: then their locks end with the parent."""
        self._closed = True
        self._among.remove(self)
        self._over.set()
        if self._journals is not None:
            self._journals.abandon()
