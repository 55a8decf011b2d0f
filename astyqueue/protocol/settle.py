"""Settling: saying what became of messages that are held.

A settle expects nothing but its own timer, as held. It never touches the row's header, because an owner that claims all
the time would starve it. A message given back *before* its timer is due is the exception: a timer due earlier than all
others must lower the header's floor. If the header is refused, the message is marked in its own timer instead; its receipt
ends with that, and whoever reads the timer may hand it out from the mark's time on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from astyqueue.errors import OutcomeUnknown, StoreError, Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, Header, Timer, Type, decode_header, decode_timer
from astyqueue.protocol.outcomes import Settling, Settlings, Worked, work_out
from astyqueue.protocol.process import Process
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.protocol.stretches import Strides, read_in_pages
from astyqueue.store import Committed, Name, Named, Slice

#: Commits of one settle whose outcome stays unknown before that is told.
_TRIES: Final = 5
_TIMERS_A_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcomes of messages that one timer hides.

    `unsure` are commits of this claim whose end was not learned, because the store did not answer or somebody stopped
    listening. Keep the list for as long as the claim: what is tried again may have been done, and is told from its traces.
    """

    timer: Timer
    outcomes: Settlings
    unsure: list[Worked] = field(default_factory=list)

    def begin(self, worked: Worked) -> None:
        """A commit is on its way; an equal one whose end was not learned speaks for both."""
        if worked not in self.unsure:
            self.unsure.append(worked)

    def end(self, worked: Worked, *, applied: bool) -> None:
        """Its end is known. No other commit on the timer as it then was can have been applied, if this one was."""
        self.unsure[:] = [one for one in self.unsure if one is not worked and not (applied and one.timer == worked.timer)]


@dataclass(slots=True)
class Settled:
    """What settling came to: each timer with what took its place, and the ids that were no longer held."""

    done: list[Worked] = field(default_factory=list)
    lost: list[Id] = field(default_factory=list)


def settle(process: Process, row: str, wanted: Settlement) -> Steps[Settled]:
    """Carry out these outcomes of held messages; those no longer held come back as lost, and nothing of theirs changes.

    When the store fails half-way, what was committed until then counts as unsure, so that who tries again is told of it. As long as
    anything is unsure, an error is OutcomeUnknown: any other would say that nothing was changed.
    """
    settled = Settled()
    try:
        yield from _settle(process, row, wanted, into=settled)
    except StoreError as error:
        wanted.unsure.extend(worked for worked in settled.done if worked not in wanted.unsure)
        if not wanted.unsure or isinstance(error, OutcomeUnknown):
            raise
        message = (
            f"row {row}: what became of messages in hand may be recorded or not, for the store did not say whether it did, and failed when "
            f"it was asked ({error}). They are held as before, so settle them again when it answers"
        )
        raise OutcomeUnknown(message) from error
    return settled


def _settle(process: Process, row: str, wanted: Settlement, *, into: Settled) -> Steps[None]:
    outcomes = dict(wanted.outcomes)
    held: Timer | None = wanted.timer
    while held is not None and outcomes:
        worked = yield from _commit(process, row, replace(wanted, timer=held, outcomes=outcomes))
        if worked is not None:
            into.done.append(worked)
            _strike_out(outcomes, [entry.id for entry in worked.timer.entries])
        yield from _find_done(row, outcomes, wanted.unsure, into=into)
        held = (yield from adopt(row, wanted.timer, outcomes)) if outcomes else None
    into.lost.extend(outcomes)


def _strike_out(outcomes: dict[Id, Settling], ids: Iterable[Id]) -> None:
    for id_ in ids:
        outcomes.pop(id_, None)


def _find_done(row: str, outcomes: dict[Id, Settling], unsure: Iterable[Worked], *, into: Settled) -> Steps[None]:
    """Strike out what a commit whose end was not learned has done; if it shows whole, it counts as this settle's."""
    for worked in unsure if outcomes else ():
        kinds = yield from done_by(row, worked)
        done = [id_ for id_, outcome in outcomes.items() if kinds.get(id_) is type(outcome)]
        if done and kinds == worked.kinds:
            into.done.append(worked)
        _strike_out(outcomes, done)


def adopt(row: str, timer: Timer, wanted: Iterable[Id]) -> Steps[Timer | None]:
    """The timer of the same claim, as it is now, that hides one of these messages; a claim's timers only ever move up."""
    columns = yield from read_in_pages(Slice(row, Type.TIMER, 0, after=timer.name.id), _TIMERS_A_PAGE, Strides(), exact=True)
    for column in columns:
        found = _readable(row, column.name, column.value)
        if found and found.nonce == timer.nonce and not {entry.id for entry in found.entries}.isdisjoint(wanted):
            return found
    return None


