"""What users may do to a queue besides sending and receiving, for threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import TypeVar, Unpack

from astyqueue.durations import Duration, as_microseconds
from astyqueue.model.checks import check_count
from astyqueue.model.event import Event
from astyqueue.model.explanation import Explanation
from astyqueue.model.message import MessageId, Receipt
from astyqueue.model.settings import Settings
from astyqueue.model.views import Counts, DeadLetter, Found, RedriveReport, RescanReport
from astyqueue.protocol.columns import State
from astyqueue.protocol.outcomes import ACK, Extend, Release
from astyqueue.protocol.recall import Recall
from astyqueue.protocol.steps import Steps, run
from astyqueue.queue.asked import behaviour_of, check_names
from astyqueue.queue.core import Core
from astyqueue.queue.keys import Keys
from astyqueue.queue.operating import Redriving, Rescanning, Where
from astyqueue.queue.scheduling import Scheduling
from astyqueue.queue.terms import rejected
from astyqueue.store import Store

T = TypeVar("T")


class Operations:
    """Looking at a queue, settling by receipt, dead letters, settings. Ids and receipts may be given as text."""

    def __init__(self, core: Core, store: Store) -> None:
        """Work with these parts on this store."""
        self.store = store
        self._core = core

    @property
    def core(self) -> Core:
        """The parts at work in this process; for those who build on a queue, like a dispatcher."""
        self._core = self._core.here()
        return self._core

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._core.settings.name

    @property
    def settings(self) -> Settings:
        """How the queue is laid out and how it behaves, as far as this process knows (within ten seconds)."""
        return self._core.settings

    def run(self, steps: Steps[T]) -> T:
        """Carry out steps against this queue's store, in this thread."""
        return run(steps, self.store)

    def get(self, message: MessageId | str) -> Found:
        """A message and where it stands; NotFound once it is gone."""
        return self.run(self.core.operating.get(message))

    def explain(self, message: MessageId | str) -> Explanation:
        """Why a message has not run yet, in words, and its life so far; of one that is gone, what can be said of that."""
        return self.run(self.core.operating.explain(message))

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
        """What happened to a message, to the messages of a key (or the schedule of this name), or in the whole queue, in order.

        From `since` (as far back as events are kept) up to `until` (now), aware datetimes; of these kinds, or of all; the
        first `limit` of them. Events are read as the iterator comes to them. Which are kept is the queue's setting `history`.
        """
        recall = self.core.operating.recall(message, key=key, since=since, until=until, kinds=kinds)
        return islice(self._recalled(recall), None if limit is None else check_count(limit, "events cannot be listed", least=0))

    def _recalled(self, recall: Recall) -> Iterator[Event]:
        while not recall.over:
            yield from self.run(recall.go_on())

    def peek(self, limit: int = 10, include: str = "due") -> list[Found]:
        """Messages in the order in which they would be handed out, none of them taken.

        `include` is "due", "hidden" (in hand, backing off, snoozed, parked), "future" (delayed) or "all".
        """
        return self.run(self.core.operating.peek(limit, include))

    def find(self, key: str) -> list[Found]:
        """The messages that have this key, in the order in which they are due, dead letters too.

        Those with a plain key are found until thirty days after they were due.
        """
        return self.run(Keys(self.core).find(key))

    def counts(self) -> Counts:
        """How many messages stand where, but for what only a `rescan` finds; costs a look at the names of all that are alive."""
        return self.run(self.core.operating.counts())

    def delete(self, message: MessageId | str | None = None, *, key: str | None = None) -> bool:
        """Remove a message in whatever state; whether it was there. A receipt of it is lost, its neighbours' are not.

        With `key=`, remove all messages that `find` finds by it, and whatever was to come again under it. One that was sent
        with a trigger of its own never comes again, whichever of its runs the id is of.
        """
        return self.run(Keys(self.core).delete(message, key))

    def stop(self, key: str) -> bool:
        """Stop for good the message sent under this key with a trigger of its own, also in the middle of a run; whether there was one."""
        return self.run(Scheduling(self.core).stop(key))

    def clear(self) -> int:
        """Remove all messages, also those in hand and dead and those that only a `rescan` would find; how many those were."""
        return self.run(self.core.operating.clear())

    def drop(self) -> int:
        """Remove all messages and the queue itself, but not its history, which goes in its time; how many messages those were."""
        return self.run(self.core.operating.drop())

    def dead_letters(self, limit: int = 100, **where: Unpack[Where]) -> list[DeadLetter]:
        """The first dead letters that fit: by kind, a part of the reason, since and until when they died, key, task."""
        return self.run(self.core.operating.dead_letters(limit, where))

    def dead_letter(self, message: MessageId | str) -> DeadLetter:
        """One dead letter with its body; NotFound if the message is none."""
        return self.run(self.core.operating.dead_letter(message))

    def redrive(
        self,
        *only: MessageId | str,
        rate: float | None = None,
        dry_run: bool = False,
        force: bool = False,
        progress: Callable[[RedriveReport], None] | None = None,
        cancelled: Callable[[], bool] = lambda: False,
        **where: Unpack[Where],
    ) -> RedriveReport:
        """Put dead letters back, with all their attempts: these, or else those that fit, at most `rate` a second.

        `dry_run` only counts. What is undecodable or expired would die again at once and is left, unless `force`d.
        `progress` is told after every commit and `cancelled` asked before each: what was put back until then stays so.
        """
        redriving = Redriving(rate, dry_run, force, progress, cancelled, only)
        return self.run(self.core.operating.redrive(redriving, where))

    def rescan(
        self,
        since: datetime | None = None,
        *,
        progress: Callable[[RescanReport], None] | None = None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> RescanReport:
        """Find messages that landed so late that no look reaches them, from `since` on or of all times, and have them handed out.

        Such a message was stored by a replay, a repair or a restored backup long after its time. Workers find most of them by
        themselves within half a day. Safe beside workers, and as often as you like: what is waiting, in hand, hidden or dead
        is left as it is. `progress` is told after every page and `cancelled` asked before each.
        """
        return self.run(self.core.operating.rescan(Rescanning(since, progress, cancelled)))

    def purge(self, **where: Unpack[Where]) -> int:
        """Remove the dead letters that fit for good; how many those were."""
        return self.run(self.core.operating.purge(where))

    def ack(self, receipt: Receipt | str) -> None:
        """Settle a delivery by its receipt, in whatever process: done. LeaseLost if the receipt is not current."""
        self.run(self.core.operating.settle(receipt, lambda _: ACK))

    def release(self, receipt: Receipt | str, delay: Duration = 0) -> None:
        """Give a delivery back by its receipt; this costs no attempt."""
        due = self.core.process.now() + as_microseconds(delay)
        self.run(self.core.operating.settle(receipt, lambda held: Release(due, held.attempt - 1, State.SNOOZED)))

    def extend(self, receipt: Receipt | str, by: Duration) -> None:
        """Keep a delivery for so long from now, by its receipt."""
        until = self.core.process.now() + as_microseconds(by)
        self.run(self.core.operating.settle(receipt, lambda _: Extend(until)))

    def reject(self, receipt: Receipt | str, reason: str = "rejected") -> None:
        """Make a delivery a dead letter, by its receipt."""
        self.run(self.core.operating.settle(receipt, lambda held: rejected(reason, held.attempt)))

    def configure(self, **settings: object) -> Settings:
        """Change how the queue behaves, here at once and elsewhere within ten seconds.

        Settings are lease, lease_cap, max_attempts, max_attempts_cap, backoff, backoff_cap, paused, body_bytes, history, history_kept
        and deduplication.
        """
        check_names(settings, to_change=True)
        return self.run(self.core.configure(behaviour_of(settings)))

    def pause(self) -> None:
        """Hand out nothing more, here at once and elsewhere within ten seconds; sending and settling go on."""
        self.configure(paused=True)

    def resume(self) -> None:
        """Hand out again."""
        self.configure(paused=False)
