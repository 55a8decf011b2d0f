"""One claimer for each queue and process: it claims for everybody who waits here, and settles for everybody.

Takers and settlers take part; one of them leads while it waits, and does the work of all: it commits outcomes, claims for
the seats that have credit, first come first served, and renews leases. When it has what it came for it passes the lead on.
So sixty takers cost one commit, nobody spins, and a lone taker does what it would do anyway.

Whoever leads carries out one step after the other, so the holds and the rows' sights need no locks; only what others hand
in (seats, outcomes) does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from astyqueue.clock import SECOND, Clock
from astyqueue.errors import StoreError, Undecodable
from astyqueue.protocol.outcomes import Settling
from astyqueue.protocol.process import Process
from astyqueue.protocol.steps import Steps
from astyqueue.queue.firing import Firings
from astyqueue.queue.following import Following
from astyqueue.queue.history import History
from astyqueue.queue.holding import Handed, Seat
from astyqueue.queue.hooks import Hook
from astyqueue.queue.lead import Lead
from astyqueue.queue.locking import Locking
from astyqueue.queue.once import Once
from astyqueue.queue.outcomes import Outcomes, Ticket
from astyqueue.queue.rounds import Rounds
from astyqueue.queue.rowwork import RowWork, returned
from astyqueue.queue.seats import Seats, Shares
from astyqueue.queue.stats import Stats
from astyqueue.queue.telling import Telling
from astyqueue.triggers import Triggers
from astyqueue.wakeup import Rest, Wakeup

#: Who waits less long than this does not leave a row to a process that is at work in it.
_PATIENT: Final = SECOND

_log: Final = logging.getLogger("astyqueue.queue")


class Claimer:
    """Claims and settles for all takers of a queue in this process."""

    def __init__(
        self,
        process: Process,
        rounds: Rounds,
        *,
        clock: Clock,
        following: Following,
        locking: Locking,
        hooks: tuple[Hook, ...] = (),
        triggers: Triggers | None = None,
    ) -> None:
        """The settings are followed: what is changed in the store takes effect here soon after. Without triggers, nothing is fired."""
        self.stats = Stats()
        self.history = History(process, following)
        self.firings = Firings(process, self.stats, triggers, history=self.history)
        rounds.visits.fire(on=self.firings.on)
        self._process = process
        self._rounds = rounds
        self._clock = clock
        self._following = following
        self._telling = telling = Telling(hooks)
        self._outcomes = Outcomes(self.stats, telling, self.history)
        self._lead = Lead(clock, self._round, telling)
        self._seats = Seats(clock)
        self._once = Once(self._seats, self.stats, telling)
        self._work = RowWork(
            process, rounds, following, self._outcomes, self._seats, self._once, self.stats, self.firings, locking, self.history, telling
        )
        self._claimed_last = False
        self._flushing: list[Ticket] = []

    def sent(self, row: str, moment: int) -> None:
        """Have a row looked at from this moment on: somebody here sent to it."""
        self._rounds.visits.sent(row, moment, self._process.now())
        self.wake()

    def close(self, queue: str) -> None:
        """Let nobody take part any more; those who do are told that the queue was closed."""
        self._lead.close(queue)
        self._once.close(queue)

    def changed(self, row: str) -> None:
        """Have a row's header read again: somebody here changed it past this claimer."""
        self._rounds.visits.changed(row)
        self.wake()

    def wake(self) -> None:
        """Have the leader look around: credit grew, outcomes came, or somebody wants to stop."""
        self._lead.wake()

    def settle_later(self, delivery: Handed, outcome: Settling) -> None:
        """Hand in an outcome that nobody waits for; it goes with the next claim of its row, or after a few milliseconds."""
        if self._outcomes.add(delivery, outcome):
            self.wake()

    def give_back(self, delivery: Handed) -> None:
        """Have a delivery handed to somebody else with which nobody began; it costs no attempt, and no hook is asked."""
        if delivery.hold is None:
            self._once.keep([(delivery.row, delivery.held)])
        else:
            self._outcomes.give_back(delivery, returned(delivery, self._process.now()))
        self.wake()

    def settle(self, outcomes: list[tuple[Handed, Settling]]) -> Steps[list[Handed]]:
        """Commit these outcomes before anything else; the deliveries that were no longer held come back.

        When the store fails, its error is raised and these outcomes are taken back: they may be tried again. Somebody who
        just stops waiting takes nothing back: the outcomes go with the next commit.
        """
        ticket = self._outcomes.demand(outcomes)
        ticket.wakeup = Wakeup(self._clock)
        yield from self._lead.take_part(lambda: ticket.over, ticket.wakeup, until=None, undo=lambda: self._outcomes.withdraw(ticket))
        if ticket.error is not None:
            raise ticket.error
        return ticket.lost

    def flush(self) -> Steps[None]:
        """Commit everything that was handed in so far, and write what the history is to know."""
        wakeup = Wakeup(self._clock)
        ticket = Ticket(1, wakeup=wakeup)
        self._flushing.append(ticket)
        try:
            yield from self._lead.take_part(lambda: ticket.over or self._flushed(), wakeup, until=None)
        finally:
            self._flushing.remove(ticket)
        if ticket.error is not None:
            raise ticket.error
        yield from self.history.flush()

    def finish_telling(self, patience: float) -> None:
        """Wait until hooks have heard of every outcome that is in the store, but not for longer than `patience` seconds."""
        self._telling.finish(patience)

    def _flushed(self) -> bool:
        """Whether nothing waits; otherwise it is hurried on again, for a hurry ends whenever nothing waits for a moment."""
        if self._outcomes.settled_all:
            return True
        self._outcomes.hurry()
        self._lead.wake()
        return False

    def take(self, seat: Seat, filled: Callable[[], bool], *, until: int | None) -> Steps[None]:
        """Take part until the seat is filled, or the monotonic moment `until` came and every row was looked at since."""
        seat.wakeup, seat.error = Wakeup(self._clock), None
        self._seats.sit(seat)
        insist = until is not None and until < self._clock.monotonic() + _PATIENT
        asked = self._rounds.visits.ask(self._process.now(), insist=insist)

        def over() -> bool:
            return (
                seat.error is not None
                or filled()
                or (until is not None and self._rounds.answered >= asked and self._clock.monotonic() >= until)
            )

        try:
            yield from self._lead.take_part(over, seat.wakeup, until=until)
        finally:
            self._seats.leave(seat)
        if seat.error is not None and not filled():
            raise seat.error

    def serve(self, seat: Seat, stopped: Callable[[], bool]) -> Steps[None]:
        """Take part until `stopped`, whatever comes; a dispatcher does this in a thread of its own."""
        yield from self.take(seat, stopped, until=None)

    def _round(self, me: Wakeup, until: int | None) -> Steps[None]:
        """Do the most urgent thing there is, or rest until there is one. Claims and settles take turns, so neither starves."""
        well = yield from self._for_takers(self._look_after(), {})
        now = self._process.now()
        if self._rounds.was_set_back(now):
            self._outcomes.set_back(now)
        asked = self._rounds.visits.asked
        shares = self._shares()
        if shares and self._once.hand_out_kept(now, shares=shares):
            return
        self._outcomes.renew(now)
        urgent = self._outcomes.urgent(now)
        if shares and well:
            well = yield from self._for_takers(self._rounds.look_around(now), shares)
        if shares and well and not (urgent and self._claimed_last) and (visit := self._rounds.choose(now)):
            self._claimed_last = True
            yield from self._for_takers(self._work.visit(visit, shares), shares)
            self._tell_hurried()
            return
        self._claimed_last = False
        if urgent:
            yield from self._settle(urgent.row)
            self._tell_hurried()
        elif well:
            yield from self._with_nothing_urgent(me, until, shares, asked=asked)

    def _with_nothing_urgent(self, me: Wakeup, until: int | None, shares: Shares, *, asked: int) -> Steps[None]:
        """Fire what is due if nobody wants messages, and otherwise rest until there is something to do."""
        now = self._process.now()
        if shares:
            if not (yield from self._for_takers(self._rounds.idle(now), shares)):
                return
        elif not self._following.behaviour.paused and (visit := self._rounds.visits.with_slot(now)):
            yield from self._for_takers(self._work.fire(visit), {})
            return
        else:
            self._rounds.answer(asked)
        self._lead.tell_others()
        if not self._lead.passed(until):
            yield Rest(me, self._rest_until(now, until, wanting=bool(shares)))

    def _look_after(self) -> Steps[None]:
        """Follow the settings and the store's time, and write what the history is to know."""
        yield from self._following.follow()
        yield from self.history.write_noted()

    def _for_takers(self, steps: Steps[None], shares: Shares) -> Steps[bool]:
        """Do what is for those who take, of whom these have a share; whether it went well.

        An error ends the wait of one of them, whoever leads: what another settles meanwhile has nothing to do with it.
        """
        try:
            yield from steps
        except Exception as error:
            if self._seats.fail(error, shares):
                return False
            if not isinstance(error, StoreError | Undecodable):
                raise
            _log.warning("queue %s: %s; it is tried again", self._following.settings.name, error)
            return False
        return True

    def _settle(self, row: str) -> Steps[None]:
        """Commit what waits for a row. An error is that of those who wait for just that, or for everything, or of one who takes."""
        try:
            yield from self._work.settle(row)
        except Exception as error:
            for ticket in self._flushing:
                ticket.fail(error)
            if not self._flushing and not self._seats.fail(error, {}):
                if not isinstance(error, StoreError):
                    raise
                _log.warning("row %s: %s; what became of its messages is recorded later", row, error)

    def _tell_hurried(self) -> None:
        """Let those know who wait for outcomes that may be settled now."""
        if self._outcomes.hurried:
            self._lead.tell_others()

    def _rest_until(self, now: int, until: int | None, *, wanting: bool) -> int:
        """The monotonic moment of the next thing to do."""
        wake_at = min(self._outcomes.next_event(), self._rounds.next_event(now) if wanting else now + SECOND)
        rest = max(0, wake_at - self._process.now()) + self._clock.monotonic()
        return rest if until is None else min(rest, until)

    def _shares(self) -> Shares:
        """Who wants how many messages now: nobody any while the queue is paused, or while hands must empty for a suspect."""
        if self._outcomes.in_hand == 0:
            self._work.emptying = False
        return {} if self._work.emptying or self._following.behaviour.paused else self._seats.shares()
