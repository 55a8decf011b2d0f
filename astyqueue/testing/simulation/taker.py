"""A process that claims and settles by the protocol's own steps, and keeps what it knows of each row between them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, Final

from astyqueue.clock import SECOND
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.model.settings import Behaviour
from astyqueue.protocol.along import NOTHING
from astyqueue.protocol.claim import Claim, Claimed, claim
from astyqueue.protocol.columns import State
from astyqueue.protocol.fire import Schedules
from astyqueue.protocol.outcomes import ACK, Ack, Extend, Reject, Release, Settling
from astyqueue.protocol.picking import Order
from astyqueue.protocol.process import Process
from astyqueue.protocol.rescan import RowRescan
from astyqueue.protocol.rows import is_home
from astyqueue.protocol.settle import Settled, Settlement, settle
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Request, Steps
from astyqueue.queue.holding import Handed, Hold, after_settling
from astyqueue.testing.simulation import history
from astyqueue.testing.simulation.client import Agent, Client, Pause
from astyqueue.testing.simulation.history import History, Result
from astyqueue.triggers import Triggers

_MOST: Final = 5
#: An outcome as it is noted in the history.
Noted = history.Settled


@dataclass(eq=False)
class Taker:
    """Claims, holds for a while, settles in every way there is, forgets some, and now and then does two of these in one commit."""

    client: Client
    rows: list[str]
    behaviour: Behaviour
    levels: int
    history: History
    chance: random.Random
    forgets: float = 0.1
    fires: bool = False
    holds: list[Hold] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Know nothing of any row yet."""
        self.process = Process(self.client.name, self.client.clock.now)
        self.sights = {row: Sight(row, self.levels) for row in self.rows}
        self.schedules = Schedules(self.process, Triggers())

    def work(self, turns: int) -> Agent:
        """Do something, so many times."""
        for _ in range(turns):
            yield Pause(int(self.chance.expovariate(1 / self.chance.choice((2_000, 20_000, 300_000)))))
            if self.holds and self.chance.random() < 0.55:
                yield from self._settle(self.chance.choice(self.holds))
            else:
                row = self.chance.choice(self.rows)
                yield from self._fire(row)
                yield from self._claim(row)

    def drain(self, moments: tuple[int, ...], back: int = 0) -> Agent:
        """Take and ack everything there is, again after each of these pauses; with `back`, after a rescan of that much of each row."""
        for moment in moments:
            yield Pause(moment)
            for row in self.rows:
                if back:
                    yield from self._rescan(row, back)
                yield from self._empty(row)

    def _rescan(self, row: str, back: int) -> Steps[None]:
        """Have what landed behind all looks listed."""
        self.history.steps["rescan"] += 1
        rescan = RowRescan(self.process, row, self.levels, self.process.now() - back)
        with contextlib.suppress(StoreError):
            while not rescan.over:
                yield from rescan.go_on()

    def _empty(self, row: str) -> Generator[Request | Pause, Any, None]:
        for _ in range(60):
            fired = yield from self._fire(row)
            if not (yield from self._take(row, Order(20, self.behaviour.lease_us, self.behaviour.max_attempts), [])) and not fired:
                return
            for hold in list(self.holds):
                yield from self._carry_out(hold, {id_: acking(delivery) for id_, delivery in hold.deliveries.items()})

    def _fire(self, row: str) -> Steps[int]:
        """Fire what is due of the schedules in a row; how many slots that were."""
        if not self.fires or not is_home(row):
            return 0
        self.history.steps["fire"] += 1
        try:
            fired = yield from self.schedules.fire(self.sights[row])
        except StoreError:
            return 0
        return len(fired)

    def _claim(self, row: str) -> Generator[Request | Pause, Any, None]:
        in_hand = sum(len(hold.deliveries) for hold in self.holds)
        want = self.chance.randint(1, _MOST)
        order = Order(want, self.behaviour.lease_us, self.behaviour.max_attempts, in_hand, yields=self.chance.random() < 0.3)
        joined = [hold for hold in self.holds if hold.row == row and self.chance.random() < 0.5]
        yield from self._take(row, order, [(hold, self._outcomes(hold)) for hold in joined])

    def _take(self, row: str, order: Order, joined: list[tuple[Hold, dict[Id, Settling]]]) -> Steps[bool]:
        """Claim, with these settles in the same commit; whether anything came of it."""
        self.history.steps["claim with settles" if joined else "claim"] += 1
        self.history.reader_error = max(self.history.reader_error, abs(self.client.clock.error))
        asked = [self._asks(hold, outcomes) for hold, outcomes in joined]
        settling = [Settlement(hold.timer, outcomes, hold.unsure) for hold, outcomes in joined]
        claimed = Claimed()
        with contextlib.suppress(StoreError):  # what was done until then is noted all the same
            yield from claim(self.process, self.sights[row], order, settling=settling, into=claimed)
        for (hold, outcomes), notes, settlement in zip(joined, asked, settling, strict=True):
            if done := claimed.settled.get(settlement.timer.name):
                self._settled(hold, outcomes, done, notes=notes)
        for taken in claimed.claims:
            self._hold(taken)
        return bool(claimed.claims or claimed.more or claimed.suspect)

    def _hold(self, taken: Claim) -> None:
        hold = Hold(taken.row, taken.timer, taken.timer.due - self.process.now())
        hold.deliveries.update((one.entry.id, Handed(taken.row, one, hold)) for one in taken.held)
        self.history.handed += [noted(delivery, self.client) for delivery in hold.deliveries.values()]
        if self.chance.random() >= self.forgets:
            self.holds.append(hold)

    def _settle(self, hold: Hold) -> Steps[None]:
        yield from self._carry_out(hold, self._outcomes(hold))

    def _carry_out(self, hold: Hold, outcomes: dict[Id, Settling]) -> Steps[None]:
        notes = self._asks(hold, outcomes)
        for note in notes.values():
            self.history.steps[note.kind] += 1
        try:
            settled = yield from settle(self.process, hold.row, Settlement(hold.timer, outcomes, hold.unsure))
        except StoreError as error:
            for note in notes.values():
                note.result = Result.UNKNOWN if isinstance(error, OutcomeUnknown) else note.result
            return
        for worked in settled.done:
            self.sights[hold.row].settled(worked)
        self._settled(hold, outcomes, settled, notes=notes)

    def _asks(self, hold: Hold, outcomes: dict[Id, Settling]) -> dict[Id, Noted]:
        notes = {id_: asked(hold.deliveries[id_], outcome, self.client) for id_, outcome in outcomes.items()}
        self.history.settled += notes.values()
        return notes

    def _settled(self, hold: Hold, outcomes: dict[Id, Settling], settled: Settled, *, notes: dict[Id, Noted]) -> None:
        """Follow what was committed, and note what was told of each."""
        lost, parted = after_settling(hold, outcomes, settled)
        gone = {delivery.id for delivery in lost}
        for id_, note in notes.items():
            note.tell(self.client.clock.monotonic(), unknowns=self.client.unknowns, lost=id_ in gone)
        self.holds += [part for part in parted if part not in self.holds]
        self.holds = [each for each in self.holds if each.deliveries]

    def _outcomes(self, hold: Hold) -> dict[Id, Settling]:
        """What is to become of some or all of what is held."""
        chosen = [delivery for delivery in hold.deliveries.values() if self.chance.random() < 0.7] or list(hold.deliveries.values())
        return {delivery.id: outcome_for(delivery, self.process.now(), self.behaviour, chance=self.chance) for delivery in chosen}


