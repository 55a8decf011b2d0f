"""The queue that users hold, for threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar, cast

from astyqueue.clock import Clock
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.model.checks import check_count
from astyqueue.model.outgoing import Message
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.protocol.steps import run
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.core import Core, Taking
from astyqueue.queue.delivery import Delivery, Received
from astyqueue.queue.holding import Handed, Kind
from astyqueue.queue.keeper import Keeper, keep
from astyqueue.queue.operations import Operations
from astyqueue.queue.producer import SendReport, Sent, as_message
from astyqueue.queue.scheduling import Scheduling, own_policies, policies_without_trigger
from astyqueue.queue.stats import Stats
from astyqueue.queue.terms import Terms
from astyqueue.store import Store
from astyqueue.triggers import Trigger

T = TypeVar("T")


class MessageQueue(Operations):
    """A queue that loses nothing: what was sent is handed out, under a lease, until somebody says it is done.

    Safe to use from many threads; after a fork the child goes on with its own. Durations are seconds, `timedelta`s or
    text like "10m"; instants are aware datetimes.
    """

    def __init__(self, core: Core, store: Store, *, owns_store: bool = False) -> None:
        """Use `MessageQueue.builder()` or `connect(url).queue(name)`."""
        super().__init__(core, store)
        self._owns_store = owns_store
        self._keeper = Keeper(self._keep, self._wake)

    @staticmethod
    def builder() -> QueueBuilder[MessageQueue]:
        """Say what queue you want, then `build()` it."""
        return QueueBuilder(_build)

    @property
    def clock(self) -> Clock:
        """The clock this queue goes by."""
        return self._core.clock

    @property
    def stats(self) -> Stats:
        """What this process did with the queue."""
        return self._core.claimer.stats

    @property
    def terms(self) -> Terms:
        """How outcomes are worked out for this queue."""
        return self._core.terms

    def send(
        self,
        body: object,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        expires: Duration | datetime | None = None,
        lease: Duration | None = None,
        max_attempts: int | None = None,
        unique: str | None = None,
        trigger: Trigger | None = None,
        misfire: str | None = None,
        overlap: str | None = None,
    ) -> Sent:
        """Send one message (a body, or a `Message` with its own options); it is not lost any more when this returns.

        Of the messages that are sent with `unique`, at most one has this key. What becomes of this one while another has it:
        "reject" raises KeyTaken; "keep" sends nothing and returns the other's id, with `new` False; "replace" and "debounce"
        cancel the other, and the new one is due when that was, or as it says itself. One that is worked on is never
        cancelled: KeyTaken is raised. OutcomeUnknown says that it may have been sent.

        With a `trigger` it comes again at each slot, one run after the other, until the trigger ends, or `delete` of the id
        of any run or `stop` of its key ends it; a unique key is its own until then. Without `unique`, ScheduleTaken is raised
        if its key is the name of a schedule. Slots that were missed, or that come while the run before has not ended, are made up for
        one after the other; `misfire` and `overlap` say otherwise, in the words of schedules.
        """
        message = as_message(body, Message(None, key, delay, at, priority, headers, expires, lease, max_attempts, unique))
        if trigger is not None:
            return self.run(Scheduling(self.core).send(message, trigger, own_policies(message, misfire, overlap)))
        if misfire is not None or overlap is not None:
            raise policies_without_trigger()
        return self.run(self.core.send(message))

    def send_many(
        self, items: Iterable[object], *, priority: int = 0, delay: Duration | None = None, headers: Mapping[str, str] | None = None
    ) -> SendReport:
        """Send bodies, or `Message`s with options of their own, in bounded memory; the ids come back in order.

        Not one transaction: an error leaves what was sent before it in the queue.
        """
        defaults = Message(None, delay=delay, priority=priority, headers=headers)
        return self.run(self.core.send_many(items, defaults))

    def receive(self, limit: int = 1, wait: Duration | None = None) -> Received:
        """Up to `limit` deliveries that are due; with `wait`, at least one unless that long passes without any.

        They come from one row, so they may be fewer although more are due, and never more than 200; ask again for the rest. `ack()` of
        the result settles them together.

        Use it as a context manager and they are settled together on leaving: those that a loop reached, or all if they were
        handled as a whole; what lies behind a `break` is given back.
        """
        return Received(self._take(limit, 0 if wait is None else as_microseconds(wait)), self._settle, self.terms)

    def deliveries(self, *, ahead: int = 1) -> Generator[Delivery, None, None]:
        """Endless deliveries, their leases renewed while held, up to `ahead` of them claimed together.

        Going on to the next acks the one before, if it was not settled: it is done when the next one comes, or with more than one
        `ahead` a few milliseconds later, many in one commit (then `stats.lost` and hooks tell of leases that were lost, and nothing is
        raised). Leaving the loop, by an error or otherwise, counts as a failed attempt of the one in hand unless it was settled; those
        behind it are given back at once. Closing the queue ends it.
        """
        several = check_count(ahead, "deliveries cannot be received") > 1
        with self._keeper, contextlib.suppress(Closed):
            try:
                while True:
                    yield from self._in_turn(self._take(ahead, None, renew=True), together=several)
            finally:
                if several:  # nobody may be left here who would commit what was just handed in
                    self.run(self.core.claimer.flush())

    def _in_turn(self, deliveries: list[Delivery], *, together: bool) -> Iterator[Delivery]:
        with Received(deliveries, self._settle, self.terms) as received:
            for delivery in received:
                yield delivery
                if not together:
                    received.ack_if_unsettled(delivery)
                elif not delivery.settled:
                    self.core.claimer.settle_later(delivery, ACK)

    def _take(self, limit: int, wait: int | None, *, renew: bool = False) -> list[Delivery]:
        taken = self.run(self.core.take(Taking(limit, wait, self.delivery, renew)))
        return cast("list[Delivery]", taken)

    @property
    def delivery(self) -> Kind:
        """Makes what a seat of this queue is handed."""
        return Delivery.settled_by(self._settle, self.terms)

    def _wake(self) -> None:
        self._core.claimer.wake()

    def _keep(self, stopped: Callable[[], bool]) -> None:
        self.run(keep(self._core.claimer, self.clock, stopped))

    def _settle(self, outcomes: list[tuple[Handed, Settling]]) -> list[Handed]:
        return self.run(self.core.claimer.settle(outcomes))

    def close(self) -> None:
        """Commit what was handed in, and let go; what is still held is handed out again when its lease runs out."""
        if self._core.closed:
            return
        try:
            self.run(self.core.claimer.flush())
        finally:
            self._core.close()
            if self._owns_store:
                self.store.close()

    def __enter__(self) -> Self:
        """Close the queue on leaving the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """As `close`."""
        self.close()


def _build(builder: QueueBuilder[MessageQueue]) -> MessageQueue:
    store = builder.open_store()
    try:
        core = run(builder.opening(store.spread), store)
    except BaseException:
        if builder.owns_store:
            store.close()
        raise
    return MessageQueue(core, store, owns_store=builder.owns_store)
