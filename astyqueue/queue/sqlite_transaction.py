"""A transaction of a queue on SQLite: sends, acks and the caller's own writes take effect together, or not at all.

What follows from them in this process (wake-ups of consumers, counters, calls of hooks, leases) waits for the commit.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TypeVar

from astyqueue.durations import Duration
from astyqueue.errors import BadInput, Closed, LeaseLost, NoTransactions, OutcomeUnknown
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message, as_message
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Send, Steps, run
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.consuming.follow_up_sending import FollowUpSending
from astyqueue.queue.consuming.outcome_recorder import PendingOutcome
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease
from astyqueue.queue.delivery.follow_ups import AfterCommit
from astyqueue.queue.history_writer import HistoryWriter
from astyqueue.queue.hooks import Hook, notified
from astyqueue.queue.producing.producer import SendReport, Sent, UncommittedSends
from astyqueue.queue.queue_admin import QueueAdmin
from astyqueue.store import OpenTransaction, TransactionalStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Consequences:
    """What is called, in order, once a transaction was committed, and once it was rolled back."""

    committed: AfterCommit = field(default_factory=list)
    rolled_back: AfterCommit = field(default_factory=list)


class Transaction:
    """Sends and acks of one queue, and the caller's statements on `connection`: all of them happen, or none.

    Use it in the thread that opened it, and for milliseconds: no other thread or process writes to the file meanwhile,
    not even to renew leases. A method that refuses what it is given has changed nothing, so a caller that catches the
    error may commit the rest. Once a write has failed, or SQLite or a fork has rolled the transaction back, every
    method and the end of the block raise StoreError.
    """

    def __init__(
        self, queue: QueueAdmin, opened: OpenTransaction, consequences: Consequences, held: contextlib.ExitStack
    ) -> None:
        """Use `queue.transaction()`."""
        self._queue = queue
        self._opened = opened
        self._consequences = consequences
        self._after_commit = consequences.committed
        self._held = held
        hooks = tuple(_AfterCommitHook(hook, self._after_commit) for hook in queue.core.hooks)
        self._producer = queue.core.producer.reporting_to(_AfterCommitListener(queue, self._after_commit), hooks)

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection for statements of your own, on tables of your own in the same file.

        It commits and rolls back with the block: `commit`, `rollback` and `executescript` raise DatabaseError.
        StoreError once the transaction was rolled back, by SQLite after an error or by a fork.
        """
        connection: sqlite3.Connection = self._opened.connection
        return connection

    def of(self, queue: QueueAdmin) -> Transaction:
        """The same transaction for another queue of the same connection, to send to it or to ack its deliveries."""
        if queue.store is not self._queue.store:
            message = f"queue {queue.name!r} was opened on its own: open both from one `connect(url)`"
            raise BadInput(message)
        return Transaction(queue, self._opened, self._consequences, self._held)

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
    ) -> Sent:
        """Send one message, as `MessageQueue.send`; no consumer sees it before the commit."""
        options = Message(
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
        )
        with self._whole():
            return self._run(self._producer.send(as_message(body, options)))

    def send_many(self, items: Iterable[object]) -> SendReport:
        """Send bodies, or `Message`s with options of their own, as `MessageQueue.send_many`."""
        with self._whole():
            return self._run(self._producer.send_many(items, Message(None)))

    def ack(self, *deliveries: BaseDelivery) -> None:
        """Ack these deliveries; until the block ends nothing else settles them.

        LeaseLost if one is no longer leased: another consumer may have done the work, so let the error end the block.
        AlreadySettled if one was settled before, Vetoed if a hook refuses.
        """
        claimer, name = self._queue.core.claimer, self._queue.name
        for delivery in deliveries:
            if not isinstance(delivery, BaseDelivery) or delivery.message_id.queue != name:
                message = f"{delivery!r} is not a delivery of queue {name!r}: `of(queue)` acks those of another queue"
                raise BadInput(message)
        with contextlib.ExitStack() as held, self._whole():
            held.enter_context(claimer.recorder.settling([(delivery, ACK) for delivery in deliveries]))
            self._consequences.rolled_back.extend(
                delivery.follow_ups.thaw
                for delivery in deliveries
                if delivery.follow_ups and not delivery.follow_ups.is_frozen  # an earlier ack of unknown outcome stands
            )
            by_lease: dict[Lease, list[PendingOutcome]] = {}
            for delivery in deliveries:
                if delivery.lease is not None:  # without one it would be settled
                    by_lease.setdefault(delivery.lease, []).append(claimer.recorder.pending(delivery, ACK, ()))
            followed = [one for pending in by_lease.values() for one in pending if one.delivery.follow_ups]
            self._run(self._send_before(followed))
            for lease, pending in by_lease.items():
                self._run(self._settle(lease, pending))
            if followed:
                self._after_commit.append(partial(self._report, followed))
            self._held.push(held.pop_all())

    def _send_before(self, acks: Sequence[PendingOutcome]) -> Steps[None]:
        """Send what comes before these acks; an error refuses them all."""
        refused = yield from self._follow_ups().send_before(acks)
        for one in acks:
            if one.delivery.follow_ups:  # a rollback takes them back, and the delivery may be acked later
                one.delivery.follow_ups.ready = False
        for error in refused.values():
            raise error

    def _report(self, acks: Sequence[PendingOutcome]) -> None:
        """Have consumers look for the follow-ups of acks that were committed."""
        follow_ups = [one.delivery.follow_ups for one in acks if one.delivery.follow_ups]
        sending = self._follow_ups()
        sending.committed(follow_ups)
        self._queue.run(sending.report())
        for one in (one for each in follow_ups for one in each.before):
            self._queue.run(one.queue.announce([one]))

    def _follow_ups(self) -> FollowUpSending:
        core = self._queue.core
        claimer = core.claimer
        return FollowUpSending(core.process, claimer.recorder, claimer.announce, after_commit=self._after_commit)

    def _settle(self, lease: Lease, pending: Sequence[PendingOutcome]) -> Steps[None]:
        core = self._queue.core
        outcomes = {one.delivery.id: one.outcome for one in pending}
        settled = yield from settle(core.process, lease.row, SettleRequest(lease.timer, outcomes))
        if settled.lost:
            raise LeaseLost([str(one.delivery.receipt) for one in pending if one.delivery.id in settled.lost])
        if batches := core.claimer.history.batches_of(event for one in pending for event in one.events):
            yield Send(batches[0], tuple(batches[1:]))
        self._after_commit.append(partial(_record, core.claimer, lease.row, pending))
        if lease.timer.grouped:
            announced = [(lease.row, None)]
            self._after_commit.append(lambda: self._queue.run(core.claimer.announce(announced, frees_group=True)))

    def _run(self, steps: Steps[T]) -> T:
        return run(steps, self._opened, self._queue.core.observers)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Undo what the block changed if it raises."""
        to_commit, to_undo = len(self._after_commit), len(self._consequences.rolled_back)
        try:
            with self._opened.savepoint():
                yield
        except BaseException:
            del self._after_commit[to_commit:]
            _undo(self._consequences.rolled_back[to_undo:])
            del self._consequences.rolled_back[to_undo:]
            raise


def _undo(calls: Iterable[Callable[[], object]]) -> None:
    for call in calls:
        call()


def _record(claimer: Claimer, row: str, committed: Sequence[PendingOutcome]) -> None:
    """Follow acks of a transaction that was committed."""
    claimer.recorder.committed(row, committed)
    claimer.leases.settled_elsewhere(one.delivery for one in committed)
    claimer.changed(row)
    claimer.notifier.call()


@contextlib.contextmanager
def open_transaction(queue: QueueAdmin) -> Iterator[Transaction]:
    """A transaction on the store of this queue; NoTransactions if that has none."""
    store = queue.store
    if not isinstance(store, TransactionalStore):
        raise NoTransactions(queue.name, str(store))
    consequences = Consequences()
    with contextlib.ExitStack() as held:
        commits = False
        try:
            with store.transaction() as opened:
                yield Transaction(queue, opened, consequences, held)
                commits = True
        except BaseException as error:
            if not (commits and isinstance(error, OutcomeUnknown)):
                _undo(consequences.rolled_back)
            raise
        for call in consequences.committed:
            with contextlib.suppress(Closed):  # a queue that was closed meanwhile has no consumers to wake
                call()


class _AfterCommitListener(UncommittedSends):
    """Reports the sends of a transaction to the claimer after the commit, and announces them then."""

    def __init__(self, queue: QueueAdmin, after_commit: AfterCommit) -> None:
        core = queue.core
        super().__init__(core.claimer, HistoryWriter(core.process, core.settings_sync), after_commit)
        self._queue = queue

    def announce(self, rows: Sequence[tuple[str, int | None]]) -> Steps[None]:
        """Announce the rows after the commit: before, consumers would find nothing."""
        yield from ()
        self._after_commit.append(lambda: self._queue.run(self._queue.core.claimer.announce(rows)))


class _AfterCommitHook(Hook):
    """A hook that is asked during the transaction, and called about the send after its commit."""

    def __init__(self, hook: Hook, after_commit: AfterCommit) -> None:
        self._hook = hook
        self._after_commit = after_commit

    def before_send(self, message: Message) -> None:
        """Ask the hook."""
        self._hook.before_send(message)

    def after_send(self, message: Message, sent: MessageId) -> None:
        """Call the hook after the commit."""
        self._after_commit.append(partial(notified, self._hook.after_send, message, sent))

    def after_delete(self, message: MessageId, why: str) -> None:
        """Call the hook after the commit."""
        self._after_commit.append(partial(notified, self._hook.after_delete, message, why))
