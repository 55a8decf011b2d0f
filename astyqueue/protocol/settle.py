"""Settling: saying what became of messages that are held.

A settle expects nothing but its own timer, as held. It never touches the row's header, because an owner that claims all
the time would starve it. A message given back *before* its timer is due is the exception: a timer due earlier than all
others must lower the header's floor. If the header is refused, the message is marked in its own timer instead; its receipt
ends with that, and whoever reads the timer may hand it out from the mark's time on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from astyqueue.errors import OutcomeUnknown, Undecodable
from astyqueue.ids import Id
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import (
    HEADER,
    Dead,
    Entry,
    Header,
    Mark,
    State,
    Timer,
    Type,
    dead_name,
    decode_header,
    decode_timer,
    message_name,
)
from astyqueue.protocol.process import Process
from astyqueue.protocol.steps import Steps, read_column, read_one
from astyqueue.store import Committed, Name, Named, Slice


class Ack(NamedTuple):
    """Done: the message goes."""


class Reject(NamedTuple):
    """To the dead letters, with a kind ("rejected", "failed", ...) and a reason for people; `spent` counts this attempt."""

    kind: str
    reason: str
    spent: int


class Release(NamedTuple):
    """Given back, to be handed out from `due` (microseconds) on; `spent` is what its attempts now come to."""

    due: int
    spent: int
    state: State = State.BACKING_OFF


class Extend(NamedTuple):
    """Kept until `until` (microseconds); a lease is never shortened."""

    until: int


Settling = Ack | Reject | Release | Extend
Settlings = Mapping[Id, Settling]
ACK: Final = Ack()

#: Pauses that differ by less than this part of themselves share a timer.
SHARED: Final = 20


@dataclass(slots=True)
class Worked:
    """What these outcomes do to one timer: computed, not yet committed."""

    timer: Timer
    left: Timer | None
    acked: list[Name] = field(default_factory=list)
    dead: dict[Name, bytes] = field(default_factory=dict)
    moved: list[Timer] = field(default_factory=list)
    sooner: list[Timer] = field(default_factory=list)

    def add_to(self, change: Change) -> None:
        """Make it part of a commit; with `sooner` timers, that commit must raise the header."""
        change.replace(self.timer, self.left)
        change.delete(*self.acked)
        for name, value in self.dead.items():
            change.put(name, value)
        for timer in (*self.moved, *self.sooner):
            change.put_timer(timer)

    @property
    def floor(self) -> int | None:
        """The earliest due that it adds before its timer's own."""
        return min((timer.due for timer in self.sooner), default=None)

    @property
    def marked(self) -> set[Mark]:
        """The marks that it adds."""
        return set(self.left.marks if self.left else ()).difference(self.timer.marks)


@dataclass(slots=True)
class Settled:
    """What settling came to: each timer with what took its place, and the ids that were no longer held."""

    done: list[Worked] = field(default_factory=list)
    lost: list[Id] = field(default_factory=list)


def settle(process: Process, row: str, timer: Timer, outcomes: Settlings) -> Steps[Settled]:
    """Carry out these outcomes of held messages; those no longer held come back as lost, and nothing of theirs changes."""
    settled = Settled()
    wanted = dict(outcomes)
    held: Timer | None = timer
    while wanted:
        if held is None:
            held = yield from adopt(row, timer.nonce, wanted, after=timer.name)
        if held is None:
            settled.lost.extend(wanted)
            break
        worked = yield from _commit(process, row, held, wanted)
        held = None
        if worked is not None:
            settled.done.append(worked)
            for entry in worked.timer.entries:
                wanted.pop(entry.id, None)
    return settled


def adopt(row: str, nonce: bytes, wanted: Settlings, *, after: Name) -> Steps[Timer | None]:
    """The timer of this claim, as it is now, that hides one of these messages; a claim's timers only ever move up."""
    columns = yield from read_one(Slice(row, Type.TIMER, 0, after=after.id), exact=True)
    for column in columns:
        try:
            timer = decode_timer(row, column.name, column.value)
        except Undecodable:
            continue
        if timer.nonce == nonce and not _ids_of(timer).isdisjoint(wanted):
            return timer
    return None


def _ids_of(timer: Timer) -> set[Id]:
    return {entry.id for entry in timer.entries}


def _commit(process: Process, row: str, held: Timer, wanted: Settlings) -> Steps[Worked | None]:
    """Commit against this timer; None if it was refused, so that the timer must be looked for again."""
    worked = work_out(process, held, wanted)
    if worked.sooner:
        applied = yield from _commit_sooner(process, row, worked)
        if applied:
            return worked
        worked = work_out(process, held, wanted, marking=True)
    applied = yield from _apply(row, worked, Change(row))
    return worked if applied else None


