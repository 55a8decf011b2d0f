"""What a history is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from astyqueue.ids import Id
from astyqueue.testing.simulation.history import History, Removed, Result, Sent
from astyqueue.testing.simulation.truth import Truth


@dataclass(frozen=True, slots=True)
class Evidence:
    """A history, what really stood in the rows, and how many graves a last message and a poll without any walked over."""

    history: History
    truth: Truth
    last_poll: int

    def dead(self) -> dict[Id, str]:
        """The dead letters there are at the end, with their reasons."""
        return {id_: letter.reason for row in self.truth.rows.values() for id_, letter in row.dead.items()}

    def died(self) -> set[Id]:
        """The messages that were dead letters at some time."""
        return {id_ for row in self.truth.rows.values() for id_ in row.died}

    def orders(self, id_: Id, row: str) -> Iterator[Removed]:
        """What people ordered that may have removed this message, if it was carried out in time."""
        return (one for one in self.history.removed if one.what != "redrive" and (one.row == row if one.ids is None else id_ in one.ids))

    def removed(self, sent: Sent) -> bool:
        """Whether somebody may have removed it, or put another in its place, after its send began."""
        if sent.message is None:
            return False
        orders = self.orders(sent.message.id, sent.message.row)
        if any(one.result is not Result.DONE or one.told >= sent.began for one in orders):
            return True
        return any(other.result is Result.UNKNOWN or other.told >= sent.began for other in self.replacing(sent))

    def comes_again(self) -> set[Id]:
        """The messages that may be sent again although somebody removed them: repeatable ones whose row was cleared, or letters purged."""
        sent = (one.message for one in self.history.sent if one.repeats and one.message)
        return {one.id for one in sent if any(order.what in ("clear", "purge") for order in self.orders(one.id, one.row))}

    def replacing(self, sent: Sent) -> Iterator[Sent]:
        """The sends that may have put themselves in the place of this one."""
        others = self.history.sent if sent.key else ()
        return (other for other in others if other.key == sent.key and other is not sent and other.replaces)


#: A judgement: what is wrong with a history, one sentence each.
Oracle = Callable[[Evidence], Iterator[str]]
