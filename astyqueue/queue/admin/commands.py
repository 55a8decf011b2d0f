"""Commands of callers on single messages, and their events for the history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from astyqueue.errors import LeaseLost, StoreError
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import Envelope, MessageId, Receipt
from astyqueue.model.views import RedriveReport
from astyqueue.protocol.admin import browse, dead_letters, delete
from astyqueue.protocol.claiming.selection import ClaimedMessage
from astyqueue.protocol.client import Client
from astyqueue.protocol.layout.columns import Entry, Timer
from astyqueue.protocol.layout.unique_key import settle_effects
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.settling.outcomes import Ack, Outcome, Reject
from astyqueue.protocol.settling.settle import SettleRequest, settle
from astyqueue.protocol.steps import Steps
from astyqueue.queue.history import HistoryWriter
from astyqueue.queue.leases import BaseDelivery, Lease


class MessageCommands:
    """Deletes messages, redrives dead letters and settles by receipt."""

    def __init__(self, process: Client, history: HistoryWriter) -> None:
        """`history` gets the events of each command."""
        self._process = process
        self._history = history

    def delete(self, message: MessageId) -> Steps[bool]:
        """Remove a message in any state; True if it existed."""
        telling = yield from self._events(Kind.CANCELLED, [message], why="deleted")
        deleted = yield from delete.delete(self._process, message)
        yield from self._history.tell(telling if deleted else ())
        return deleted

    def redrive(self, letters: Sequence[MessageId], *, force: bool, dry_run: bool) -> Steps[RedriveReport]:
        """Put dead letters back, or with `dry_run` only count them."""
        telling = [] if dry_run else (yield from self._events(Kind.REDRIVEN, letters, why="forced" if force else ""))
        back: list[MessageId] = []
        try:
            report = yield from dead_letters.redrive(self._process, letters, force=force, dry_run=dry_run, into=back)
        except StoreError:
            yield from self._history.tell(_of(back, telling))  # other rows were done before this one failed
            raise
        yield from self._history.tell(_of(back, telling))
        return report

    def settle(self, held: Receipt, outcome: Outcome, levels: int) -> Steps[None]:
        """Settle by receipt; LeaseLost if the receipt is not current."""
        row, priority, id_ = held.message
        envelope = yield from self._envelope(held.message, outcome)
        if isinstance(outcome, Ack | Reject) and envelope is not None:
            outcome = outcome._replace(along=settle_effects(priority, id_, envelope))
        timer = yield from self._timer(held, levels)
        events: Sequence[Event] = ()
        if envelope is not None:
            delivery = BaseDelivery(
                row, ClaimedMessage(Entry(id_, priority, held.attempt - 1), envelope), Lease(row, timer, 0)
            )
            events = self._history.of_outcome(delivery, outcome)
        yield from self._history.write(events)
        settled = yield from settle(self._process, row, SettleRequest(timer, {id_: outcome}))
        if settled.lost:
            self._history.lost(events)
            yield from self._history.flush()
            raise LeaseLost([str(held)])

    def _timer(self, held: Receipt, levels: int) -> Steps[Timer]:
        """The timer under which a receipt is current."""
        snapshot = RowSnapshot(held.message.row, levels)
        yield from load_snapshot(snapshot, self._process.now())
        for timer in (snapshot.timers or {}).values():
            if timer.nonce == held.nonce and any(_is(entry, held) for entry in timer.entries):
                return timer
        raise LeaseLost([str(held)])

    def _envelope(self, message: MessageId, outcome: Outcome) -> Steps[Envelope | None]:
        """The envelope of a message, if the outcome or the history needs it."""
        if not isinstance(outcome, Ack | Reject) and not self._history.tells(outcome):
            return None
        found = yield from browse.contents([message])
        return found[message].envelope if message in found else None

    def _events(self, kind: Kind, messages: Sequence[MessageId], *, why: str) -> Steps[list[Event]]:
        """Events of a command on messages, which are read for their keys; none if this kind is not kept."""
        if not self._history.wants(kind):
            return []
        keys: dict[MessageId, str | None] = {}
        for _, some in groupby(sorted(messages), key=lambda one: one.row):
            found = yield from browse.contents(list(some))
            keys |= {id_: content.envelope.key for id_, content in found.items() if content.envelope}
        return [self._history.events.of_order(kind, id_, keys.get(id_), why=why) for id_ in messages]


def _of(messages: list[MessageId], events: list[Event]) -> list[Event]:
    meant = set(messages)
    return [event for event in events if event.message in meant]


def _is(entry: Entry, held: Receipt) -> bool:
    return entry.id == held.message.id and entry.spent == held.attempt - 1
