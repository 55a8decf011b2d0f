"""What is done in one row: its schedules are fired, what is due in it is claimed and handed out, and outcomes are committed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.errors import Undecodable
from astyqueue.model.event import Kind
from astyqueue.model.message import MessageId
from astyqueue.model.settings import Behaviour
from astyqueue.protocol.claim import Claimed, claim
from astyqueue.protocol.columns import State
from astyqueue.protocol.outcomes import Release
from astyqueue.protocol.picking import Order
from astyqueue.protocol.process import Process
from astyqueue.protocol.rowlock import Grip
from astyqueue.protocol.rows import is_home
from astyqueue.protocol.settle import Settlement, settle
from astyqueue.protocol.steps import Steps
from astyqueue.queue.firing import Firings
from astyqueue.queue.following import Following
from astyqueue.queue.history import History
from astyqueue.queue.holding import Handed, Hold
from astyqueue.queue.locking import Locking
from astyqueue.queue.once import Once
from astyqueue.queue.outcomes import Outcomes
from astyqueue.queue.rounds import Rounds
from astyqueue.queue.seats import Seats, Shares
from astyqueue.queue.stats import Stats
from astyqueue.queue.telling import Telling
from astyqueue.queue.visits import Visit

#: Messages that one claim brings at most, however many are asked for.
_MOST: Final = 200
#: Hands that were full no longer than this are as good as never full; a row that would not let us fire is left alone so long.
_NO_TIME: Final = SECOND // 20


def returned(delivery: Handed, now: int) -> Release:
    """The outcome of a delivery with which nobody began: somebody else may have it at once, and it costs no attempt."""
    return Release(now, delivery.attempt - 1, State.SNOOZED)


@dataclass(slots=True)
class RowWork:
    """The work of one process in the rows of a queue. With `emptying`, hands must empty first, for a suspect."""

    process: Process
    rounds: Rounds
    following: Following
    outcomes: Outcomes
    seats: Seats
    once: Once
    stats: Stats
    firings: Firings
    locking: Locking
    history: History
    telling: Telling
    emptying: bool = False

    def settle(self, row: str) -> Steps[None]:
        """Commit what waits for one row, without claiming. An error is that of those who wait for it; if nobody does, it is raised."""
        sight = self.rounds.visits.of[row].sight
        waiting, events = self.outcomes.of_row(row)
        for hold, outcomes in waiting:
            try:
                yield from self.history.write(events)
                settled = yield from settle(self.process, row, Settlement(hold.timer, outcomes, hold.unsure))
            except Exception as error:
                if not self.outcomes.fail(hold, error):
                    raise
                return
            events = []
            for worked in settled.done:
                sight.settled(worked)
            self.outcomes.done(hold, outcomes, settled)
        self.rounds.settled(row, self.process.now())

    def visit(self, visit: Visit, shares: Shares) -> Steps[None]:
        """Claim from a row, settling in the same commit what waits for it."""
        sight = visit.sight
        now = self.process.now()
        behaviour = self.following.behaviour
        order = self._order(sum(shares.values()), behaviour)
        waiting, events = self.outcomes.of_row(sight.row)
        settling = [Settlement(hold.timer, outcomes, hold.unsure) for hold, outcomes in waiting]
        claimed = Claimed()
        fired = 0

        def take(grip: Grip) -> Steps[Claimed]:
            under = replace(order, unlocks=grip.columns) if grip.columns else order
            yield from self.history.write(events)
            return (yield from claim(self.process, sight, under, settling=settling, into=claimed))

        try:
            fired = yield from self.firings.fire(sight)
            if not (yield from self.locking.under(visit, take, now)):
                self.stats.add("busy_rows")
                return
        except Exception as error:  # whatever it is, the other rows have their turn first
            self.stats.add("undecodable", isinstance(error, Undecodable))
            self.rounds.postpone(visit, now)
            raise
        except BaseException:  # also that whoever leads stops half-way: the row's turn has begun, and is not over
            self.rounds.visits.look_at(visit, now)
            raise
        finally:
            settled = [(hold, outcomes, done) for hold, outcomes in waiting if (done := claimed.settled.get(hold.timer.name))]
            for hold, outcomes, done in settled:
                self.outcomes.done(hold, outcomes, done)
        self.emptying = claimed.suspect
        if self.stats.count(sight.row, claimed):
            self.rounds.visits.last_traffic = self.process.now()
        began, now = now, self.process.now()
        self._hand_out(sight.row, claimed, shares)
        more = claimed.more or (fired > 0 and (sight.next_slot or now + 1) <= now)
        self.rounds.visited(visit, now, more=more, refused=claimed.refused)
        self.history.note(Kind.CLAIMED, lambda: self.history.events.of_hand_out(sight.row, claimed, at=now))
        yield from self.history.tell(self.history.events.of_claim(sight.row, claimed, at=began))

    def fire(self, visit: Visit) -> Steps[None]:
        """Fire what is due in a row although nobody here wants messages: whoever does, elsewhere or later, finds them there."""
        try:
            fired = yield from self.firings.fire(visit.sight)
        except Exception:
            self.rounds.postpone(visit, self.process.now())
            raise
        if not fired:
            visit.not_before = self.process.now() + _NO_TIME
        self.rounds.visits.look_at(visit, self.process.now())  # whoever wants messages begins with a look, as in a row that is new

    def _order(self, wanted: int, behaviour: Behaviour) -> Order:
        """A claim for so many. Hands that it fills keep the row only if they are known to empty in no time."""
        leases = self.locking.leases
        return Order(
            min(wanted, _MOST),
            behaviour.lease_us,
            behaviour.max_attempts,
            self.outcomes.in_hand,
            keeps=wanted > _MOST or self.seats.full_for < _NO_TIME,
            yields=self.rounds.visits.shared and leases,
            leases=leases,
            lease_cap=behaviour.lease_cap_us,
            max_attempts_cap=behaviour.max_attempts_cap,
        )

    def _hand_out(self, row: str, claimed: Claimed, shares: Shares) -> None:
        """Give the seats what was claimed, first come first served, and give back what is left; tell of what died."""
        for taken in claimed.claims:
            hold = Hold(row, taken.timer, taken.timer.due - self.process.now(), since=self.process.now())
            dealt = self.seats.deal(row, taken.held, hold, shares=shares)
            handed = [delivery for _, deliveries in dealt for delivery in deliveries]
            unwanted = [Handed(row, one, hold) for one in taken.held[len(handed) :]]
            if any(seat.renew for seat, _ in dealt):
                hold.renewing(self.process.now())
            self.outcomes.hold(hold, handed + unwanted)
            unwanted += self.seats.accept(dealt)
            for delivery in unwanted:
                self.outcomes.give_back(delivery, returned(delivery, self.process.now()))
        self.once.hand_out(row, claimed.at_most_once, shares=shares)
        if is_home(row):
            self.firings.handed_out(held for taken in claimed.claims for held in taken.held)
        for entry, death, _ in claimed.buried:
            self.telling.died(MessageId(row, entry.priority, entry.id), death.kind, death.reason)
