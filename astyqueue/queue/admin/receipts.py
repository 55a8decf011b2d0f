"""Settles deliveries by receipt, as steps: any process may, that has the receipt and not the delivery."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from astyqueue.durations import Duration, as_microseconds
from astyqueue.errors import BadInput, LeaseLost
from astyqueue.model.envelope import Envelope, MessageId, Receipt
from astyqueue.model.event import Event
from astyqueue.protocol.admin import browse
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.columns import Entry, State, Timer
from astyqueue.protocol.layout.unique_key import settle_effects
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.settling.outcomes import ACK, Ack, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest
from astyqueue.protocol.settling.settle import settle as settle_stored
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin.inspection import id_of
from astyqueue.queue.consuming.outcome_recorder import WORDS
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease
from astyqueue.queue.delivery.retry_policy import rejected
from astyqueue.queue.runtime import QueueRuntime


def ack(core: QueueRuntime, receipt: Receipt | str) -> Steps[None]:
    """Ack a delivery by its receipt."""
    return settle(core, receipt, lambda _: ACK)


def release(core: QueueRuntime, receipt: Receipt | str, delay: Duration) -> Steps[None]:
    """Give a delivery back by its receipt, due after `delay`; this costs no attempt."""
    due = core.process.now() + as_microseconds(delay)
    return settle(core, receipt, lambda held: Release(due, held.attempt - 1, State.SNOOZED))


def extend(core: QueueRuntime, receipt: Receipt | str, by: Duration) -> Steps[None]:
    """Extend the lease of a delivery to `by` from now, by its receipt."""
    until = core.process.now() + as_microseconds(by)
    return settle(core, receipt, lambda _: Extend(until))


def reject(core: QueueRuntime, receipt: Receipt | str, reason: str) -> Steps[None]:
    """Make a delivery a dead letter, by its receipt."""
    return settle(core, receipt, lambda held: rejected(reason, held.attempt))


def settle(core: QueueRuntime, receipt: Receipt | str, outcome_of: Callable[[Receipt], Outcome]) -> Steps[None]:
    """Settle by receipt, from any process; LeaseLost if the receipt is not current."""
    held = Receipt.parse(receipt) if isinstance(receipt, str) else receipt
    if not isinstance(held, Receipt):
        wrong = f"{receipt!r:.120} is not a receipt: give a delivery's receipt, or its text"
        raise BadInput(wrong)
    row, priority, id_ = id_of(core, held.message)
    outcome, history = outcome_of(held), core.claimer.history
    envelope = yield from _envelope(core, held.message, outcome)
    if isinstance(outcome, Ack | Reject) and envelope is not None:
        outcome = outcome._replace(effects=settle_effects(priority, id_, envelope))
    timer = yield from _timer(core, held)
    events: Sequence[Event] = ()
    delivery: BaseDelivery | None = None
    if envelope is not None:
        claimed = ClaimedMessage(Entry(id_, priority, held.attempt - 1), envelope)
        delivery = BaseDelivery(row, claimed, Lease(row, timer, 0))
        core.claimer.notifier.ask(delivery, WORDS[type(outcome)])
        events = history.of_outcome(delivery, outcome)
    yield from history.write(events)
    settled = yield from settle_stored(core.process, row, SettleRequest(timer, {id_: outcome}))
    if settled.lost:
        history.mark_lost(events)
        yield from history.flush()
        raise LeaseLost([str(held)])
    if delivery is not None:
        delivery.settled = None if isinstance(outcome, Extend) else WORDS[type(outcome)]
        core.claimer.notifier.settled(delivery, WORDS[type(outcome)])
        core.claimer.recorder.superseded([delivery], settled)
        core.claimer.notifier.call()
    yield from core.claimer.announce([(row, None)], frees_group=timer.grouped)


def _timer(core: QueueRuntime, held: Receipt) -> Steps[Timer]:
    """The timer under which a receipt is current."""
    snapshot = RowSnapshot(held.message.row, core.settings.layout.priorities)
    timers = yield from load_snapshot(snapshot, core.process.now())
    for timer in timers:
        if timer.nonce == held.nonce and any(_is(entry, held) for entry in timer.entries):
            return timer
    raise LeaseLost([str(held)])


def _is(entry: Entry, held: Receipt) -> bool:
    return entry.id == held.message.id and entry.spent == held.attempt - 1


def _envelope(core: QueueRuntime, message: MessageId, outcome: Outcome) -> Steps[Envelope | None]:
    """The envelope of a message, if the outcome, the history or a hook needs it."""
    if not (isinstance(outcome, Ack | Reject) or core.hooks or core.claimer.history.kept_kinds(outcome)):
        return None
    found = yield from browse.contents([message])
    return found[message].envelope if message in found else None
