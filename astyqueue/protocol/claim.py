"""Claiming: taking messages under a lease, in one commit that only the row's present state lets through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from astyqueue.errors import OutcomeUnknown
from astyqueue.ids import Id
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, Header, State, Timer, Type
from astyqueue.protocol.look import look
from astyqueue.protocol.picking import Held, Order, Picked
from astyqueue.protocol.process import Process
from astyqueue.protocol.settle import Settled, Settlings, Worked, settle, was_applied, with_value, work_out
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Steps, read_column
from astyqueue.store import Committed, Name

#: Settled messages in one commit beside a claim; more of them go alone, first.
_CHANGES: Final = 250
#: A look that passed so many ids without a claim is stored, so that no other process need walk them again.
_WORTH_STORING: Final = 1_000
#: Refusals in a row after which a claim leaves the row to others for now.
_TRIES: Final = 3


@dataclass(slots=True)
class Claim:
    """A timer of ours and the messages it hides; the right to settle them."""

    row: str
    timer: Timer
    held: list[Held]


class Settlement(NamedTuple):
    """Outcomes of messages that one timer hides."""

    timer: Timer
    outcomes: Settlings


@dataclass(slots=True)
class Claimed:
    """What a claim brought. `suspect`: something waits for a process with empty hands; `more`: the row had more to give."""

    claims: list[Claim] = field(default_factory=list)
    at_most_once: list[Held] = field(default_factory=list)
    settled: dict[Name, Settled] = field(default_factory=dict)
    dead: int = 0
    refused: int = 0
    more: bool = False
    suspect: bool = False


def claim(process: Process, sight: Sight, order: Order, *, settling: Sequence[Settlement] = ()) -> Steps[Claimed]:
    """Take up to `order.want` messages of a row that are due, and settle others of it in the same commit if that goes through.

    Settles never wait for a claim: when the commit is refused, they go at once alone. Whatever stops these steps half-way
    leaves the sight forgotten, not wrong.
    """
    claimed = Claimed()
    try:
        yield from _claim(process, sight, order, (list(settling), claimed))
    except BaseException:
        sight.forget()
        raise
    return claimed


def _claim(process: Process, sight: Sight, order: Order, bringing: tuple[list[Settlement], Claimed]) -> Steps[None]:
    waiting, claimed = bringing
    if sum(len(settlement.outcomes) for settlement in waiting) > _CHANGES:
        yield from _settle_alone(process, sight, waiting, claimed)
    for _ in range(_TRIES):
        picked = yield from look(process.now(), sight, order, {settlement.timer.name for settlement in waiting})
        claimed.more, claimed.suspect = picked.more, picked.suspect
        worked = [work_out(process, settlement.timer, settlement.outcomes) for settlement in waiting]
        if not picked.anything and not any(part.sooner for part in worked):
            break
        if (yield from _commit(process, sight, picked, (worked, claimed))):
            return
        claimed.refused += 1
        yield from _settle_alone(process, sight, waiting, claimed)
    yield from _settle_alone(process, sight, waiting, claimed)
    if sight.passed > _WORTH_STORING and sight.timers is not None:  # a floor may rise only where all timers are known
        yield from _commit(process, sight, Picked(order, process.now(), 0), ([], claimed))


def _settle_alone(process: Process, sight: Sight, waiting: list[Settlement], claimed: Claimed) -> Steps[None]:
    while waiting:
        settlement = waiting.pop()
        if settlement.timer.name in claimed.settled:
            continue
        settled = yield from settle(process, sight.row, settlement.timer, settlement.outcomes)
        for worked in settled.done:
            sight.settled(worked)
        claimed.settled[settlement.timer.name] = settled


def _commit(process: Process, sight: Sight, picked: Picked, bringing: tuple[list[Worked], Claimed]) -> Steps[bool]:
    """Commit what was picked and worked out. If it is refused, the looks count as not taken."""
    worked, claimed = bringing
    change = Change(sight.row)
    for part in worked:
        part.add_to(change)
    successors = _successors(sight, picked)
    for timer, successor in successors:
        change.replace(timer, successor)
    claims = _claims(process, sight.row, picked)
    for taken in claims:
        change.put_timer(taken.timer)
    for name, value in picked.dead.items():
        change.put(name, value)
    change.delete(*picked.consumed)
    dues = [timer.due for part in worked for timer in (*part.moved, *part.sooner)] + [taken.timer.due for taken in claims]
    header = _raised(process, sight, picked.now, dues)
    change.raise_header(sight.value, header)
    try:
        outcome = yield from change.commit()
    except OutcomeUnknown:
        applied = (yield from _read_back(sight, header, claims)) or (yield from _find_settled(sight, worked, claimed))
    else:
        applied = isinstance(outcome, Committed) or sight.refused(outcome.present[HEADER], picked.now, picked.cursors)
    if not applied:
        return False
    for timer, successor in successors:
        sight.replace(timer.name, [successor] if successor else [])
    sight.raised(header, [taken.timer for taken in claims], [name.id for name in picked.dead], at=picked.now)
    for part in worked:
        sight.settled(part)
        claimed.settled[part.timer.name] = Settled([part])
    claimed.claims += claims
    claimed.at_most_once += picked.at_most_once
    claimed.dead += len(picked.dead)
    return True


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


def _leased(process: Process, lease: int, held: list[Held], *, alone: bool) -> Timer:
    name = Name(Type.TIMER, 0, process.id_at(process.now() + lease), State.LEASED)
    entries = tuple(one.entry for one in held)
    return with_value(Timer(name, entries, process.nonce(), process.name, len(held), alone))


def _raised(process: Process, sight: Sight, now: int, dues: list[int]) -> Header:
    """The next header. All timers are known here, so its floor may rise: to the earliest due there will be."""
    known = sight.next_due()
    floor = min(dues if known is None else [known, *dues], default=now)
    version = sight.header.version + 1 if sight.header else 1
    return Header(version, floor, process.nonce(), process.name, tuple(map(tuple, sight.cursors)))


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


def _find_settled(sight: Sight, worked: list[Worked], claimed: Claimed) -> Steps[bool]:
    """Note the settles that left their traces, each by itself: a message may be gone by another holder's doing. Always False."""
    for part in worked:
        if (yield from was_applied(sight.row, part)):
            claimed.settled[part.timer.name] = Settled([part])
    return False
