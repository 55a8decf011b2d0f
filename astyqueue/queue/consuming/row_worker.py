"""The work in one row: firing its schedules, claiming and delivering its due messages, committing outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from astyqueue.errors import Undecodable
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.model.settings import Behaviour
from astyqueue.observe.events import Claimed, ClaimRefused, LeaseExpired, ObservedEvent, RowTakenOver
from astyqueue.protocol.claiming.claim import ClaimResult, claim
from astyqueue.protocol.claiming.scan import MOST
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.row_lock import LockHandle
from astyqueue.protocol.layout.columns import Entry, State
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.settling.outcomes import Ack, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.at_most_once import AtMostOnceBuffer
from astyqueue.queue.consuming.expiry_sweep import ExpirySweep
from astyqueue.queue.consuming.firing import ScheduleFiring
from astyqueue.queue.consuming.follow_up_sending import FollowUpSending, log_refused
from astyqueue.queue.consuming.lease_table import LeaseTable
from astyqueue.queue.consuming.outcome_recorder import OutcomeRecorder
from astyqueue.queue.consuming.process_permit import ProcessPermit
from astyqueue.queue.consuming.settle_buffer import SettleBuffer
from astyqueue.queue.consuming.suspect_wait import SuspectWait
from astyqueue.queue.consuming.waiters import Shares, Waiters
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.row_locks import RowLocks
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.queue.row_sharing.row_state import RowState
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.units import SECOND

#: Waiters that had no credit for less than this count as always having credit.
_NO_TIME: Final = SECOND // 20


def returned(delivery: BaseDelivery, now: int) -> Release:
    """The outcome of a delivery that no consumer began: it may be redelivered at once, and costs no attempt."""
    return Release(now, delivery.attempt - 1, State.SNOOZED)


@dataclass(slots=True)
class _Announcement:
    """What is to be announced of outcomes that were committed in a row."""

    gives_back: bool = False
    frees_group: bool = False

    def add(self, lease: Lease, outcomes: dict[Id, Outcome]) -> None:
        """Add outcomes of a lease, as it was before they were committed."""
        self.gives_back |= Release in set(map(type, outcomes.values()))
        self.frees_group |= lease.grouped and any(
            entry.group and isinstance(outcomes.get(entry.id), Ack | Reject) for entry in lease.timer.entries
        )


@dataclass(slots=True, kw_only=True)
class RowWorker:
    """The work of one process in the rows of a queue."""

    process: Client
    scheduler: RowScheduler
    settings_sync: SettingsSync
    outcomes: SettleBuffer
    leases: LeaseTable
    waiters: Waiters
    at_most_once: AtMostOnceBuffer
    firings: ScheduleFiring
    row_locks: RowLocks
    doorbell: PacedDoorbell
    recorder: OutcomeRecorder
    follow_ups: FollowUpSending
    permit: ProcessPermit
    expiry: ExpirySweep
    suspect_wait: SuspectWait

    def settle(self, name: str) -> Steps[None]:
        """Commit the outcomes that wait for one row, without claiming.

        An error goes to the callers that wait for these outcomes; if there are none, it is raised.
        """
        row = self.scheduler.rows[name]
        snapshot = row.snapshot
        if not (yield from self._send_before_acks(name)):
            return
        waiting, events = self.outcomes.of_row(name, self.process.now())
        announcement = _Announcement()
        error_without_caller: Exception | None = None
        for lease, outcomes in waiting:
            try:
                yield from self.recorder.history.write(events)
                settled = yield from settle(self.process, name, SettleRequest(lease.timer, outcomes, lease.unanswered))
            except Exception as error:  # noqa: BLE001 - it is raised below, after what was settled before it is announced
                error_without_caller = None if self.outcomes.fail(lease, error) else error
                break
            events = []
            for settle_plan in settled.done:
                snapshot.settled(settle_plan.timer_change)
            self._done(lease, outcomes, settled, announcement)
        row.scan_next(self.process.now())
        yield from self._announce_outcomes(row, announcement, current=False)
        if error_without_caller is not None:
            raise error_without_caller

    def _send_before_acks(self, row: str) -> Steps[bool]:
        """Send the follow-ups that must be in the store before their acks; only then are these committed.

        An error goes to the callers that wait for outcomes of these leases, and False is returned; if there are none,
        it is raised.
        """
        acks = self.outcomes.unready(row)
        if not acks:
            return True
        try:
            refused = yield from self.follow_ups.send_before(acks)
        except Exception as error:
            leases = {one.delivery.lease for one in acks}
            have_callers = [lease is not None and self.outcomes.fail(lease, error) for lease in leases]
            if not any(have_callers):
                raise
            return False
        for delivery, reason in refused.items():
            log_refused(delivery, reason)
            self.outcomes.refuse(delivery, reason, self.process.now())
        return True

    def _done(
        self, lease: Lease, outcomes: dict[Id, Outcome], settled: SettleResult, announcement: _Announcement
    ) -> None:
        """Apply a settle that is in the store."""
        announcement.add(lease, outcomes)  # first: after that the lease no longer has what has ended
        self.follow_ups.committed(self.outcomes.done(lease, outcomes, settled))

    def _announce_outcomes(self, row: RowState, announcement: _Announcement, *, current: bool) -> Steps[None]:
        """Announce outcomes that are in the store, to consumers of follow-ups and to other processes.

        Idle processes learn of messages that were given back before their leases end, and all of freed groups. Unless
        the snapshot is `current`, only another process may know of messages that waited in such a group, so the header
        is polled.
        """
        yield from self.follow_ups.report()
        if announcement.gives_back:
            yield from self.doorbell.notify_idle()
        if announcement.frees_group and not (current or row.snapshot.has_free_group):
            self.scheduler.poll_soon(row)
        if announcement.frees_group:
            yield from self.doorbell.ring([row.name], frees_group=True)

    def claim_from(self, row: RowState, shares: Shares) -> Steps[None]:
        """Fire the due occurrences of a row and claim from it, settling in the same commit what waits for it."""
        announcement = _Announcement()
        try:
            claimed = yield from self._claim_from(row, shares, announcement)
        except Exception:  # what was settled until then is done, and is announced
            yield from self._announce_outcomes(row, announcement, current=False)
            raise
        if claimed is None:
            return
        yield from self._announce_outcomes(row, announcement, current=claimed.committed)
        if (yield from self.expiry.visit(row.name)):
            self.scheduler.report_changed(row.name)

    def _claim_from(self, row: RowState, shares: Shares, announcement: _Announcement) -> Steps[ClaimResult | None]:
        """Fire and claim; None if the row's lock is busy. `announcement` has what was settled, also after an error."""
        snapshot, began = row.snapshot, self.process.now()
        request = self._claim_request(row, sum(shares.values()), self.settings_sync.behaviour)
        waiting, events = self.outcomes.of_row(row.name, began)
        settling = [SettleRequest(lease.timer, outcomes, lease.unanswered) for lease, outcomes in waiting]
        claimed = ClaimResult()

        def take(lock: LockHandle) -> Steps[ClaimResult]:
            under = replace(request, unlocks=lock.columns) if lock.columns else request
            yield from self.recorder.history.write(events)
            return (yield from claim(self.process, snapshot, under, settling=settling, into=claimed))

        with self.scheduler.visiting(row) as visit:
            try:
                fired = yield from self.firings.fire(snapshot)
                if not (yield from self.row_locks.under(visit, take)):
                    self.recorder.stats.add("busy_rows")
                    return None
            except Undecodable:
                self.recorder.stats.add("undecodable")
                raise
            finally:
                self._settled(waiting, claimed, announcement)
            self.suspect_wait.scanned(row, suspect=claimed.suspect, claimed=bool(claimed.claims))
            traffic = self.recorder.stats.count(row.name, claimed) > 0
            if self.process.observers.on:
                self.process.observers.notify(*events_of_claim(row.name, claimed, shared=self.scheduler.shared))
            now = self.process.now()
            self._hand_out(row.name, claimed, shares)
            more = claimed.more or (fired > 0 and (snapshot.next_occurrence or now + 1) <= now)
            visit.finished(more=more, refused=claimed.refused, traffic=traffic)
        self.recorder.history.note(
            Kind.CLAIMED, lambda: self.recorder.history.events.of_hand_out(row.name, claimed, at=now)
        )
        yield from self.recorder.history.write_or_buffer(
            self.recorder.history.events.of_claim(row.name, claimed, at=began)
        )
        return claimed

    def _settled(
        self, waiting: list[tuple[Lease, dict[Id, Outcome]]], claimed: ClaimResult, announcement: _Announcement
    ) -> None:
        """Apply the settles that were committed with a claim, or beside it."""
        for lease, outcomes in waiting:
            if done := claimed.settled.get(lease.timer.name):
                self._done(lease, outcomes, done, announcement)

    def fire(self, row: RowState) -> Steps[None]:
        """Fire the due occurrences of a row while no consumer waits here; others find the messages, or later ones."""
        with self.scheduler.visiting(row) as visit:
            visit.fired((yield from self.firings.fire(row.snapshot)))

    def _claim_request(self, row: RowState, wanted: int, behaviour: Behaviour) -> ClaimRequest:
        """A request for up to `wanted` messages of a row.

        If it uses up all credit, it keeps the row only if credit has been coming back within `_NO_TIME`.
        """
        leases = self.row_locks.leases
        return ClaimRequest(
            min(wanted, MOST),
            behaviour.lease_us,
            behaviour.max_attempts,
            self.leases.leased_count,
            keeps=wanted > MOST or self.waiters.full_for < _NO_TIME,
            yields=self.scheduler.shared and leases,
            leases=leases,
            lease_cap=behaviour.lease_cap_us,
            max_attempts_cap=behaviour.max_attempts_cap,
            expires_cap=behaviour.expires_cap_us,
            ends_soon=row.ignores_owner,
        )

    def _hand_out(self, row: str, claimed: ClaimResult, shares: Shares) -> None:
        """Deliver the claimed messages to the waiters, first come first served, and give back the rest.

        If the permit ran out during the claim, all leased ones are given back. Hooks are called for messages that
        became dead letters.
        """
        permitted = shares if self.permit.granted else {}
        for taken in claimed.claims:
            lease = Lease(row, taken.timer, taken.lease, since=self.process.now())
            allocated = self.waiters.allocate(row, taken.held, lease, shares=permitted)
            handed = [delivery for _, deliveries in allocated for delivery in deliveries]
            unwanted = [BaseDelivery(row, one, lease) for one in taken.held[len(handed) :]]
            if any(waiter.renew for waiter, _ in allocated):
                lease.plan_renewal(self.process.now())
            self.leases.add(lease, handed + unwanted)
            unwanted += self.waiters.deliver(allocated)
            for delivery in unwanted:
                self.outcomes.give_back(delivery, returned(delivery, self.process.now()))
        self.at_most_once.hand_out(row, claimed.at_most_once, shares=shares)
        if is_home(row):
            self.firings.handed_out(held for taken in claimed.claims for held in taken.held)
        for entry, death, _ in claimed.buried:
            self.recorder.notifier.buried(_id(row, entry), death.kind, death.reason)
        for entry in claimed.superseded:
            self.recorder.notifier.deleted(_id(row, entry), "replaced")


def events_of_claim(row: str, claimed: ClaimResult, *, shared: bool) -> Iterator[ObservedEvent]:
    """What a claim found and did; `shared`: rows have owners, so that a claim may take a row over."""
    if claimed.refused:
        yield ClaimRefused(row, claimed.refused)
    if claimed.previous_owner and shared:
        yield RowTakenOver(row, claimed.previous_owner)
    for entry, holder in claimed.lapsed:
        yield LeaseExpired(row, _id(row, entry), holder, entry.spent + 1)
    for taken in claimed.claims:
        yield Claimed(row, tuple(_id(row, one.entry) for one in taken.held), taken.timer.due)
    if claimed.at_most_once:
        yield Claimed(row, tuple(_id(row, one.entry) for one in claimed.at_most_once), None)


def _id(row: str, entry: Entry) -> MessageId:
    return MessageId(row, entry.priority, entry.id)
