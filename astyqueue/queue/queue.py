"""The public queue class, for threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, cast

from astyqueue.clock import Clock
from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import Closed
from astyqueue.model.message import Message, as_message
from astyqueue.model.validation import check_count
from astyqueue.protocol.settling.outcomes import ACK, Outcome
from astyqueue.protocol.steps import run
from astyqueue.queue.admin import schedules
from astyqueue.queue.builder import QueueBuilder
from astyqueue.queue.delivery.base_delivery import BaseDelivery, DeliveryFactory
from astyqueue.queue.delivery.delivery import Delivery, Received
from astyqueue.queue.delivery.follow_ups import FollowUpQueue
from astyqueue.queue.delivery.retry_policy import RetryPolicy
from astyqueue.queue.delivery_loop import Later, RenewalThread, delivery_loop, renew_until_stopped
from astyqueue.queue.metrics import QueueStats
from astyqueue.queue.producing.producer import SendReport, Sent
from astyqueue.queue.queue_admin import QueueAdmin
from astyqueue.queue.runtime import QueueRuntime, ReceiveRequest
from astyqueue.queue.sqlite_transaction import Transaction, open_transaction
from astyqueue.spool import Spool
from astyqueue.store import Store
from astyqueue.triggers import Trigger
from astyqueue.waiting import Wakeup


class MessageQueue(QueueAdmin):
    """A queue that loses nothing: a message is delivered under a lease, and again if the lease ends unsettled.

    Safe to use from many threads; after a fork the child makes parts of its own. Durations are seconds, `timedelta`s
    or text like "10m"; instants are aware datetimes.
    """

    def __init__(self, core: QueueRuntime, store: Store, *, owns_store: bool = False) -> None:
        """Use `MessageQueue.builder()` or `connect(url).queue(name)`."""
        super().__init__(core, store)
        self._owns_store = owns_store
        self._keepers: dict[int, RenewalThread] = {}

    @staticmethod
    def builder() -> QueueBuilder[MessageQueue]:
        """A builder: set what the queue needs, then call `build()`."""
        return QueueBuilder(_build)

    @property
    def clock(self) -> Clock:
        """The clock that this queue uses."""
        return self._core.clock

    @property
    def stats(self) -> QueueStats:
        """What this process did in this queue since it opened it: `sent`, `received`, `acked` and so on.

        Other processes are not counted: `counts()` reads the store.
        """
        return self._core.claimer.stats

    @property
    def spool(self) -> Spool:
        """What waits on the disk to be forwarded to the store; BadInput if the queue was built without a spool."""
        return self.core.spool

    @property
    def retry_policy(self) -> RetryPolicy:
        """The retry policy of this queue."""
        return self._core.retry_policy

    @property
    def follow_ups(self) -> FollowUpQueue:
        """The queue as `Delivery.then` sends to it."""
        return self._core.follow_ups

    def send(
        self,
        body: object,
        *,
        key: str | None = None,
        group: str | None = None,
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
        """Send one message (a body, or a `Message` with its own options); it is stored safely when this returns.

        Of the messages sent with `unique`, at most one has this key. While another message has it: "reject" raises
        KeyTaken; "keep" sends nothing and returns the other's id, with `new` False; "replace" and "debounce" cancel the
        other, and the new one keeps its due time ("replace") or uses its own ("debounce"). A message that is leased is
        never cancelled: KeyTaken is raised, or with "supersede" the new one is sent beside it, and the leased one is
        not delivered again.
        QueueFull if the queue has a bound and no room. After OutcomeUnknown the message may have been sent.

        Of the messages of a `group` at most one is leased at a time, in all processes, in order: by priority, then by
        when they are due. One that failed, was snoozed or is parked keeps the others waiting until it is acked, dead or
        deleted. Messages of other groups, and without a group, go on meanwhile.

        With a `trigger` the message recurs at each occurrence, one run after the other, until the trigger ends, or
        `delete` of the id of any run or `stop` of its key ends it; it has its unique key until then. Without `unique`,
        ScheduleTaken is raised if its key is the name of a schedule. Default: occurrences that were missed, or that
        come while the run before has not ended, are made up for one after the other; `misfire` and `overlap` change
        that, as for schedules.
        """
        message = as_message(
            body,
            Message(
                body=None,
                key=key,
                group=group,
                delay=delay,
                at=at,
                priority=priority,
                headers=headers,
                expires=expires,
                lease=lease,
                max_attempts=max_attempts,
                unique=unique,
            ),
        )
        return self.run(schedules.send(self.core, message, trigger, misfire=misfire, overlap=overlap))

    def send_many(
        self,
        items: Iterable[object],
        *,
        priority: int = 0,
        delay: Duration | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> SendReport:
        """Send bodies, or `Message`s with options of their own, in bounded memory; the ids come back in order.

        Not one transaction: after an error, messages sent before it stay in the queue.
        """
        defaults = Message(None, delay=delay, priority=priority, headers=headers)
        return self.run(self.core.send_many(items, defaults))

    def receive(self, limit: int = 1, wait: Duration | None = None) -> Received:
        """Up to `limit` due deliveries; with `wait`, at least one unless that time passes without any.

        They come from one row, so there may be fewer although more are due, and never more than 200; call again for the
        rest. Their leases are not renewed: extend them, or use `deliveries`. `ack()` of the result settles them
        together.

        As a context manager it settles them together on leaving: those that a loop reached, or all if no loop reached
        any; those behind a `break` are given back.
        """
        return self._receive(limit, 0 if wait is None else as_microseconds(wait))

    def deliveries(self, *, ahead: int = 1) -> Generator[Delivery, None, None]:
        """Endless deliveries, up to `ahead` of them claimed together; their leases are renewed until they are settled.

        Going on to the next delivery acks the one before unless it was settled: before the next one is returned, or,
        with `ahead` above one, a few milliseconds later with others in one commit (a lost lease then raises nothing:
        `stats.lost` counts it and hooks get it). Leaving the loop, by an error or otherwise, counts as a failed attempt
        of the current delivery unless it was settled; those behind it are given back at once.

        Closing the queue ends it.
        """
        several = check_count(ahead, "deliveries cannot be received") > 1
        receive = partial(self._receive, ahead, None, renew=True)
        return delivery_loop(receive, self._keeper, self._later if several else None)

    def _receive(self, limit: int, wait: int | None, *, renew: bool = False) -> Received:
        core, request = self.core, ReceiveRequest(limit, wait, self.delivery, renew)
        try:
            taken = self.run(core.take(request))
        except BaseException:  # an interrupt or a cancellation may come when the steps have ended
            core.give_back(request)
            raise
        return Received(cast("list[Delivery]", taken), self._settle, self.retry_policy, core.claimer.give_back)

    def transaction(self) -> AbstractContextManager[Transaction]:
        """On SQLite, a block whose sends, acks and own statements take effect together when it ends, or not at all.

        For example `with queue.transaction() as tx: tx.connection.execute("INSERT ..."); tx.ack(delivery)`. An error
        that leaves the block rolls back; OutcomeUnknown from its end means that it may have been committed. On any
        other store NoTransactions is raised. Inside the block this thread uses the transaction only: other methods
        raise BadInput.
        """
        return open_transaction(self)

    @property
    def delivery(self) -> DeliveryFactory:
        """Makes the deliveries that a waiter of this queue gets."""
        return Delivery.settled_by(self._settle, self.retry_policy, self.follow_ups)

    @property
    def _later(self) -> Later:
        """How to settle without waiting for the commit."""
        return Later(lambda delivery: self.core.claimer.settle_later(delivery, ACK), self._flush)

    def _flush(self) -> None:
        self.run(self.core.claimer.flush())

    def _keeper(self) -> RenewalThread:
        """What renews leases in this process: a fork copies no threads, and may copy a lock that is held."""
        return self._keepers.setdefault(os.getpid(), RenewalThread(self._keep, self._wake, self.clock))

    def _wake(self) -> None:
        self._core.claimer.wake()

    def _keep(self, stopped: Callable[[], bool], pause: Wakeup) -> None:
        with contextlib.suppress(Closed):  # raised by a closed store past the steps
            self.run(renew_until_stopped(self.core.claimer, self.clock, stopped, pause))

    def _settle(self, outcomes: list[tuple[BaseDelivery, Outcome]]) -> list[BaseDelivery]:
        return self.run(self.core.claimer.settle(outcomes))

    def close(self) -> None:
        """Commit the buffered outcomes and close; leased messages are delivered again when their leases run out.

        What is in a spool is forwarded first, for the spool's `drain` (5 s by default); the rest stays on the disk for
        the next process.
        """
        try:
            self._finish()
        finally:  # another caller that closes it too may not be done yet: then that one closes it
            if self._core.closed:
                self._keeper().join()
            if self._core.closed and self._owns_store:
                self.store.close()

    def _finish(self) -> None:
        """Do what waits, and close the queue, but not its store; nothing if it is closed."""
        try:
            core = self.core
        except Closed:
            return
        with core.closing():
            self.run(core.close_spool())
            self.run(core.claimer.flush())
            self.run(core.claimer.leave(for_good=True))

    def __enter__(self) -> Self:
        """Close the queue on leaving the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Call `close`."""
        self.close()


def _build(builder: QueueBuilder[MessageQueue]) -> MessageQueue:
    store = builder.open_store()
    try:
        observers = builder.observers
        core = run(builder.opening(store, observers), store, observers)
        core.start_spool()
    except BaseException:
        if builder.owns_store:
            store.close()
        raise
    return MessageQueue(core, store, owns_store=builder.owns_store)
