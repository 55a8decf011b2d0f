"""Settling: saying what became of messages that are held.

A settle expects nothing but its own timer, as held. It never touches the row's header, because an owner that claims all
the time would starve it. A message given back *before* its timer is due is the exception: a timer due earlier than all
others must lower the header's floor. If the header is refused, the message is marked in its own timer instead; its receipt
ends with that, and whoever reads the timer may hand it out from the mark's time on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from astyqueue.errors import OutcomeUnknown, Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, Header, Timer, Type, decode_header, decode_timer
from astyqueue.protocol.outcomes import Settling, Settlings, Worked, work_out
from astyqueue.protocol.process import Process
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.store import Committed, Name, Named, Slice


class Settlement(NamedTuple):
    """Outcomes of messages that one timer hides."""

    timer: Timer
    outcomes: Settlings


@dataclass(slots=True)
class Settled:
    """What settling came to: each timer with what took its place, and the ids that were no longer held."""

    done: list[Worked] = field(default_factory=list)
    lost: list[Id] = field(default_factory=list)


def settle(process: Process, row: str, wanted: Settlement) -> Steps[Settled]:
    """Carry out these outcomes of held messages; those no longer held come back as lost, and nothing of theirs changes."""
    settled = Settled()
    timer, outcomes = wanted.timer, dict(wanted.outcomes)
    held: Timer | None = timer
    while held is not None and outcomes:
        worked = yield from _commit(process, row, Settlement(held, outcomes))
        if worked is not None:
            settled.done.append(worked)
            _strike_out(outcomes, worked.timer)
        held = (yield from adopt(row, timer, outcomes)) if outcomes else None
    settled.lost.extend(outcomes)
    return settled


def _strike_out(outcomes: dict[Id, Settling], timer: Timer) -> None:
    for entry in timer.entries:
        outcomes.pop(entry.id, None)


def adopt(row: str, timer: Timer, wanted: Iterable[Id]) -> Steps[Timer | None]:
    """The timer of the same claim, as it is now, that hides one of these messages; a claim's timers only ever move up."""
    columns = yield from read_one(Slice(row, Type.TIMER, 0, after=timer.name.id), exact=True)
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
    """Commit against this timer; None if it was refused, so that the timer must be looked for again."""
    worked = work_out(process, wanted.timer, wanted.outcomes)
    if worked.sooner:
        applied = yield from _commit_sooner(process, row, worked)
        if applied:
            return worked
        worked = work_out(process, wanted.timer, wanted.outcomes, marking=True)
    applied = yield from _apply(worked, Change(row))
    return worked if applied else None


def _commit_sooner(process: Process, row: str, worked: Worked) -> Steps[bool]:
    """Commit together with the header, once."""
    column = yield from read_column(row, HEADER, exact=True)
    change = Change(row)
    try:
        raise_for(process, change, column.value if column else None, due=worked.floor)
    except Undecodable:  # that stops claims; what is held can still be marked
        return False
    return (yield from _apply(worked, change))


def raise_for(process: Process, change: Change, known: bytes | None, *, due: int | None) -> Header:
    """Make a change a raised commit on this header, whose floor comes down to `due` if need be; the header it writes."""
    header = decode_header(change.row, known) if known is not None else Header(0, process.now(), b"", process.name, ())
    floor = header.floor if due is None else min(header.floor, due)
    raised = Header(header.version + 1, floor, process.nonce(), header.owner, header.cursors)
    change.raise_header(known, raised)
    return raised


def _apply(worked: Worked, change: Change) -> Steps[bool]:
    """Commit; an unknown outcome is read back, never repeated blindly."""
    worked.add_to(change)
    while True:
        try:
            outcome = yield from change.commit()
            return isinstance(outcome, Committed)
        except OutcomeUnknown:
            column = yield from read_column(change.row, worked.timer.name, exact=True)
        if column is None or column.value != worked.timer.value:
            return (yield from was_applied(change.row, worked))


def was_applied(row: str, worked: Worked) -> Steps[bool]:
    """Whether a settle whose timer has changed since was the one that changed it: its traces are there.

    A timer that is gone proves nothing, for its messages may have been claimed again. Messages that are gone, dead
    letters that carry this claim, timers with names drawn at random, and marks in the timer as it stands do.
    """
    expected = dict(worked.dead) | {timer.name: timer.value for timer in (*worked.moved, *worked.sooner)}
    found = yield from read_one(Named(row, (worked.timer.name, *worked.acked, *expected)), exact=True)
    values = {column.name: column.value for column in found}
    standing = values.pop(worked.timer.name, None)
    if values != expected or not worked.marked:
        return values == expected
    return standing is not None and worked.marked <= set(decode_timer(row, worked.timer.name, standing).marks)
