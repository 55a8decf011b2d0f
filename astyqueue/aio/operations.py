"""What users may do to a queue besides sending and receiving, for tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from datetime import datetime
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
from astyqueue.protocol.steps import Steps, arun
from astyqueue.queue.asked import behaviour_of, check_names
from astyqueue.queue.core import Core
from astyqueue.queue.keys import Keys
from astyqueue.queue.operating import Redriving, Rescanning, Where
from astyqueue.queue.scheduling import Scheduling
from astyqueue.queue.terms import rejected
from astyqueue.store import AsyncStore

T = TypeVar("T")


class Operations:
    """Looking at a queue, settling by receipt, dead letters, settings. Ids and receipts may be given as text."""

    def __init__(self, core: Core, store: AsyncStore) -> None:
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

    async def run(self, steps: Steps[T]) -> T:
        """Carry out steps against this queue's store, in this task."""
        return await arun(steps, self.store)

    async def get(self, message: MessageId | str) -> Found:
        """A message and where it stands; NotFound once it is gone."""
        return await self.run(self.core.operating.get(message))

    async def explain(self, message: MessageId | str) -> Explanation:
        """Why a message has not run yet, in words, and its life so far; of one that is gone, what can be said of that."""
        return await self.run(self.core.operating.explain(message))

    async def history(
        self,
        message: MessageId | str | None = None,
        *,
        key: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        kinds: Iterable[str] = (),
        limit: int | None = None,
    ) -> AsyncGenerator[Event, None]:
        """What happened to a message, to the messages of a key (or the schedule of this name), or in the whole queue, in order.

        As `MessageQueue.history` for threads; go through it with `async for`.
        """
        recall = self.core.operating.recall(message, key=key, since=since, until=until, kinds=kinds)
        left = None if limit is None else check_count(limit, "events cannot be listed", least=0)
        while not recall.over and left != 0:
            for event in (await self.run(recall.go_on()))[:left]:
                yield event
                left = None if left is None else left - 1

    async def peek(self, limit: int = 10, include: str = "due") -> list[Found]:
        """Messages in the order in which they would be handed out, none of them taken.

        `include` is "due", "hidden" (in hand, backing off, snoozed, parked), "future" (delayed) or "all".
        """
        return await self.run(self.core.operating.peek(limit, include))

    async def find(self, key: str) -> list[Found]:
        """The messages that have this key, in the order in which they are due, dead letters too.

        Those with a plain key are found until thirty days after they were due.
        """
        return await self.run(Keys(self.core).find(key))

    async def counts(self) -> Counts:
        """How many messages stand where, but for what only a `rescan` finds; costs a look at the names of all that are alive."""
        return await self.run(self.core.operating.counts())

    async def delete(self, message: MessageId | str | None = None, *, key: str | None = None) -> bool:
        """Remove a message in whatever state; whether it was there. A receipt of it is lost, its neighbours' are not.

        With `key=`, remove all messages that `find` finds by it, and whatever was to come again under it.
        """
        return await self.run(Keys(self.core).delete(message, key))

    async def stop(self, key: str) -> bool:
        """Stop for good the message sent under this key with a trigger of its own; whether there was one."""
        return await self.run(Scheduling(self.core).stop(key))

    async def clear(self) -> int:
        """Remove all messages, also those in hand and dead and those that only a `rescan` would find; how many those were."""
        return await self.run(self.core.operating.clear())

    async def drop(self) -> int:
        """Remove all messages and the queue itself, but not its history, which goes in its time; how many messages those were."""
        return await self.run(self.core.operating.drop())

    async def dead_letters(self, limit: int = 100, **where: Unpack[Where]) -> list[DeadLetter]:
        """The first dead letters that fit: by kind, a part of the reason, since and until when they died, key, task."""
        return await self.run(self.core.operating.dead_letters(limit, where))

    async def dead_letter(self, message: MessageId | str) -> DeadLetter:
        """One dead letter with its body; NotFound if the message is none."""
        return await self.run(self.core.operating.dead_letter(message))

    async def redrive(
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
        return await self.run(self.core.operating.redrive(redriving, where))

    async def rescan(
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
        return await self.run(self.core.operating.rescan(Rescanning(since, progress, cancelled)))

    async def purge(self, **where: Unpack[Where]) -> int:
        """Remove the dead letters that fit for good; how many those were."""
        return await self.run(self.core.operating.purge(where))

    async def ack(self, receipt: Receipt | str) -> None:
        """Settle a delivery by its receipt, in whatever process: done. LeaseLost if the receipt is not current."""
        await self.run(self.core.operating.settle(receipt, lambda _: ACK))

    async def release(self, receipt: Receipt | str, delay: Duration = 0) -> None:
        """Give a delivery back by its receipt; this costs no attempt."""
        due = self.core.process.now() + as_microseconds(delay)
        await self.run(self.core.operating.settle(receipt, lambda held: Release(due, held.attempt - 1, State.SNOOZED)))

    async def extend(self, receipt: Receipt | str, by: Duration) -> None:
        """Keep a delivery for so long from now, by its receipt."""
        until = self.core.process.now() + as_microseconds(by)
        await self.run(self.core.operating.settle(receipt, lambda _: Extend(until)))

    async def reject(self, receipt: Receipt | str, reason: str = "rejected") -> None:
        """Make a delivery a dead letter, by its receipt."""
        await self.run(self.core.operating.settle(receipt, lambda held: rejected(reason, held.attempt)))

    async def configure(self, **settings: object) -> Settings:
        """Change how the queue behaves, here at once and elsewhere within ten seconds.

        Settings are lease, lease_cap, max_attempts, max_attempts_cap, backoff, backoff_cap, paused, body_bytes, history, history_kept
        and deduplication.
        """
        check_names(settings, to_change=True)
        return await self.run(self.core.configure(behaviour_of(settings)))

    async def pause(self) -> None:
        """Hand out nothing more, here at once and elsewhere within ten seconds; sending and settling go on."""
        await self.configure(paused=True)

    async def resume(self) -> None:
        """Hand out again."""
        await self.configure(paused=False)