def _readable(row: str, name: Name, value: bytes) -> Timer | None:
    """A timer, unless it cannot be read: that stops claims of its row, but no settle of another timer."""
    try:
        return decode_timer(row, name, value)
    except Undecodable:
        return None


def _commit(process: Process, row: str, wanted: Settlement) -> Steps[Worked | None]:
    """Commit against this timer; None if it has changed, so that it must be looked for again."""
    worked = work_out(process, wanted.timer, wanted.outcomes)
    if worked.sooner:
        applied = yield from _commit_sooner(process, row, wanted, worked=worked)
        if applied:
            return worked
        worked = work_out(process, wanted.timer, wanted.outcomes, marking=True)
    applied = yield from _apply(wanted, worked, Change(row))
    return worked if applied else None


def _commit_sooner(process: Process, row: str, wanted: Settlement, *, worked: Worked) -> Steps[bool]:
    """Commit together with the header, once."""
    column = yield from read_column(row, HEADER, exact=True)
    change = Change(row)
    try:
        known = column.value if column else None
        header = raise_for(process, change, known, due=worked.floor)
    except Undecodable:  # that stops claims; what is held can still be marked
        return False
    applied = yield from _apply(wanted, worked, change)
    if applied:
        worked.raised = (known, header)
    return applied


def raise_for(process: Process, change: Change, known: bytes | None, *, due: int | None) -> Header:
    """Make a change a raised commit on this header, whose floor comes down to `due` if need be; the header it writes."""
    header = decode_header(change.row, known) if known is not None else Header(0, process.now(), b"", process.name, ())
    floor = header.floor if due is None else min(header.floor, due)
    raised = Header(header.version + 1, floor, process.nonce(), header.owner, header.cursors)
    change.raise_header(known, raised)
    return raised


def _apply(wanted: Settlement, worked: Worked, change: Change) -> Steps[bool]:
    """Whether it was committed; an unknown outcome is read back, never repeated blindly.

    If the timer has changed by then, that is no commit of which anybody knows: its traces will tell. They also do when a
    repetition is refused: what lay in a server that stood still may be carried out after the reading, and before us.
    """
    worked.add_to(change)
    for tried in range(_TRIES):
        applied = yield from _attempt(wanted, worked, change, again=tried > 0)
        if applied is not None:
            return applied
        column = yield from read_column(change.row, worked.timer.name, exact=True)
        if column is None or column.value != worked.timer.value:
            return False
    message = (
        f"row {change.row}: the store was asked {_TRIES} times to record what became of messages in hand, and did not say whether "
        "it did; they are held as before, so settle them again when it answers"
    )
    raise OutcomeUnknown(message)


def _attempt(wanted: Settlement, worked: Worked, change: Change, *, again: bool) -> Steps[bool | None]:
    """Whether a commit was applied; None if the store does not say."""
    wanted.begin(worked)
    try:
        outcome = yield from change.commit()
    except OutcomeUnknown:
        return None
    except StoreError:
        if not again:
            wanted.end(worked, applied=False)
        raise
    applied = isinstance(outcome, Committed)
    if applied or not again:
        wanted.end(worked, applied=applied)
    return applied


def done_by(row: str, worked: Worked) -> Steps[dict[Id, type[Settling]]]:
    """What a commit has done of which only the store knows whether it was applied: its traces are there, each by itself.

    A timer that is gone proves nothing, for its messages may have been claimed again. Dead letters that carry this claim,
    timers with names drawn at random, and marks in the timer as it stands do; and so do messages that are gone, unless one
    is still there that the same commit would have deleted: what was deleted never comes back.
    """
    moved = {timer.name: timer for timer in (*worked.moved, *worked.sooner)}
    found = yield from read_one(Named(row, (worked.timer.name, *worked.acked, *worked.dead, *moved)), exact=True)
    values = {column.name: column.value for column in found}
    if not values.keys().isdisjoint(worked.acked):
        return {}
    there = {entry.id for name, timer in moved.items() if name in values for entry in timer.entries}
    there.update(name.id for name in worked.acked)
    there.update(name.id for name, value in worked.dead.items() if values.get(name) == value)
    standing = values.get(worked.timer.name)
    if worked.marked and standing is not None and (timer := _readable(row, worked.timer.name, standing)):
        there.update(mark.id for mark in worked.marked.intersection(timer.marks))
    return {id_: kind for id_, kind in worked.kinds.items() if id_ in there}
