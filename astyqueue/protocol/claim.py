"""Claiming: taking messages under a lease, in one commit that only the row's present state lets through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.protocol.along import Along, owned
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, Entry, Header, State, Timer, Type
from astyqueue.protocol.look import look
from astyqueue.protocol.outcomes import Worked, columns_of, with_value, work_out
from astyqueue.protocol.picking import Buried, Held, Lapsed, Order, Picked
from astyqueue.protocol.process import Process
from astyqueue.protocol.settle import Settled, Settlement, settle
from astyqueue.protocol.sight import WORTH_STORING, Sight
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.store import Committed, Name

#: Messages settled or buried in one commit beside a claim; a settle of more goes alone, first.
_CHANGES: Final = 250
#: Refusals in a row after which a claim leaves the row to others for now.
_TRIES: Final = 3


@dataclass(slots=True)
class Claim:
    """A timer of ours and the messages it hides; the right to settle them."""

    row: str
    timer: Timer
    held: list[Held]


@dataclass(slots=True)
class Claimed:
    """What a claim brought. `suspect`: something waits for a process with empty hands; `more`: the row had more to give.

    `unlocked`: the columns of the lock it was taken under are gone.
    """

    claims: list[Claim] = field(default_factory=list)
    at_most_once: list[Held] = field(default_factory=list)
    settled: dict[Name, Settled] = field(default_factory=dict)
    dead: int = 0
    buried: list[Buried] = field(default_factory=list)
    lapsed: list[Lapsed] = field(default_factory=list)
    undecodable: int = 0
    refused: int = 0
    more: bool = False
    suspect: bool = False
    unlocked: bool = False


def claim(
    process: Process, sight: Sight, order: Order, *, settling: Sequence[Settlement] = (), into: Claimed | None = None
) -> Steps[Claimed]:
    """Take up to `order.want` messages of a row that are due, and settle others of it in the same commit if that goes through.

    Settles never wait for a claim: when the commit is refused, they go at once alone. Whatever stops these steps half-way
    leaves the sight forgotten, not wrong, and what was settled until then noted in `into`.
    """
    claiming = _Claiming(process, sight, order, list(settling), into or Claimed())
    try:
        yield from claiming.carry_out()
    except BaseException as error:
        sight.forget()
        if isinstance(error, StoreError):
            sight.sizes.forget()
        raise
    return claiming.claimed


@dataclass(slots=True)
class _Claiming:
    """One claim, with the settles that may go with it."""

    process: Process
    sight: Sight
    order: Order
    waiting: list[Settlement]
    claimed: Claimed

    def carry_out(self) -> Steps[None]:
        """Look and commit, a few times if others come first."""
        if self._settling > _CHANGES or any(map(_elsewhere, self.waiting)):
            yield from self._settle_alone()
        for _ in range(_TRIES):
            names = {settlement.timer.name for settlement in self.waiting}
            picked = yield from look(self.process.now(), self.sight, self.order, settling=names, burials=_CHANGES - self._settling)
            self.claimed.more, self.claimed.suspect = picked.more, picked.suspect
            worked = [work_out(self.process, settlement.timer, settlement.outcomes) for settlement in self.waiting]
            if not picked.anything and not any(part.sooner for part in worked):
                break
            if (yield from self._commit(picked, worked)):
                return
            self.claimed.refused += 1
            yield from self._settle_alone()
            if self.order.yields:
                break
        yield from self._settle_alone()
        if self.sight.passed >= WORTH_STORING and self.sight.timers is not None:  # a floor may rise only where all timers are known
            standing = [list(cursors) for cursors in self.sight.looks.cursors]
            yield from self._commit(Picked(self.order, self.process.now(), 0, cursors=standing), [])

    @property
    def _settling(self) -> int:
        return sum(columns_of(settlement.outcomes) for settlement in self.waiting)

    def _settle_alone(self) -> Steps[None]:
        """Settle what waits, each timer by itself, without the header."""
        settlements = [one for one in self.waiting if one.timer.name not in self.claimed.settled]
        self.waiting.clear()
        for settlement in settlements:
            settled = yield from settle(self.process, self.sight.row, settlement)
            for worked in settled.done:
                self.sight.settled(worked)
            self.claimed.settled[settlement.timer.name] = settled

    def _commit(self, picked: Picked, worked: list[Worked]) -> Steps[bool]:
        """Commit what was picked and worked out. If it is refused, the looks count as not taken."""
        successors = _successors(self.sight, picked)
        claims = _claims(self.process, self.sight.row, picked)
        timers = [*(taken.timer for taken in claims), *_put_off(self.process, picked)]
        change = Change(self.sight.row)
        yield from _let_go_along(change, picked.along)
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
        change.raise_header(self.sight.value, header)
        if not (yield from self._apply(change, header, (picked, claims, worked))):
            return False
        for timer, successor in successors:
            self.sight.replace(timer.name, [successor] if successor else [])
        self.sight.raised(header, timers, [name.id for name in picked.dead], at=picked.now)
        self.claimed.lapsed += picked.lapsed(timer for timer, _ in successors)
        self._took(picked, claims, worked)
        return True

    def _raised(self, worked: list[Worked], timers: list[Timer], picked: Picked) -> Header:
        """The next header. All timers are known here, so its floor may rise: to the earliest due there will be."""
        dues = [timer.due for part in worked for timer in (*part.moved, *part.sooner)] + [timer.due for timer in timers]
        known = self.sight.next_due()
        floor = min(dues if known is None else [known, *dues], default=picked.now)
        version = self.sight.header.version + 1 if self.sight.header else 1
        owner = self.process.name if self.order.leases and (self.order.keeps or picked.room > 0) else ""
        return Header(version, floor, self.process.nonce(), owner, tuple(map(tuple, self.sight.looks.cursors)))

    def _apply(self, change: Change, header: Header, made_of: tuple[Picked, list[Claim], list[Worked]]) -> Steps[bool]:
        """Whether the commit was applied; a refusal shows the header that stands, an unknown outcome is read back."""
        picked, claims, worked = made_of
        settling = list(zip(self.waiting, worked, strict=True))
        for settlement, part in settling:
            settlement.begin(part)
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown as unknown:
            try:  # if it shows nothing, each settle is told from its traces
                return (yield from _read_back(self.sight, header, claims))
            except StoreError as error:
                raise unknown from error
        for settlement, part in settling:
            settlement.end(part, applied=isinstance(outcome, Committed))
        return isinstance(outcome, Committed) or self.sight.refused(outcome.present[HEADER], picked.now, picked.cursors)

    def _took(self, picked: Picked, claims: list[Claim], worked: list[Worked]) -> None:
        """Note what a commit brought."""
        for part in worked:
            self.sight.settled(part)
            self.claimed.settled[part.timer.name] = Settled([part])
        self.claimed.unlocked = True
        self.claimed.claims += claims
        self.claimed.at_most_once += picked.at_most_once
        self.claimed.dead += len(picked.dead)
        self.claimed.buried += picked.buried
        self.claimed.undecodable += picked.undecodable


def _elsewhere(settlement: Settlement) -> bool:
    """Whether some of these messages are not under the timer any more, so that they must be looked for: others may have them."""
    return not {entry.id for entry in settlement.timer.entries}.issuperset(settlement.outcomes)


def _let_go_along(change: Change, going: Mapping[Id, Along]) -> Steps[None]:
    """Free the keys of messages that go or die as they are claimed, if those still have them, and leave their marks."""
    change.put_all(*[along.mark for along in going.values() if along.mark])
    for column in (yield from owned(change.row, going)):
        change.expect(column.name, column.value)
        change.delete(column.name)


def _successors(sight: Sight, picked: Picked) -> list[tuple[Timer, Timer | None]]:
    """Each timer that loses messages to this claim, and what is left of it."""
    timers = sight.timers or {}
    return [(timers[name], without(timers[name], leaving)) for name, leaving in picked.leaving.items()]


def without(timer: Timer, leaving: set[Id]) -> Timer | None:
    """What is left of a timer, in place, when these messages leave it."""
    entries = tuple(entry for entry in timer.entries if entry.id not in leaving)
    marks = tuple(mark for mark in timer.marks if mark.id not in leaving)
    return with_value(replace(timer, entries=entries, marks=marks)) if entries or marks else None


def _claims(process: Process, row: str, picked: Picked) -> list[Claim]:
    """A timer for each group of messages that share one."""
    alone = picked.alone
    return [Claim(row, _leased(process, lease, held, alone=alone), held) for (lease, _), held in picked.groups.items()]


def _put_off(process: Process, picked: Picked) -> list[Timer]:
    """The timers that hide messages which may not be claimed yet."""
    return [_hiding(process, until, tuple(entries)) for until, entries in picked.early.items()]


def _hiding(process: Process, until: int, entries: tuple[Entry, ...]) -> Timer:
    name = Name(Type.TIMER, 0, process.id_at(until), State.SNOOZED)
    return with_value(Timer(name, entries, process.nonce(), "", len(entries)))


def _leased(process: Process, lease: int, held: list[Held], *, alone: bool) -> Timer:
    name = Name(Type.TIMER, 0, process.id_at(process.now() + lease), State.LEASED)
    entries = tuple(one.entry for one in held)
    return with_value(Timer(name, entries, process.nonce(), process.name, len(held), alone))


def _read_back(sight: Sight, header: Header, claims: list[Claim]) -> Steps[bool]:
    """Find out whether a commit was applied: our nonce is in the header, or later our own timer is there.

    When others have gone on from our commit and its claims are gone again, it counts as refused: they are nobody's receipts.
    """
    column = yield from read_column(sight.row, HEADER, exact=True)
    if column and column.value == header.encode():
        return True
    standing = column.value if column else None
    sight.forget()
    if standing == sight.value:
        return False
    for taken in claims:
        found = yield from read_column(sight.row, taken.timer.name, exact=True)
        if found:
            return True
    return False
