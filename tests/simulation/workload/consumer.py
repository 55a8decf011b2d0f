"""A simulated consumer, which claims and settles by the protocol's own steps, and keeps a snapshot of each row."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final

from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.model.settings import Behaviour
from astyqueue.protocol.claiming.claim import Claim, ClaimResult, claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.layout.rows import is_home
from astyqueue.protocol.layout.unique_key import NOTHING
from astyqueue.protocol.row.rescan import RowRescan
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import RowSchedules
from astyqueue.protocol.settling.outcomes import ACK, Ack, Extend, Outcome, Reject, Release
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Client, Request, Steps
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Lease, after_settling
from astyqueue.triggers import Triggers
from astyqueue.units import SECOND
from tests.simulation.checkers.polls import Polls
from tests.simulation.engine import history
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.history import History, Result
from tests.simulation.engine.rng import SeededRandom
from tests.simulation.workload.locks import LockedRows

_MOST: Final = 5
#: An outcome as the history records it.
SettleRecord = history.Settled
#: Settles in the commit of a claim.
_Joined = list[tuple[Lease, dict[Id, Outcome]]]


@dataclass(eq=False)
class Consumer:
    """Claims messages, and settles them after a while, in every way there is.

    It forgets some deliveries, and sometimes settles in the commit that claims.
    """

    client: SimulatedProcess
    rows: list[str]
    behaviour: Behaviour
    levels: int
    history: History
    rng: SeededRandom
    polls: Polls
    forgets: float = 0.1
    fires: bool = False
    leases: list[Lease] = field(default_factory=list)
    locked: LockedRows | None = None

    def __post_init__(self) -> None:
        """Begin without knowledge of any row."""
        self.process = Client(self.client.name, self.client.clock.now)
        self.snapshots = {row: RowSnapshot(row, self.levels) for row in self.rows}
        self.schedules = RowSchedules(self.process, Triggers())

    def claim_under(self, locked: LockedRows) -> None:
        """Claim only under these row locks from now on."""
        self.locked, self.snapshots = locked, locked.snapshots

    def work(self, turns: int) -> Agent:
        """Claim or settle, `turns` times."""
        for _ in range(turns):
            yield Pause(int(self.rng.expovariate(1 / self.rng.choice((2_000, 20_000, 300_000)))))
            if self.leases and self.rng.random() < 0.55:
                yield from self._settle(self.rng.choice(self.leases))
            else:
                row = self.rng.choice(self.rows)
                yield from self._fire(row)
                yield from self._claim(row)

    def drain(self, moments: tuple[int, ...], back: int = 0) -> Agent:
        """Claim and ack everything after each of these pauses; `back`: rescan this many microseconds first."""
        for moment in moments:
            yield Pause(moment)
            for row in self.rows:
                if back:
                    yield from self._rescan(row, back)
                yield from self._empty(row)

    def _rescan(self, row: str, back: int) -> Steps[None]:
        """List the messages that landed behind all scans."""
        self.history.begins("rescan")
        rescan = RowRescan(self.process, row, self.levels, self.process.now() - back)
        with contextlib.suppress(StoreError):
            while not rescan.over:
                yield from rescan.go_on()

    def _empty(self, row: str) -> Generator[Request | Pause, Any, None]:
        for _ in range(60):
            fired = yield from self._fire(row)
            everything = ClaimRequest(20, self.behaviour.lease_us, self.behaviour.max_attempts)
            claimed = yield from self._go_in(row, everything, [], None)
            if not claimed and not fired:
                return
            for lease in list(self.leases):
                yield from self._carry_out(lease, {id_: acking(delivery) for id_, delivery in lease.deliveries.items()})

    def _fire(self, row: str) -> Steps[int]:
        """Fire the due occurrences of the schedules in a row; returns how many that were."""
        if not self.fires or not is_home(row):
            return 0
        self.history.begins("fire")
        try:
            fired = yield from self.schedules.fire(self.snapshots[row])
        except StoreError:
            return 0
        return len(fired)

    def _claim(self, row: str) -> Generator[Request | Pause, Any, None]:
        leased = sum(len(lease.deliveries) for lease in self.leases)
        want = self.rng.randint(1, _MOST)
        request = ClaimRequest(
            want, self.behaviour.lease_us, self.behaviour.max_attempts, leased, yields=self.rng.random() < 0.3
        )
        joined = [lease for lease in self.leases if lease.row == row and self.rng.random() < 0.5]
        yield from self._go_in(row, request, [(lease, self._outcomes(lease)) for lease in joined], self.rng)

    def _go_in(
        self, row: str, request: ClaimRequest, joined: _Joined, patience: SeededRandom | None
    ) -> Generator[Request | Pause, Any, bool]:
        """Claim, under the lock of the row if there is one; returns whether anything came of it."""
        if self.locked is None:
            claimed = yield from self._take(row, request, joined)
        else:
            claimed = yield from self.locked.claim(row, request, lambda under: self._take(row, under, joined), patience)
        return bool(claimed.claims or claimed.more or claimed.suspect)

    def _take(self, row: str, request: ClaimRequest, joined: _Joined) -> Steps[ClaimResult]:
        """Claim, with these settles in the same commit."""
        self.history.begins("claim with settles" if joined else "claim")
        self.history.claims(int(self.client.clock.monotonic()), self.client.clock.error)
        settle_record = [self._asks(lease, outcomes) for lease, outcomes in joined]
        settling = [SettleRequest(lease.timer, outcomes, lease.unanswered) for lease, outcomes in joined]
        claimed = ClaimResult()
        self.polls.begin([self.snapshots[row]])
        with contextlib.suppress(StoreError):  # what was done before the error is noted all the same
            yield from claim(self.process, self.snapshots[row], request, settling=settling, into=claimed)
        for (lease, outcomes), notes, settlement in zip(joined, settle_record, settling, strict=True):
            if done := claimed.settled.get(settlement.timer.name):
                self._settled(lease, outcomes, done, notes=notes)
        for taken in claimed.claims:
            self._add_lease(taken)
        if not claimed.claims and not joined:
            self.polls.found_nothing([self.snapshots[row]])
        return claimed

    def _add_lease(self, taken: Claim) -> None:
        lease = Lease(taken.row, taken.timer, taken.timer.due - self.process.now())
        lease.deliveries.update((one.entry.id, BaseDelivery(taken.row, one, lease)) for one in taken.held)
        self.history.delivered += [delivery_record(delivery, self.client) for delivery in lease.deliveries.values()]
        if self.rng.random() >= self.forgets:
            self.leases.append(lease)

    def _settle(self, lease: Lease) -> Steps[None]:
        yield from self._carry_out(lease, self._outcomes(lease))

    def _carry_out(self, lease: Lease, outcomes: dict[Id, Outcome]) -> Steps[None]:
        notes = self._asks(lease, outcomes)
        self.history.begins(*[note.kind for note in notes.values()])
        try:
            settled = yield from settle(self.process, lease.row, SettleRequest(lease.timer, outcomes, lease.unanswered))
        except StoreError as error:
            for note in notes.values():
                note.result = Result.UNKNOWN if isinstance(error, OutcomeUnknown) else note.result
            return
        for settle_plan in settled.done:
            self.snapshots[lease.row].settled(settle_plan.timer_change)
        self._settled(lease, outcomes, settled, notes=notes)

    def _asks(self, lease: Lease, outcomes: dict[Id, Outcome]) -> dict[Id, SettleRecord]:
        notes = {id_: settle_record(lease.deliveries[id_], outcome, self.client) for id_, outcome in outcomes.items()}
        self.history.settled += notes.values()
        return notes

    def _settled(
        self, lease: Lease, outcomes: dict[Id, Outcome], settled: SettleResult, *, notes: dict[Id, SettleRecord]
    ) -> None:
        """Apply what was committed to the leases, and note the result of each settle."""
        lost, partitioned = after_settling(lease, outcomes, settled)
        gone = {delivery.id for delivery in lost}
        for id_, note in notes.items():
            note.answer(int(self.client.clock.monotonic()), unknowns=self.client.unknowns, lost=id_ in gone)
        self.leases += [part for part in partitioned if part not in self.leases]
        self.leases = [each for each in self.leases if each.deliveries]

    def _outcomes(self, lease: Lease) -> dict[Id, Outcome]:
        """Outcomes for some or all deliveries of a lease."""
        chosen = [delivery for delivery in lease.deliveries.values() if self.rng.random() < 0.7] or list(
            lease.deliveries.values()
        )
        return {
            delivery.id: outcome_for(delivery, self.process.now(), self.behaviour, rng=self.rng) for delivery in chosen
        }


def acking(delivery: BaseDelivery) -> Ack:
    """An ack, with what the delivery needs in the same commit."""
    return ACK if delivery.effects is NOTHING else Ack(delivery.effects)


def outcome_for(delivery: BaseDelivery, now: int, behaviour: Behaviour, *, rng: random.Random) -> Outcome:
    """One of the ways to settle a delivery, mostly an ack."""
    match rng.choices(("ack", "back off", "give back", "snooze", "reject", "extend"), (10, 2, 2, 1, 2, 2))[0]:
        case "ack":
            return acking(delivery)
        case "back off" if delivery.attempt < behaviour.max_attempts:
            return Release(now + behaviour.backoff(delivery.attempt, rng.random()), delivery.attempt)
        case "give back":
            return Release(now, delivery.attempt - 1, State.SNOOZED)
        case "snooze":
            return Release(now + rng.randint(1, 90) * SECOND, delivery.attempt - 1, State.SNOOZED)
        case "extend":
            return Extend(now + int(behaviour.lease_us * rng.uniform(0.3, 1.5)))
        case _:
            return Reject("rejected", f"reason {rng.randint(0, 9)}", delivery.attempt, delivery.effects)


def delivery_record(delivery: BaseDelivery, client: SimulatedProcess) -> history.Delivered:
    """A delivery, for the history."""
    nonce = delivery.lease.timer.nonce if delivery.lease else b""
    number = delivery.body if isinstance(delivery.body, int) else -1
    claimed = client.requested_at(delivery.lease.timer.name if delivery.lease else None)
    return history.Delivered(
        number, delivery.id, delivery.attempt, nonce, claimed, int(client.clock.monotonic()), client.name
    )


def settle_record(delivery: BaseDelivery, outcome: Outcome, client: SimulatedProcess) -> history.Settled:
    """The outcome requested for a delivery, for the history."""
    kinds = {Ack: "ack", Release: "release", Reject: "reject", Extend: "extend"}
    nonce = delivery.lease.timer.nonce if delivery.lease else b""
    number = delivery.body if isinstance(delivery.body, int) else -1
    reason = outcome.reason if isinstance(outcome, Reject) else ""
    return history.Settled(
        number, delivery.id, kinds[type(outcome)], nonce, int(client.clock.monotonic()), client.unknowns, reason=reason
    )
