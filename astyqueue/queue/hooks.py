"""Hooks: told before and after a send and a settle, and able to refuse."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import Message
from astyqueue.queue.holding import Handed

_log: Final = logging.getLogger("astyqueue.queue")


class Hook:
    """Override what you need. To refuse, raise `Vetoed` in a `before_` method: nothing is changed then.

    Hooks run in the thread that sends or settles; `after_settle` in any that takes part in the queue, for one commit serves
    many: one call at a time, and perhaps a moment after whoever settled went on. All of them may use the queue themselves.
    They should be quick: leases are not renewed meanwhile if nobody else takes part. An error of an `after_` hook is logged
    and changes nothing, for what it was told of has happened.
    """

    def before_send(self, message: Message) -> None:
        """A message was checked and is about to be sent."""

    def after_send(self, message: Message, sent: MessageId) -> None:
        """The message is in the store."""

    def before_settle(self, delivery: Handed, outcome: str) -> None:
        """A delivery is about to be "acked", "released" or "rejected"; "extended" when its holder asks for more time.

        Not asked of what goes back because it reached nobody, its taker having left or having had no time for it, nor of what is
        handed out at most once, which is settled before anybody has it.
        """

    def after_settle(self, delivery: Handed, outcome: str) -> None:
        """The outcome is in the store, or the delivery was "lost", or it was handed out "at most once" and is settled with that."""

    def after_burial(self, message: MessageId, kind: str, reason: str) -> None:
        """A claim of this process made a dead letter of a message that was in nobody's hand, and so was not settled.

        Its kind is "expired", "attempts" (each of its leases ran out) or "undecodable". No hook hears of what `delete`, `clear`, `drop`
        and `purge` remove: whoever calls them knows, and whoever had a delivery of it in hand is told that it was "lost".
        """


def told(after: Callable[..., None], *what: object) -> None:
    """Tell a hook what has happened; its own error is logged, for nothing can be undone."""
    try:
        after(*what)
    except Exception:  # noqa: BLE001 - a user's code may raise anything
        _log.exception("hook %r failed after the fact", after)
