"""What operators change in a queue, as steps that write the events of the history too.

They delete messages, with the triggers by which these recur, redrive dead letters, settle by receipt, rescan for missed
messages, and clear or drop the queue.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby

from astyqueue.durations import Duration, as_microseconds, instant_of
from astyqueue.errors import BadInput, LeaseLost, StoreError, Undecodable
from astyqueue.model.envelope import Envelope, MessageId, Receipt
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import check_key
from astyqueue.model.views import RedriveReport, RescanReport
from astyqueue.protocol.admin import browse, dead_letters
from astyqueue.protocol.admin.delete import clear as clear_row
from astyqueue.protocol.admin.delete import delete as delete_stored
from astyqueue.protocol.admin.delete import drop as drop_queue
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.layout.columns import Entry, State, Timer
from astyqueue.protocol.layout.unique_key import settle_effects
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.settling.outcomes import ACK, Ack, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest
from astyqueue.protocol.settling.settle import settle as settle_stored
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin import schedules
from astyqueue.queue.admin.inspection import find, id_of
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease
from astyqueue.queue.delivery.retry_policy import rejected
from astyqueue.queue.runtime import QueueRuntime


def delete_message(core: QueueRuntime, message: MessageId) -> Steps[bool]:
    """Remove a message in any state; True if it existed."""
    telling = yield from _events(core, Kind.CANCELLED, [message], why="deleted")
    deleted = yield from delete_stored(core.process, message)
    yield from core.claimer.history.tell(telling if deleted else ())
    return deleted


def redrive(core: QueueRuntime, letters: Sequence[MessageId], *, force: bool, dry_run: bool) -> Steps[RedriveReport]:
    """Put dead letters back, or with `dry_run` only count them."""
    history, why = core.claimer.history, "forced" if force else ""
    telling = [] if dry_run else (yield from _events(core, Kind.REDRIVEN, letters, why=why))
    back: list[MessageId] = []
    try:
        report = yield from dead_letters.redrive(core.process, letters, force=force, dry_run=dry_run, into=back)
    except StoreError:
        yield from history.tell(_of(back, telling))  # other rows were done before this one failed
        raise
    yield from history.tell(_of(back, telling))
    return report


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
        outcome = outcome._replace(along=settle_effects(priority, id_, envelope))
    timer = yield from _timer(core, held)
    events: Sequence[Event] = ()
    if envelope is not None:
        claimed = ClaimedMessage(Entry(id_, priority, held.attempt - 1), envelope)
        events = history.of_outcome(BaseDelivery(row, claimed, Lease(row, timer, 0)), outcome)
    yield from history.write(events)
    settled = yield from settle_stored(core.process, row, SettleRequest(timer, {id_: outcome}))
    if settled.lost:
        history.lost(events)
        yield from history.flush()
        raise LeaseLost([str(held)])
    core.claimer.changed(row)


def _timer(core: QueueRuntime, held: Receipt) -> Steps[Timer]:
    """The timer under which a receipt is current."""
    snapshot = RowSnapshot(held.message.row, core.settings.layout.priorities)
    yield from load_snapshot(snapshot, core.process.now())
    for timer in (snapshot.timers or {}).values():
        if timer.nonce == held.nonce and any(_is(entry, held) for entry in timer.entries):
            return timer
    raise LeaseLost([str(held)])


def _envelope(core: QueueRuntime, message: MessageId, outcome: Outcome) -> Steps[Envelope | None]:
    """The envelope of a message, if the outcome or the history needs it."""
    if not isinstance(outcome, Ack | Reject) and not core.claimer.history.tells(outcome):
        return None
    found = yield from browse.contents([message])
    return found[message].envelope if message in found else None


def _events(core: QueueRuntime, kind: Kind, messages: Sequence[MessageId], *, why: str) -> Steps[list[Event]]:
    """Events of a command on messages, which are read for their keys; none if this kind is not kept."""
    history = core.claimer.history
    if not history.wants(kind):
        return []
    keys: dict[MessageId, str | None] = {}
    for _, some in groupby(sorted(messages), key=lambda one: one.row):
        found = yield from browse.contents(list(some))
        keys |= {id_: content.envelope.key for id_, content in found.items() if content.envelope}
    return [history.events.of_order(kind, id_, keys.get(id_), why=why) for id_ in messages]


def _of(messages: list[MessageId], events: list[Event]) -> list[Event]:
    meant = set(messages)
    return [event for event in events if event.message in meant]


def _is(entry: Entry, held: Receipt) -> bool:
    return entry.id == held.message.id and entry.spent == held.attempt - 1


def delete(core: QueueRuntime, message: MessageId | str | None, key: str | None) -> Steps[bool]:
    """Delete one message, or all with a key; True if there was any. What recurs by its own trigger recurs no longer."""
    if (message is None) == (key is None):
        problem = "delete takes the id of a message or a key: give one of them"
        raise BadInput(problem)
    if message is not None:
        return _delete_one(core, id_of(core, message))
    return _delete_all(core, check_key(key))


def _delete_one(core: QueueRuntime, message: MessageId) -> Steps[bool]:
    """Delete a message and its own trigger, whichever of its runs the id names."""
    own = yield from schedules.of_message(message)
    deleted = yield from delete_message(core, message)
    if own is None:
        return deleted
    return (yield from schedules.remove(core, own.name, with_run=True)) is not None or deleted


def _delete_all(core: QueueRuntime, key: str) -> Steps[bool]:
    """Stop a recurring message under the key first, so that no new run follows the messages found."""
    deleted = False
    with contextlib.suppress(BadInput):  # a key need not be a valid schedule name
        deleted = yield from schedules.stop(core, key)
    for found in (yield from find(core, key)):
        deleted |= yield from delete_message(core, found.id)
    return deleted


def clear(core: QueueRuntime) -> Steps[int]:
    """Remove all messages; return their number."""
    removed = 0
    for row in core.ring.rows():
        removed += yield from clear_row(core.process, row, core.settings.layout.priorities)
        core.claimer.changed(row)
    return removed


def drop(core: QueueRuntime) -> Steps[int]:
    """Remove all messages and the queue itself; return the number of messages."""
    return drop_queue(core.process, core.settings)


def rescan(
    core: QueueRuntime,
    since: datetime | None,
    *,
    progress: Callable[[RescanReport], None] | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Steps[RescanReport]:
    """Rescan row by row, from `since` on (None: everything).

    `progress` is called after every page, and `cancelled` before each.
    """
    report = RescanReport()
    begin = None if since is None else instant_of(since)
    for row in core.ring.rows():
        scan = RowRescan(core.process, row, core.settings.layout.priorities, begin)
        before = report
        while not scan.over and not cancelled():
            try:
                yield from scan.go_on()
            except Undecodable:
                report = before + RescanReport(0, scan.looked, scan.listed, (row,))
                break
            report = before + RescanReport(int(scan.over), scan.looked, scan.listed)
            if progress:
                progress(report)
        if scan.listed:
            core.claimer.changed(row)
    return report
