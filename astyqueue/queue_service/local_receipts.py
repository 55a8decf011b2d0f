"""Receipts of pulls: what the flavours in memory and in a file do with the message of a receipt, as steps.

A pull releases the message that it claimed at once, to the end of its visibility timeout. So no process has a lease of
a pulled message. A timer lists it as snoozed, with the number of the pull as its attempts, and a receipt is current
while such a timer is there: the next claim raises the number, or lists the message as leased.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from astyqueue.model.envelope import MessageId
from astyqueue.model.views import Content
from astyqueue.protocol.admin.delete import release_keys
from astyqueue.protocol.layout.columns import Entry, State, message_name, visible_at
from astyqueue.protocol.row.header_commit import CommitLoop, CommitPlan, Planning, RemovalPlan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.queue.admin.inspection import id_of
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.queue_service.service import not_a_receipt
from astyqueue.store import Named


class PullReceipt(NamedTuple):
    """One pull of a message: its number among the pulls of that message, from 1. Printed as `<message id>/<number>`."""

    message: MessageId
    number: int

    def __str__(self) -> str:
        """The text that `parse` reads."""
        return f"{self.message}/{self.number}"

    @classmethod
    def parse(cls, written: str, core: QueueRuntime) -> PullReceipt:
        """The receipt that `str` gave for a message of this queue; other text raises BadInput.

        So does a row that the queue does not have: a process that takes it for one of its own can claim no more.
        """
        message, _, number = written.rpartition("/")
        try:
            receipt = cls(id_of(core, message), int(number))
        except ValueError as error:
            raise not_a_receipt(written) from error
        if receipt.number < 1 or str(receipt) != written:
            raise not_a_receipt(written)
        return receipt


def delete(core: QueueRuntime, receipt: PullReceipt) -> Steps[bool]:
    """Delete the message of a current receipt; False if the receipt is not current."""
    return _change(core, receipt, partial(_deletion, receipt))


def hide(core: QueueRuntime, receipt: PullReceipt, until: int) -> Steps[bool]:
    """Hide a message that is hidden by a current receipt until this moment (microseconds), sooner or later than before.

    False if the receipt is not current, or the message visible.
    """
    return _change(core, receipt, partial(_hiding, core, receipt, until))


def _change(core: QueueRuntime, receipt: PullReceipt, planning: Planning) -> Steps[bool]:
    snapshot = RowSnapshot(receipt.message.row, core.settings.layout.priorities)
    plan = yield from CommitLoop(core.process, snapshot).carry_out(planning)
    yield from core.claimer.announce([(receipt.message.row, None)])
    return plan is not None


def _deletion(receipt: PullReceipt, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    if _hidden_until(receipt, snapshot) is None:
        return None
    message = receipt.message
    found = yield from read_one(Named(snapshot.row, (message_name(message.priority, message.id),)))
    plan = RemovalPlan([column.name for column in found], [], snapshot.loaded_timers.without({message.id}))
    return (yield from release_keys(plan, snapshot.row, {message: Content.of(found[0].value)} if found else {}))


def _hiding(core: QueueRuntime, receipt: PullReceipt, until: int, snapshot: RowSnapshot) -> Steps[CommitPlan | None]:
    yield from ()
    hidden = _hidden_until(receipt, snapshot)
    if hidden is None or hidden <= core.process.now():
        return None
    id_, priority = receipt.message.id, receipt.message.priority
    group = next(one.group for _, one in snapshot.loaded_timers.hidden_messages() if one.id == id_)
    again = visible_at(core.process, until, [Entry(id_, priority, receipt.number, group=group)])
    return RemovalPlan([], [], snapshot.loaded_timers.without({id_}), [again])


def _hidden_until(receipt: PullReceipt, snapshot: RowSnapshot) -> int | None:
    """When the message is or was visible again after this pull (microseconds); None if the receipt is not current."""
    pulled = (receipt.message.id, receipt.number)
    for timer in snapshot.loaded_timers:
        for mark in timer.marks:
            if (mark.id, mark.spent) == pulled:
                return min(timer.due, mark.due)
        # What is leased was claimed by a later pull, which has not returned it yet.
        if timer.state != State.LEASED and any((entry.id, entry.spent) == pulled for entry in timer.entries):
            return timer.due
    return None
