"""One claimer for each queue and process: it claims and settles for all threads and tasks of the process.

Threads and tasks that receive or settle take part. One of them leads while it waits, and does the work of all: it
commits outcomes, claims for the waiters that have credit, first come first served, and renews leases. When it has what
it waited for, the next one leads. So sixty consumers cost one commit, none of them spins, and a lone one does only its
own work.

The leader carries out one step after the other, so leases and row snapshots need no locks; only what other threads add
(waiters, outcomes) does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import StoreError, Undecodable
from astyqueue.protocol.settling.outcomes import Outcome
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.at_most_once import AtMostOnceBuffer
from astyqueue.queue.consuming.expiry_sweep import ExpirySweep
from astyqueue.queue.consuming.firing import ScheduleFiring
from astyqueue.queue.consuming.follow_up_sending import FollowUpSending
from astyqueue.queue.consuming.leader_follower import Leadership, Participants
from astyqueue.queue.consuming.leader_wait import LeaderWait
from astyqueue.queue.consuming.lease_table import LeaseTable
from astyqueue.queue.consuming.outcome_recorder import OutcomeRecorder
from astyqueue.queue.consuming.process_permit import ClaimPermission, ProcessPermit
from astyqueue.queue.consuming.row_worker import RowWorker, returned
from astyqueue.queue.consuming.settle_buffer import SettleBuffer
from astyqueue.queue.consuming.suspect_wait import SuspectWait
from astyqueue.queue.consuming.waiters import Shares, Waiters
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.history_writer import HistoryWriter
from astyqueue.queue.hooks import Hook, HookNotifier
from astyqueue.queue.metrics import QueueStats
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.row_locks import RowLocks
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.structured_log import log_event
from astyqueue.triggers import Triggers
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: A `receive` with a shorter wait than this does not leave a row to the process that owns it.
_PATIENT: Final = SECOND

_log: Final = logging.getLogger("astyqueue.queue")


class Claimer:
    """Claims and settles for all consumers of a queue in this process."""

    def __init__(
        self,
        process: Client,
        scheduler: RowScheduler,
        *,
        clock: Clock,
        settings_sync: SettingsSync,
        row_locks: RowLocks,
        hooks: tuple[Hook, ...] = (),
        doorbell: PacedDoorbell,
        triggers: Triggers | None = None,
    ) -> None:
        """Changes of the stored settings take effect within ten seconds. Without `triggers`, no schedule is fired."""
        self.stats = QueueStats()
        self.history = HistoryWriter(process, settings_sync)
        self.notifier = notifier = HookNotifier(hooks)
        self.firings = ScheduleFiring(process, self.stats, triggers, history=self.history, notifier=notifier)
        scheduler.fire_schedules(on=self.firings.on)
        self._process = process
        self._scheduler = scheduler
        self._clock = clock
        self._doorbell = doorbell
        self._settings_sync = settings_sync
        self.recorder = recorder = OutcomeRecorder(self.stats, notifier, self.history, process.observers)
        self.leases = LeaseTable()
        self._outcomes = SettleBuffer(self.leases, recorder)
        self._lead = Leadership(clock, self._round, notifier)
        self._waiters = Waiters(clock)
        self._at_most_once = AtMostOnceBuffer(self._waiters, self.stats, notifier)
        self.permit = permit = ProcessPermit(process, clock, settings_sync)
        self._permission = ClaimPermission(permit, process, scheduler, self.leases, suspect_wait=SuspectWait(clock))
        self._work = RowWorker(
            process=process,
            scheduler=scheduler,
            settings_sync=settings_sync,
            outcomes=self._outcomes,
            leases=self.leases,
            waiters=self._waiters,
            at_most_once=self._at_most_once,
            firings=self.firings,
            row_locks=row_locks,
            doorbell=doorbell,
            recorder=recorder,
            follow_ups=FollowUpSending(process, recorder, self.announce),
            permit=permit,
            expiry=ExpirySweep(process, clock, settings_sync, recorder),
            suspect_wait=self._permission.suspect_wait,
        )
        self._resting = LeaderWait(clock, self._work)
        self._claimed_last = False
        self._flushing, self._renewing, self._leaving = (Participants(self._lead, clock) for _ in range(3))

    def announce(self, rows: Sequence[tuple[str, int | None]], *, frees_group: bool = False) -> Steps[None]:
        """Have consumers of this and of other processes scan rows to which a thread of this process sent messages.

        Each row has the due moment of its first new message; None: its header was changed, or a settle freed a group.
        """
        for row, moment in rows:
            if moment is None:
                self.changed(row)
            else:
                self._scheduler.report_due(row, moment, self._process.now())
                self.wake()
        yield from self._doorbell.ring([row for row, _ in rows], frees_group=frees_group)

    def close(self, queue: str) -> None:
        """Stop: threads and tasks that take part now or later get Closed."""
        self._lead.close(queue)
        self._at_most_once.close(queue)

    def __repr__(self) -> str:
        """Its waiters, the messages that are leased to this process, and what waits for a commit."""
        return f"<Claimer: {self._waiters!r}, {self.leases.leased_count} leased, {self._outcomes!r}>"

    def changed(self, row: str) -> None:
        """Have a row's header read again: this process changed it, but not through this claimer."""
        self._scheduler.report_changed(row)
        self.wake()

    def wake(self) -> None:
        """Wake the leader: credit grew, outcomes came, or a waiter wants to stop."""
        self._lead.wake()

    def settle_later(self, delivery: BaseDelivery, outcome: Outcome) -> None:
        """Buffer an outcome that no caller waits for: it is committed with the next claim of its row or after 5 ms."""
        if self._outcomes.add(delivery, outcome):
            self.wake()

    def give_back(self, delivery: BaseDelivery) -> None:
        """Give back a delivery that no consumer began; it costs no attempt, and no hook is called before."""
        if delivery.lease is None:
            self._at_most_once.keep([(delivery.row, delivery.held)])
        else:
            self._outcomes.give_back(delivery, returned(delivery, self._process.now()))
        self.wake()

    def settle(self, outcomes: list[tuple[BaseDelivery, Outcome]]) -> Steps[list[BaseDelivery]]:
        """Commit these outcomes before anything else; returns the deliveries whose leases were lost.

        When the store fails, its error is raised and these outcomes are withdrawn: the caller may try again. A caller
        that is cancelled withdraws nothing: its outcomes go with the next commit.
        """
        ticket = self._outcomes.demand(outcomes)
        ticket.wakeup = Wakeup(self._clock)
        yield from self._lead.take_part(
            lambda: ticket.over, ticket.wakeup, until=None, undo=lambda: self._outcomes.withdraw(ticket)
        )
        if ticket.error is not None:
            raise ticket.error
        return ticket.lost

    def flush(self, deliveries: Collection[BaseDelivery] | None = None) -> Steps[None]:
        """Commit all buffered outcomes, or those of these deliveries, and write the buffered history events."""
        yield from self._flushing.take_part(lambda: self._flushed(deliveries))
        yield from self.history.flush()

    def leave(self, *, for_good: bool = False) -> Steps[None]:
        """Release the permit of this process unless a consumer wants it; `for_good`, also then. Errors are ignored."""
        self.permit.leave(for_good=for_good)
        yield from self._leaving.take_part(lambda: not self.permit.leaving)

    def renew_leases(self, stopped: Callable[[], bool]) -> Steps[None]:
        """Take part until `stopped` without receiving, so that leases are renewed; an error in that is raised."""
        yield from self._renewing.take_part(stopped)

    def _flushed(self, deliveries: Collection[BaseDelivery] | None) -> bool:
        """Whether no outcome waits; if one does, hurry the buffer again: a hurry ends whenever the buffer is empty."""
        if self._outcomes.settled(deliveries):
            return True
        self._outcomes.hurry()
        self._lead.wake()
        return False

    def take(self, waiter: Waiter, filled: Callable[[], bool], *, until: MonotonicUs | None) -> Steps[None]:
        """Take part until `filled`, or until the monotonic moment `until` has come and every row was checked since."""
        waiter.wakeup, waiter.error = Wakeup(self._clock), None
        hurried = until is not None and until < self._clock.monotonic() + _PATIENT
        if hurried:  # it does not rest, so it reads no notices
            self._scheduler.activity.used()
        try:
            self._waiters.add(waiter)
            request = self._scheduler.request(ignoring_owners=hurried)

            def over() -> bool:
                if waiter.error is not None or filled():
                    return True
                return self._scheduler.answered(request) and self._lead.passed(until)

            yield from self._lead.take_part(over, waiter.wakeup, until=until)
        finally:
            self._waiters.remove(waiter)
        if waiter.error is not None and not filled():
            raise waiter.error

    def serve(self, waiter: Waiter, stopped: Callable[[], bool]) -> Steps[None]:
        """Take part until `stopped`; a dispatcher does this in a thread of its own."""
        yield from self.take(waiter, stopped, until=None)

    def _round(self, me: Wakeup, until: MonotonicUs | None) -> Steps[None]:
        """Do the most urgent work, or rest until there is some. Claims and settles take turns, so neither starves."""
        self._scheduler.activity.take_wake_reasons()
        succeeded = yield from self._for_waiters(self._keep_up(), {})
        now = self._process.now()
        if self._scheduler.begin_round(now, working=self.leases.leased_count > 0):
            self.leases.set_back(now)
        self._outcomes.renew(now)
        shares = self._shares()
        if shares and self._at_most_once.hand_out_kept(now, shares=shares):
            return
        if self.permit.concerns:
            yield from self._for_waiters(self._permission.keep(wanting=bool(shares)), shares)
            shares = shares if self._permission.may_poll else {}
            self._wake_hurried()
        urgent = self._outcomes.urgent(now)
        self._scheduler.scan_now(self.recorder.freed_groups.take(), now)
        if shares and succeeded:
            succeeded = yield from self._for_waiters(self._scheduler.poll(now), shares)
        if shares and succeeded and not (urgent and self._claimed_last) and (row := self._permission.next_row(now)):
            self._claimed_last = True
            yield from self._for_waiters(self._work.claim_from(row, shares), shares)
            self._wake_hurried()
            return
        self._claimed_last = False
        if urgent:
            yield from self._settle(urgent.row)
            self._wake_hurried()
        elif succeeded:
            yield from self._with_nothing_urgent(me, until, shares)

    def _with_nothing_urgent(self, me: Wakeup, until: MonotonicUs | None, shares: Shares) -> Steps[None]:
        """Fire due occurrences if no waiter has credit; otherwise rest until there is work."""
        now = self._process.now()
        fires = not (shares or self._settings_sync.behaviour.paused)
        if fires and (row := (yield from self._scheduler.next_row_to_fire(now))):
            yield from self._for_waiters(self._work.fire(row), {})
            return
        if not (yield from self._for_waiters(self._scheduler.when_out_of_work(now, has_credit=bool(shares)), shares)):
            return
        self._lead.wake_others()
        if self._lead.passed(until):
            return
        yield from self._for_waiters(self._resting.rest(me, until, now, wanting=bool(shares)), shares)

    def _keep_up(self) -> Steps[None]:
        """Follow the settings and the store's time, and write the buffered history events."""
        yield from self._settings_sync.follow(idle=self._scheduler.unwatched)
        yield from self.history.write_noted()

    def _for_waiters(self, steps: Steps[None], shares: Shares) -> Steps[bool]:
        """Run one step of claim work for the waiters in `shares`; False after an error.

        The error ends the wait of one waiter, whichever thread leads: callers that settle are not affected by it.
        Without a waiter it goes to those that renew leases.
        """
        try:
            yield from steps
        except Exception as error:
            if self._waiters.fail(error, shares) or self._renewing.fail(error):
                return False
            if not isinstance(error, StoreError | Undecodable):
                raise
            log_event(_log, logging.WARNING, "work_failed", queue=self._settings_sync.settings.name, error=error)
            return False
        return True

    def _settle(self, row: str) -> Steps[None]:
        """Commit the outcomes that wait for a row.

        An error goes to the callers that wait for these outcomes, flush, renew leases or receive: the first there are.
        """
        try:
            yield from self._work.settle(row)
        except Exception as error:
            if self._flushing.fail(error) or self._renewing.fail(error) or self._waiters.fail(error, {}):
                return
            if not isinstance(error, StoreError):
                raise
            log_event(_log, logging.WARNING, "settle_failed", row=row, error=error)

    def _wake_hurried(self) -> None:
        """Wake the callers that wait for outcomes, some of which may be committed now, and those that leave."""
        if self._outcomes.hurried or self._leaving or self._flushing:
            self._lead.wake_others()

    def _shares(self) -> Shares:
        """The credit of each waiter; none while the queue is paused or leases must end before a suspect is claimed."""
        return {} if self._permission.must_wait or self._settings_sync.behaviour.paused else self._waiters.shares()
