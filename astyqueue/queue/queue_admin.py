"""What is done with a queue besides sending and receiving, for threads: the base of `MessageQueue`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeVar, Unpack

from astyqueue.durations import Duration
from astyqueue.journal import Record
from astyqueue.journal.read_only_journal import Readable, Since
from astyqueue.journal.records import Place
from astyqueue.model.envelope import MessageId, Receipt
from astyqueue.model.event import Event
from astyqueue.model.explanation import Explanation
from astyqueue.model.settings import Settings
from astyqueue.model.validation import check_count
from astyqueue.model.views import Counts, DeadLetter, Found, QueuePermits, RedriveReport, RescanReport
from astyqueue.protocol.admin.browse import MessageBrowser
from astyqueue.protocol.history import HistoryCursor
from astyqueue.protocol.steps import Steps, run
from astyqueue.queue.admin import dead_letters, deletion, inspection, receipts, schedules
from astyqueue.queue.admin.dead_letters import RedriveOptions, Where
from astyqueue.queue.producing.replay import ReplayOptions, ReplayReport
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.store import Store, TransactionalStore

T = TypeVar("T")


class QueueAdmin:
    """Inspection, settling by receipt, dead letters, settings. Ids and receipts may be given as text."""

    def __init__(self, core: QueueRuntime, store: Store) -> None:
        """`core` holds the parts that run the queue, `store` is where they read and write."""
        self.store = store
        self._core = core
        self._refuse = store.refuse_in_transaction if isinstance(store, TransactionalStore) else None

    @property
    def core(self) -> QueueRuntime:
        """The parts that run the queue in this process; for code built on a queue, such as a dispatcher."""
        self._core = self._core.here()
        return self._core

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._core.settings.name

    @property
    def settings(self) -> Settings:
        """The queue's layout and behaviour as last read: every ten seconds in use, less often in an idle queue."""
        return self._core.settings

    def __repr__(self) -> str:
        """The queue, and what its consumers in this process hold and wait for."""
        return f"<{type(self).__name__} {self.name}: {self._core.claimer!r}{', closed' if self._core.closed else ''}>"

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps against this queue's store, in this thread."""
        if self._refuse is not None:
            self._refuse()
        return run(steps, self.store, self._core.observers)

    def get(self, message: MessageId | str) -> Found:
        """A message and its state; NotFound once it is gone."""
        return self.run(inspection.get(self.core, message))

    def explain(self, message: MessageId | str) -> Explanation:
        """Why a message has not run yet, in words, and its history; for one that is gone, what is known of its end."""
        return self.run(inspection.explain(self.core, message))

    def history(
        self,
        message: MessageId | str | None = None,
        *,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        kinds: Iterable[str] = (),
        limit: int | None = None,
    ) -> Iterator[Event]:
        """The events, in order, of a message, of the messages of a key (or the schedule of this name), or of the queue.

        From `since` (default: as far back as events are kept) up to `until` (default: now), aware datetimes; of these
        `kinds` (default: all); the first `limit` of them. The iterator reads events as it goes. The queue's setting
        `history` decides which events are kept.
        """
        recall = inspection.history(self.core, message, key=key, since=since, until=until, kinds=kinds)
        return self._recalled(recall, None if limit is None else check_count(limit, "events cannot be listed", least=0))

    def _recalled(self, recall: HistoryCursor, left: int | None) -> Iterator[Event]:
        while not recall.over and left != 0:
            for event in self.run(recall.go_on())[:left]:
                yield event
                left = None if left is None else left - 1

    def replay(
        self,
        journal: Readable[Any] | str | os.PathLike[str],
        *,
        since: Since | None = None,
        until: Since | Place | None = None,
        where: Callable[[Record[Any]], bool] | None = None,
        message: Callable[[Record[Any]], object] | None = None,
        source: str | None = None,
        again: bool = False,
        dry_run: bool = False,
        prefix: str = "journal",
    ) -> ReplayReport:
        """Send a message for each record of a journal as if it was sent when the record arrived.

        From `since` up to `until`, for those for which `where` is true; `message` makes a body, or a `Message`, of a
        record (default: its value). In a folder the journal `prefix` is read: its values are JSON, or the `Message`s of
        a spool.

        An id follows from `source` (default: the path of the journal) and the record. So a replay that is repeated
        sends only what is missing: a message that is there, or was settled within `deduplication` (a day by default),
        is not sent again, unless `again`. With `dry_run` nothing is sent. BadInput names a record that cannot be.
        """
        options = ReplayOptions(
            since=since,
            until=until,
            where=where,
            message=message,
            source=source,
            again=again,
            dry_run=dry_run,
            prefix=prefix,
        )
        with self.core.replay(journal, options) as replay:
            while self.run(replay.go_on()):
                pass
            return replay.report

    def peek(self, limit: int = 10, include: str = "due") -> list[Found]:
        """Messages in the order of their delivery; none is claimed.

        `include` is "due", "hidden" (leased, backing off, snoozed, parked, blocked), "future" (delayed) or "all".
        """
        return self.run(inspection.peek(self.core, limit, include))

    def find(self, key: str) -> list[Found]:
        """The messages with this key, dead letters too, ordered by due time.

        Those with a plain key are found until thirty days after they were due.
        """
        return self.run(inspection.find(self.core, key))

    def browse(
        self, *, since: datetime | None = None, after: MessageId | str | None = None, follow: bool = False
    ) -> Iterator[Found]:
        """All messages that are not dead, in the order in which they were due first; none is claimed or hidden.

        From the moment `since` on (an aware datetime), or behind the message `after`; default: from the first. The
        iterator reads as it goes, and each message has the state of that moment. With `follow` each message comes when
        it is due, and the iterator waits for more; it ends when the queue is closed. Its last message is the position:
        another iterator goes on `after` it.
        """
        return self._browsed(inspection.open_browser(self.core, since, after, follow=follow))

    def _browsed(self, browser: MessageBrowser) -> Iterator[Found]:
        with inspection.until_closed(browser):
            while browser.follows or not browser.over:
                yield from self.run(inspection.next_browsed(self.core, browser))

    def permits(self) -> QueuePermits:
        """Which processes may claim, and which stand by, if `max_active_processes` limits how many claim at a time."""
        return self.run(inspection.permits(self.core))

    def counts(self) -> Counts:
        """The number of messages in each state, without those that only a `rescan` finds.

        Reads the column names of all live messages.
        """
        return self.run(inspection.counts(self.core))

    def delete(self, message: MessageId | str | None = None, *, key: str | None = None) -> bool:
        """Remove a message in any state; True if it existed. Its receipt becomes invalid, those claimed with it do not.

        With `key=`, remove all messages that `find` finds by it, and stop one that recurs under it. A message that was
        sent with its own trigger recurs no longer, whichever of its runs the id names.
        """
        return self.run(deletion.delete(self.core, message, key))

    def stop(self, key: str) -> bool:
        """End the recurring message that was sent under this key with its own trigger, even during a run.

        True if there was one.
        """
        return self.run(schedules.stop(self.core, key))

    def clear(self) -> int:
        """Remove all messages, also leased and dead ones and those that only a `rescan` finds; return their number."""
        return self.run(deletion.clear(self.core))

    def drop(self) -> int:
        """Remove all messages and the queue itself; return the number of messages. The history expires by itself."""
        return self.run(deletion.drop(self.core))

    def dead_letters(self, limit: int = 100, **where: Unpack[Where]) -> list[DeadLetter]:
        """The first `limit` dead letters that match all given `kind`, `reason`, `since`, `until`, `key` and `task`."""
        return self.run(dead_letters.dead_letters(self.core, limit, where))

    def dead_letter(self, message: MessageId | str) -> DeadLetter:
        """One dead letter with its body; NotFound if the message is not a dead letter."""
        return self.run(dead_letters.dead_letter(self.core, message))

    def redrive(
        self,
        only: MessageId | str | Iterable[MessageId | str] | None = None,
        *,
        rate: float | None = None,
        dry_run: bool = False,
        force: bool = False,
        progress: Callable[[RedriveReport], None] | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        **where: Unpack[Where],
    ) -> RedriveReport:
        """Put dead letters back, with all attempts: `only` one or several, or all that match; at most `rate` a second.

        `dry_run` only counts. Undecodable and expired messages would die again at once and are left, unless `force`d.
        `progress` is called after every commit and `cancelled` before each; messages put back before a stop stay back.
        """
        redriving = RedriveOptions(
            rate=rate, dry_run=dry_run, force=force, progress=progress, cancelled=cancelled, only=only
        )
        return self.run(dead_letters.redrive(self.core, redriving, where))

    def rescan(
        self,
        since: datetime | None = None,
        *,
        progress: Callable[[RescanReport], None] | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> RescanReport:
        """Find messages, from `since` on (default: all), that landed too late for any scan, and make them deliverable.

        Such a message was stored by a replay, a repair or a restored backup long after its time. Workers find most of
        them within half a day without this call. It is safe beside workers and may be repeated: waiting, leased, hidden
        and dead messages stay as they are. `progress` is called after every page and `cancelled` before each.
        """
        return self.run(inspection.rescan(self.core, since, progress=progress, cancelled=cancelled))

    def purge(self, **where: Unpack[Where]) -> int:
        """Remove for good the dead letters that match, all of them without `where`; returns their number."""
        return self.run(dead_letters.purge(self.core, where))

    def ack(self, receipt: Receipt | str) -> None:
        """Ack a delivery by its receipt, from any process. LeaseLost if the receipt is not current."""
        self.run(receipts.ack(self.core, receipt))

    def release(self, receipt: Receipt | str, delay: Duration = 0) -> None:
        """Give a delivery back, due after `delay` (default: at once); this costs no attempt. LeaseLost as for `ack`."""
        self.run(receipts.release(self.core, receipt, delay))

    def extend(self, receipt: Receipt | str, by: Duration) -> None:
        """Extend the lease of a delivery to `by` from now; it is never shortened. LeaseLost as for `ack`."""
        self.run(receipts.extend(self.core, receipt, by))

    def reject(self, receipt: Receipt | str, reason: str = "rejected") -> None:
        """Make a delivery a dead letter, by its receipt. LeaseLost as for `ack`."""
        self.run(receipts.reject(self.core, receipt, reason))

    def configure(self, **settings: object) -> Settings:
        """Change the queue's behaviour, in this process at once and in others within ten seconds.

        docs/reference/settings.md lists the settings under "Behaviour"; BadSetting for an unknown one or a wrong value.
        """
        return self.run(self.core.configure(settings))

    def pause(self) -> None:
        """Stop delivery, in this process at once and in others within ten seconds; sending and settling go on."""
        self.configure(paused=True)

    def resume(self) -> None:
        """Resume delivery."""
        self.configure(paused=False)