def _commit_sooner(process: Process, row: str, worked: Worked) -> Steps[bool]:
    """Commit together with the header, once."""
    column = yield from read_column(row, HEADER, exact=True)
    change = Change(row)
    try:
        raise_for(process, change, column.value if column else None, worked.floor)
    except Undecodable:  # that stops claims; what is held can still be marked
        return False
    return (yield from _apply(row, worked, change))


def raise_for(process: Process, change: Change, known: bytes | None, due: int | None) -> Header:
    """Make a change a raised commit on this header, whose floor comes down to `due` if need be; the header it writes."""
    header = decode_header(change.row, known) if known is not None else Header(0, process.now(), b"", process.name, ())
    floor = header.floor if due is None else min(header.floor, due)
    raised = Header(header.version + 1, floor, process.nonce(), header.owner, header.cursors)
    change.raise_header(known, raised)
    return raised


def _apply(row: str, worked: Worked, change: Change) -> Steps[bool]:
    """Commit; an unknown outcome is read back, never repeated blindly."""
    worked.add_to(change)
    while True:
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown:
            column = yield from read_column(row, worked.timer.name, exact=True)
            if column is None or column.value != worked.timer.value:
                return (yield from was_applied(row, worked))
        else:
            return isinstance(outcome, Committed)


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


def work_out(process: Process, timer: Timer, wanted: Settlings, *, marking: bool = False) -> Worked:
    """What these outcomes come to for one timer; ids that it does not list are left out."""
    worked = Worked(timer, None)
    kept: list[Entry] = []
    moves: list[Move] = []
    for entry in timer.entries:
        outcome = wanted.get(entry.id)
        if outcome is None:
            kept.append(entry)
        elif outcome is ACK:
            worked.acked.append(message_name(entry.priority, entry.id))
        elif move := _move(process, worked, entry, outcome):
            moves.append(move)
    sooner = [move for move in moves if move.due <= timer.due]
    marks = timer.marks
    if marking:
        marks += tuple(Mark(*move.entry, move.due) for move in sooner)
    else:
        worked.sooner = _timers(process, timer, sooner)
    worked.moved = _timers(process, timer, [move for move in moves if move.due > timer.due])
    if kept or marks:
        worked.left = with_value(replace(timer, entries=tuple(kept), marks=marks))
    return worked


class Move(NamedTuple):
    """A message on its way to another timer."""

    state: State
    due: int
    entry: Entry


def _move(process: Process, worked: Worked, entry: Entry, outcome: Settling) -> Move | None:
    """Where a message goes that is not acked; a rejected one stays, as a dead letter."""
    match outcome:
        case Reject(kind, reason, spent):
            dead = Dead(process.now(), spent, kind, reason, worked.timer.nonce.hex())
            worked.dead[dead_name(entry.priority, entry.id)] = dead.encode()
        case Release(due, spent, state):
            return Move(state, due, entry._replace(spent=spent))
        case Extend(until):
            return Move(State.LEASED, max(until, worked.timer.due + 1), entry)
        case Ack():
            worked.acked.append(message_name(entry.priority, entry.id))
    return None


def _timers(process: Process, origin: Timer, moves: list[Move]) -> list[Timer]:
    """The timers that these messages go to; pauses that end close together share one, which is due with the last of them."""
    now = process.now()
    groups: list[list[Move]] = []
    for move in sorted(moves):
        first = groups[-1][0] if groups else None
        if first and first.state == move.state and move.due - first.due <= max(0, first.due - now) // SHARED:
            groups[-1].append(move)
        else:
            groups.append([move])
    return [_timer(process, origin, group) for group in groups]


def _timer(process: Process, origin: Timer, group: list[Move]) -> Timer:
    """A timer for these messages. One that is leased goes on under the same claim; otherwise the receipt has ended."""
    state, due, _ = group[-1]
    name = Name(Type.TIMER, 0, process.id_at(due), state)
    entries = tuple(move.entry for move in group)
    if state == State.LEASED:
        return with_value(Timer(name, entries, origin.nonce, origin.holder, origin.made_for, origin.alone))
    return with_value(Timer(name, entries, process.nonce(), "", len(entries)))


def with_value(timer: Timer) -> Timer:
    """The same timer with its value encoded."""
    return replace(timer, value=timer.encode())
