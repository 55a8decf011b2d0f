"""Claiming: leasing messages in one commit, which the store applies only if the row is unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.protocol.claiming.scan import scan_row
from astyqueue.protocol.claiming.selection import ClaimedMessage, ClaimPlan, ClaimRequest, DeadLettered, LeaseExpired
from astyqueue.protocol.client import Client
from astyqueue.protocol.layout.columns import HEADER, Entry, Header, State, Timer, Type, encoded, timer_without
from astyqueue.protocol.layout.unique_key import SettleEffects, owned_keys
from astyqueue.protocol.row.snapshot import WORTH_STORING, RowSnapshot
from astyqueue.protocol.row.transaction import RowTransaction
from astyqueue.protocol.settling.outcomes import SettlePlan, columns_changed_by, plan_settle
from astyqueue.protocol.settling.settle import SettleRequest, SettleResult, settle
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.store import Committed, Name

#: Columns that one claim's commit may change for settles and dead letters; a larger settle is committed alone, first.
_CHANGES: Final = 250
#: Consecutive refusals after which a claim leaves the row to other processes for now.
_TRIES: Final = 3


@dataclass(slots=True)
class Claim:
    """A timer of this process and the messages it hides: the right to settle them."""

    row: str
    timer: Timer
    held: list[ClaimedMessage]


@dataclass(slots=True)
class ClaimResult:
    """The result of a claim. `suspect`: a suspect message waits for a process without leases. `more`: the row has more.

    `buried`: messages dead-lettered by the claim; `lapsed`: messages whose lease had expired. `unlocked`: the commit
    deleted the columns of the row lock.
    """

    claims: list[Claim] = field(default_factory=list)
    at_most_once: list[ClaimedMessage] = field(default_factory=list)
    settled: dict[Name, SettleResult] = field(default_factory=dict)
    dead: int = 0
    buried: list[DeadLettered] = field(default_factory=list)
    lapsed: list[LeaseExpired] = field(default_factory=list)
    undecodable: int = 0
    refused: int = 0
    more: bool = False
    suspect: bool = False
    unlocked: bool = False


def claim(
    process: Client,
    snapshot: RowSnapshot,
    order: ClaimRequest,
    *,
    settling: Sequence[SettleRequest] = (),
    into: ClaimResult | None = None,
) -> Steps[ClaimResult]:
    """Lease up to `order.want` due messages of a row, and settle others of it in the same commit if it is applied.

    Settles never wait for a claim: when the commit is refused, they are committed alone at once. If an error or a
    cancellation stops these steps, the snapshot is forgotten, not wrong, and `into` has what was settled until then.
    """
    claiming = _Claiming(process, snapshot, order, list(settling), into or ClaimResult())
    try:
        yield from claiming.carry_out()
    except BaseException as error:
        snapshot.forget()
        if isinstance(error, StoreError):
            snapshot.sizes.forget()
        raise
    return claiming.claimed


@dataclass(slots=True)
class _Claiming:
    process: Client
    snapshot: RowSnapshot
    order: ClaimRequest
    waiting: list[SettleRequest]
    claimed: ClaimResult

    def carry_out(self) -> Steps[None]:
        """Scan and commit, up to three times if other processes commit first."""
        if self._settling > _CHANGES or any(map(_elsewhere, self.waiting)):
            yield from self._settle_alone()
        for _ in range(_TRIES):
            names = {settlement.timer.name for settlement in self.waiting}
            picked = yield from scan_row(
                self.process.now(), self.snapshot, self.order, settling=names, burials=_CHANGES - self._settling
            )
            self.claimed.more, self.claimed.suspect = picked.more, picked.suspect
            worked = [plan_settle(self.process, settlement.timer, settlement.outcomes) for settlement in self.waiting]
            if not picked.anything and not any(part.sooner for part in worked):
                break
            if (yield from self._commit(picked, worked)):
                return
            self.claimed.refused += 1
            yield from self._settle_alone()
            if self.order.yields:
                break
        yield from self._settle_alone()
        if (
            self.snapshot.ids_scanned >= WORTH_STORING and self.snapshot.timers is not None
        ):  # a floor may rise only where all timers are known
            current = [list(cursors) for cursors in self.snapshot.scans.cursors]
            yield from self._commit(ClaimPlan(self.order, self.process.now(), 0, cursors=current), [])

    @property
    def _settling(self) -> int:
        return sum(columns_changed_by(settlement.outcomes) for settlement in self.waiting)

    def _settle_alone(self) -> Steps[None]:
        settlements = [one for one in self.waiting if one.timer.name not in self.claimed.settled]
        self.waiting.clear()
        for settlement in settlements:
            settled = yield from settle(self.process, self.snapshot.row, settlement)
            for worked in settled.done:
                self.snapshot.settled(worked.timer_change)
            self.claimed.settled[settlement.timer.name] = settled

    def _commit(self, picked: ClaimPlan, worked: list[SettlePlan]) -> Steps[bool]:
        """Commit the plan and the settles. If that is refused, the cursors go back to where they were."""
        successors = _successors(self.snapshot, picked)
        claims = _claims(self.process, self.snapshot.row, picked)
        timers = [*(taken.timer for taken in claims), *_put_off(self.process, picked)]
        change = RowTransaction(self.snapshot.row)
        yield from _free_keys(change, picked.along)
        for part in worked:
            part.add_to(change)
        for timer, successor in successors:
            change.replace(timer, successor)
        for timer in timers:
            change.put_timer(timer)
        for name, value in picked.dead.items():
            change.put(name, value)
        change.delete(*picked.consumed, *self.order.unlocks)
        header = self._raised(worked, timers, picked)
        change.raise_header(self.snapshot.value, header)
        if not (yield from self._apply(change, header, (picked, claims, worked))):
            return False
        for timer, successor in successors:
            self.snapshot.replace(timer.name, [successor] if successor else [])
        self.snapshot.raised(header, timers, [name.id for name in picked.dead], at=picked.now)
        self.claimed.lapsed += picked.lapsed(timer for timer, _ in successors)
        self._took(picked, claims, worked)
        return True

    def _raised(self, worked: list[SettlePlan], timers: list[Timer], picked: ClaimPlan) -> Header:
        """The next header. All timers are known here, so its floor may rise to the earliest due after this commit."""
        dues = [timer.due for part in worked for timer in (*part.moved, *part.sooner)] + [timer.due for timer in timers]
        known = self.snapshot.next_due()
        floor = min(dues if known is None else [known, *dues], default=picked.now)
        version = self.snapshot.header.version + 1 if self.snapshot.header else 1
        owner = self.process.name if self.order.leases and (self.order.keeps or picked.room > 0) else ""
        return Header(version, floor, self.process.nonce(), owner, tuple(map(tuple, self.snapshot.scans.cursors)))

    def _apply(
        self, change: RowTransaction, header: Header, made_of: tuple[ClaimPlan, list[Claim], list[SettlePlan]]
    ) -> Steps[bool]:
        """Whether the commit was applied; a refusal shows the current header, an unknown outcome is read back."""
        picked, claims, worked = made_of
        settling = list(zip(self.waiting, worked, strict=True))
        for settlement, part in settling:
            settlement.begin(part)
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown as unknown:
            try:  # if the header does not decide, each settle finds out from its own traces
                return (yield from _read_back(self.snapshot, header, claims))
            except StoreError as error:
                raise unknown from error
        for settlement, part in settling:
            settlement.end(part, applied=isinstance(outcome, Committed))
        return isinstance(outcome, Committed) or self.snapshot.refused(
            outcome.present[HEADER], picked.now, picked.cursors
        )

    def _took(self, picked: ClaimPlan, claims: list[Claim], worked: list[SettlePlan]) -> None:
        for part in worked:
            self.snapshot.settled(part.timer_change)
            self.claimed.settled[part.timer.name] = SettleResult([part])
        self.claimed.unlocked = True
        self.claimed.claims += claims
        self.claimed.at_most_once += picked.at_most_once
        self.claimed.dead += len(picked.dead)
        self.claimed.buried += picked.buried
        self.claimed.undecodable += picked.undecodable


def _elsewhere(settlement: SettleRequest) -> bool:
    """Whether some of these messages have left the timer, so that their present timer must be searched."""
    return not {entry.id for entry in settlement.timer.entries}.issuperset(settlement.outcomes)


def _free_keys(change: RowTransaction, going: Mapping[Id, SettleEffects]) -> Steps[None]:
    """Free the keys that these claimed messages still own, and write their marks: they are deleted or dead-lettered."""
    change.put_all(*[along.mark for along in going.values() if along.mark])
    for column in (yield from owned_keys(change.row, going)):
        change.expect(column.name, column.value)
        change.delete(column.name)


def _successors(snapshot: RowSnapshot, picked: ClaimPlan) -> list[tuple[Timer, Timer | None]]:
    """Each timer that loses messages to this claim, and what remains of it."""
    timers = snapshot.timers or {}
    return [(timers[name], timer_without(timers[name], leaving)) for name, leaving in picked.leaving.items()]


def _claims(process: Client, row: str, picked: ClaimPlan) -> list[Claim]:
    alone = picked.alone
    return [Claim(row, _leased(process, lease, held, alone=alone), held) for (lease, _), held in picked.groups.items()]


def _put_off(process: Client, picked: ClaimPlan) -> list[Timer]:
    return [_hiding(process, until, tuple(entries)) for until, entries in picked.early.items()]


def _hiding(process: Client, until: int, entries: tuple[Entry, ...]) -> Timer:
    name = Name(Type.TIMER, 0, process.id_at(until), State.SNOOZED)
    return encoded(Timer(name, entries, process.nonce(), "", len(entries)))


def _leased(process: Client, lease: int, held: list[ClaimedMessage], *, alone: bool) -> Timer:
    name = Name(Type.TIMER, 0, process.id_at(process.now() + lease), State.LEASED)
    entries = tuple(one.entry for one in held)
    return encoded(Timer(name, entries, process.nonce(), process.name, len(held), alone))


def _read_back(snapshot: RowSnapshot, header: Header, claims: list[Claim]) -> Steps[bool]:
    """Whether a commit was applied: the header is the one it wrote, or a timer that it wrote exists.

    If other processes have committed since and its timers are gone again, it counts as refused: no process has their
    receipts.
    """
    column = yield from read_column(snapshot.row, HEADER, exact=True)
    if column and column.value == header.encode():
        return True
    current = column.value if column else None
    snapshot.forget()
    if current == snapshot.value:
        return False
    for taken in claims:
        found = yield from read_column(snapshot.row, taken.timer.name, exact=True)
        if found:
            return True
    return False