def acking(delivery: Handed) -> Ack:
    """An ack, with what goes along."""
    return ACK if delivery.along is NOTHING else Ack(delivery.along)


def outcome_for(delivery: Handed, now: int, behaviour: Behaviour, *, chance: random.Random) -> Settling:
    """One of the ways to settle a delivery, mostly an ack."""
    match chance.choices(("ack", "back off", "give back", "snooze", "reject", "extend"), (10, 2, 2, 1, 2, 2))[0]:
        case "ack":
            return acking(delivery)
        case "back off" if delivery.attempt < behaviour.max_attempts:
            return Release(now + behaviour.backoff(delivery.attempt, chance.random()), delivery.attempt)
        case "give back":
            return Release(now, delivery.attempt - 1, State.SNOOZED)
        case "snooze":
            return Release(now + chance.randint(1, 90) * SECOND, delivery.attempt - 1, State.SNOOZED)
        case "extend":
            return Extend(now + int(behaviour.lease_us * chance.uniform(0.3, 1.5)))
        case _:
            return Reject("rejected", f"reason {chance.randint(0, 9)}", delivery.attempt, delivery.along)


def noted(delivery: Handed, client: Client) -> history.Handed:
    """A delivery for the history."""
    nonce = delivery.hold.timer.nonce if delivery.hold else b""
    number = delivery.body if isinstance(delivery.body, int) else -1
    claimed = client.asked_for(delivery.hold.timer.name if delivery.hold else None)
    return history.Handed(number, delivery.id, delivery.attempt, nonce, claimed, client.clock.monotonic(), client.name)


def asked(delivery: Handed, outcome: Settling, client: Client) -> history.Settled:
    """What is wanted for a delivery, for the history."""
    kinds = {Ack: "ack", Release: "release", Reject: "reject", Extend: "extend"}
    nonce = delivery.hold.timer.nonce if delivery.hold else b""
    number = delivery.body if isinstance(delivery.body, int) else -1
    reason = outcome.reason if isinstance(outcome, Reject) else ""
    return history.Settled(number, delivery.id, kinds[type(outcome)], nonce, client.clock.monotonic(), client.unknowns, reason=reason)
