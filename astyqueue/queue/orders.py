"""What somebody has done to single messages from outside, and what the history is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from astyqueue.errors import LeaseLost, StoreError
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import Envelope, MessageId, Receipt
from astyqueue.model.views import RedriveReport
from astyqueue.protocol import browse, dead, remove
from astyqueue.protocol.along import goes_along
from astyqueue.protocol.columns import Entry, Timer
from astyqueue.protocol.outcomes import Ack, Reject, Settling
from astyqueue.protocol.picking import Held
from astyqueue.protocol.process import Process
from astyqueue.protocol.settle import Settlement, settle
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Steps
from astyqueue.queue.history import History
from astyqueue.queue.holding import Handed, Hold


class Orders:
    """Deletes, puts back, and settles by receipt."""

    def __init__(self, process: Process, history: History) -> None:
        """Tell this history."""
        self._process = process
        self._history = history

    def delete(self, message: MessageId) -> Steps[bool]:
        """Remove a message in whatever state; whether it was there."""
        telling = yield from self._events(Kind.CANCELLED, [message], why="deleted")
        deleted = yield from remove.delete(self._process, message)
        yield from self._history.tell(telling if deleted else ())
        return deleted

    def redrive(self, letters: Sequence[MessageId], *, force: bool, dry_run: bool) -> Steps[RedriveReport]:
        """Put dead letters back, or only count what that would come to."""
        telling = [] if dry_run else (yield from self._events(Kind.REDRIVEN, letters, why="forced" if force else ""))
        back: list[MessageId] = []
        try:
            report = yield from dead.redrive(self._process, letters, force=force, dry_run=dry_run, into=back)
        except StoreError:
            yield from self._history.tell(_of(back, telling))  # those of some rows went back before this one failed
            raise
        yield from self._history.tell(_of(back, telling))
        return report

    def settle(self, held: Receipt, outcome: Settling, levels: int) -> Steps[None]:
        """Settle by receipt; LeaseLost if it is not current (any more)."""
        row, priority, id_ = held.message
        envelope = yield from self._envelope(held.message, outcome)
        if isinstance(outcome, Ack | Reject) and envelope is not None:
            outcome = outcome._replace(along=goes_along(priority, id_, envelope))
        timer = yield from self._timer(held, levels)
        events: Sequence[Event] = ()
        if envelope is not None:
            delivery = Handed(row, Held(Entry(id_, priority, held.attempt - 1), envelope), Hold(row, timer, 0))
            events = self._history.of_outcome(delivery, outcome)
        yield from self._history.write(events)
        settled = yield from settle(self._process, row, Settlement(timer, {id_: outcome}))
        if settled.lost:
            self._history.lost(events)
            yield from self._history.flush()
            raise LeaseLost([str(held)])

    def _timer(self, held: Receipt, levels: int) -> Steps[Timer]:
        """The timer under which a receipt is current."""
        sight = Sight(held.message.row, levels)
        yield from know(sight, self._process.now())
        for timer in (sight.timers or {}).values():
            if timer.nonce == held.nonce and any(_is(entry, held) for entry in timer.entries):
                return timer
        raise LeaseLost([str(held)])

    def _envelope(self, message: MessageId, outcome: Settling) -> Steps[Envelope | None]:
        """What is in a message, if anybody is to know."""
        if not isinstance(outcome, Ack | Reject) and not self._history.tells(outcome):
            return None
        found = yield from browse.contents([message])
        return found[message].envelope if message in found else None

    def _events(self, kind: Kind, messages: Sequence[MessageId], *, why: str) -> Steps[list[Event]]:
        """What there is to tell if this is done to messages, which are read for their keys; nothing if that is not kept."""
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
