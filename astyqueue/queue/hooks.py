"""User hooks, called before and after a send or a settle, and the notifier that calls them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from typing import Final

from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.structured_log import log_event

_log: Final = logging.getLogger("astyqueue.queue")


class Hook:
    """Override what you need. To refuse, raise `Vetoed` in a `before_` method: then nothing changes.

    Each end of a message calls one method, in the process that brought it about: `after_settle` for an ack, a rejection
    and a delivery at most once; `after_burial` where a claim made a dead letter; `after_delete` for the rest.
    docs/how-to/observe.md has the table.

    Hooks run in the thread that sends, settles or deletes, except `after_settle` and `after_burial`: one commit serves
    many callers, so they run in any thread that uses the queue, one call at a time, and perhaps after the settling call
    has returned. Hooks may use the queue themselves. They should be quick: if no other thread uses the queue, leases
    are not renewed meanwhile. An error of an `after_` hook is logged and changes nothing, because the event has already
    happened.
    """

    def before_send(self, message: Message) -> None:
        """Called when a message was checked and is about to be sent."""

    def after_send(self, message: Message, sent: MessageId) -> None:
        """Called when the message is in the store; in a queue with a spool, when it is in the spool.

        Of one with a trigger, once: when its schedule is in the store, with the id of the first run, which may come
        later. Runs are sent without a call.
        """

    def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        """Called when a delivery is about to be "acked", "released", "rejected", or "extended" by its consumer.

        Also when a process does that by its receipt; then the delivery has values, but no methods that settle it.
        A failed attempt is "released", or "rejected" if it was the last. Not called for a delivery that is given back
        because it reached no consumer in time, nor for an at-most-once message, which is settled before a consumer gets
        it.
        """

    def after_settle(self, delivery: BaseDelivery, outcome: str) -> None:
        """Called when the outcome is in the store.

        The outcome is also "lost" if the lease was lost, and "at most once" if delivery alone settled the message.
        """

    def after_burial(self, message: MessageId, kind: str, reason: str) -> None:
        """Called when a claim of this process made a dead letter of a message that no consumer had leased.

        Its kind is "expired", "attempts" (each of its leases ran out) or "undecodable".
        """

    def after_delete(self, message: MessageId, why: str) -> None:
        """Called when a message was removed and no delivery of it decided that; a dead letter too.

        `why` is "deleted" (`delete`, `stop`), "cleared", "dropped" (with its queue), "purged", "replaced" (by a send
        with its unique key, or by the next run of its schedule with `overlap="cancel running"`), or "overflow" (by a
        send to a full queue). Of at-most-once messages also "expired" or
        "closed": they had left the store, and no consumer took them in time, or before this process closed the queue. A
        delivery that was leased when its message was removed is "lost" when its consumer settles it.
        """


def notified(after: Callable[..., None], *what: object) -> None:
    """Call an `after_` method of a hook; its error is logged, because the event cannot be undone."""
    try:
        after(*what)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        log_event(_log, logging.ERROR, "hook_failed", exc_info=error, hook=repr(after))


def call_after_delete(hooks: Iterable[Hook], messages: Iterable[MessageId], why: str) -> None:
    """Call `after_delete` of each hook for each of these messages, which were removed."""
    for message, hook in product(messages, tuple(hooks)):
        notified(hook.after_delete, message, why)


class HookNotifier:
    """Queues the events for the hooks of one queue, and calls them.

    A thread calls hooks only while it is not in line for leadership, so a hook may use the queue.
    """

    def __init__(self, hooks: tuple[Hook, ...] = ()) -> None:
        """The hooks are called in this order."""
        self.present = bool(hooks)
        self._hooks = hooks
        self._queued: deque[Callable[[], object]] = deque()
        self._busy = threading.Lock()
        self._calling_thread: int | None = None

    def ask(self, delivery: BaseDelivery, outcome: str) -> None:
        """Call `before_settle` of each hook; `Vetoed` refuses the outcome."""
        for hook in self._hooks:
            hook.before_settle(delivery, outcome)

    def settled(self, delivery: BaseDelivery, outcome: str) -> None:
        """Queue a call of `after_settle`."""
        for hook in self._hooks:
            self.later(partial(notified, hook.after_settle, delivery, outcome))

    def buried(self, message: MessageId, kind: str, reason: str) -> None:
        """Queue a call of `after_burial` for a message that no consumer had leased."""
        for hook in self._hooks:
            self.later(partial(notified, hook.after_burial, message, kind, reason))

    def deleted(self, message: MessageId, why: str) -> None:
        """Queue a call of `after_delete`."""
        for hook in self._hooks:
            self.later(partial(notified, hook.after_delete, message, why))

    def later(self, call: Callable[[], object]) -> None:
        """Queue this call, which does not raise."""
        self._queued.append(call)

    @property
    def waiting(self) -> bool:
        """Whether calls are queued and no thread is making them."""
        return bool(self._queued) and not self._busy.locked()

    def call(self) -> None:
        """Make the queued calls one after the other; those that a hook causes come after it."""
        while self._queued and self._busy.acquire(blocking=False):
            self._calling_thread = threading.get_ident()
            try:
                self._call_all()
            finally:
                self._calling_thread = None
                self._busy.release()

    def finish(self, patience: float) -> None:
        """Wait until this thread or another has made all calls queued so far, at most `patience` seconds.

        A hook that calls this does not wait for itself.
        """
        if self._calling_thread == threading.get_ident():
            return
        self.call()
        if self._busy.acquire(timeout=patience):
            self._busy.release()
            self.call()

    def _call_all(self) -> None:
        while self._queued:
            self._queued.popleft()()
