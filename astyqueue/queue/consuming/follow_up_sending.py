"""Sends the follow-ups of deliveries: what is in the store before an ack, and what its commit leaves to do."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from astyqueue import ids
from astyqueue.errors import AstyqueueError, Closed, StoreError
from astyqueue.model.event import Kind
from astyqueue.protocol.layout.columns import message_name
from astyqueue.protocol.sending.insert import LATE, register_late
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.outcome_recorder import OutcomeRecorder, PendingOutcome
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.delivery.follow_ups import AfterCommit, FollowUp, FollowUpQueue, FollowUps, FollowUpSends
from astyqueue.structured_log import log_event

_log: Final = logging.getLogger("astyqueue.queue")


class FollowUpSending:
    """The follow-ups of deliveries of one queue; used by one thread or task at a time."""

    def __init__(
        self,
        process: Client,
        recorder: OutcomeRecorder,
        announce: Callable[[Sequence[tuple[str, int | None]]], Steps[None]],
        *,
        after_commit: AfterCommit | None = None,
    ) -> None:
        """`announce` has consumers scan rows of this queue.

        In a transaction, what follows from the sends is left to `after_commit`.
        """
        self._process = process
        self._recorder = recorder
        self._announce = announce
        self._after_commit = after_commit
        self._later = recorder.notifier.later if after_commit is None else after_commit.append
        # Weak: a handler may open the queue that it sends to anew for each message.
        self._sends: WeakKeyDictionary[FollowUpQueue, FollowUpSends] = WeakKeyDictionary()
        self._committed: list[FollowUp] = []

    def send_before(self, acks: Sequence[PendingOutcome]) -> Steps[dict[BaseDelivery, AstyqueueError]]:
        """Send what comes before these acks: messages in other rows, and the hints to keys.

        Returns the deliveries whose follow-ups cannot be sent, with the reason: they must not be acked. An error of the
        store is raised; then any of them may have been sent, and the call is repeated.
        """
        followed = [(one.delivery, one.delivery.follow_ups) for one in acks if one.delivery.follow_ups]
        refused: dict[BaseDelivery, AstyqueueError] = {}
        by_queue: dict[FollowUpQueue, list[tuple[BaseDelivery, FollowUp]]] = {}
        for delivery, follow_ups in followed:
            for one in follow_ups.before:
                by_queue.setdefault(one.queue, []).append((delivery, one))
        for queue, some in by_queue.items():
            try:
                yield from self._send_to(queue, [one for _, one in some])
            except (StoreError, Closed):
                raise
            except AstyqueueError as error:
                refused |= {delivery: error for delivery, _ in some}
        together = [one for delivery, follow_ups in followed if delivery not in refused for one in follow_ups.together]
        keyed = [(one.prepared.key, one.sent_as) for one in together if one.prepared.key is not None]
        yield from write_key_hints(self._process, keyed)
        for delivery, follow_ups in followed:
            follow_ups.ready = delivery not in refused
        return refused

    def _send_to(self, queue: FollowUpQueue, follow_ups: Sequence[FollowUp]) -> Steps[None]:
        sends = self._sends.get(queue)
        if sends is None:
            sends = self._sends[queue] = queue.sends(self._after_commit)
        for one in (yield from sends.send(follow_ups)):
            self._later(partial(queue.call_after_send, one))

    def committed(self, follow_ups: Iterable[FollowUps]) -> None:
        """Keep those that were committed with their acks, until `report`."""
        self._committed += [one for each in follow_ups for one in each.together]

    def report(self) -> Steps[None]:
        """Count those that were committed with their acks, write their history, and have hooks and consumers called."""
        if not self._committed:
            return
        committed, self._committed = self._committed, []
        self._recorder.stats.add("sent", len(committed))
        for one in committed:
            self._later(partial(one.queue.call_after_send, one))
        history, long_ago = self._recorder.history, ids.first_at(self._process.now() - LATE)
        for row in {one.sent_as.row for one in committed}:
            late = [one.sent_as for one in committed if one.sent_as.row == row and one.sent_as.id < long_ago]
            if late:
                yield from register_late(self._process, row, [message_name(one.priority, one.id) for one in late])
        if history.wants(Kind.SENT):
            yield from history.write_or_buffer(
                [history.events.of_sending(one.sent_as, one.prepared) for one in committed]
            )
        yield from self._announce([(one.sent_as.row, one.sent_as.moment) for one in committed])


def log_refused(delivery: BaseDelivery, error: AstyqueueError) -> None:
    """Log that a delivery is not acked because its follow-ups cannot be sent: it comes again when its lease ends."""
    with contextlib.suppress(Exception):
        log_event(_log, logging.WARNING, "follow_ups_refused", id=delivery.message_id, error=error)
