"""What may become of a held message, and what that comes to for the timer that hides it: pure arithmetic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.protocol.along import NOTHING, Along
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import Dead, Entry, Header, Mark, State, Timer, Type, dead_name, message_name
from astyqueue.protocol.process import Process
from astyqueue.store import Name, Put


class Ack(NamedTuple):
    """Done: the message goes, and what goes along with it."""

    along: Along = NOTHING


class Reject(NamedTuple):
    """To the dead letters, with a kind ("rejected", "failed", ...) and a reason for people; `spent` counts this attempt.

    A dead letter has no unique key any more: somebody may send anew what failed.
    """

    kind: str
    reason: str
    spent: int
    along: Along = NOTHING


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


def columns_of(wanted: Settlings) -> int:
    """How many columns these outcomes change, but for timers: one a message, and what goes along with it."""
    others = (outcome for outcome in wanted.values() if outcome is not ACK)
    return len(wanted) + sum(2 - outcome.along.count(None) for outcome in others if isinstance(outcome, Ack | Reject))


#: Pauses that differ by less than this part of themselves share a timer.
SHARED: Final = 20


@dataclass(slots=True)
class Worked:
    """What these outcomes do to one timer: computed, not yet committed.

    `raised`: the header that was known and the one that took its place, once it was committed together with them.
    """

    timer: Timer
    left: Timer | None
    acked: list[Name] = field(default_factory=list)
    dead: dict[Name, bytes] = field(default_factory=dict)
    moved: list[Timer] = field(default_factory=list)
    sooner: list[Timer] = field(default_factory=list)
    freed: list[Name] = field(default_factory=list)
    remembered: list[Put] = field(default_factory=list)
    raised: tuple[bytes | None, Header] | None = field(default=None, compare=False)

    def add_to(self, change: Change) -> None:
        """Make it part of a commit; with `sooner` timers, that commit must raise the header."""
        change.replace(self.timer, self.left)
        change.delete(*self.acked, *self.freed)
        change.put_all(*self.remembered)
        for name, value in self.dead.items():
            change.put(name, value)
        for timer in (*self.moved, *self.sooner):
            change.put_timer(timer)

    def ack(self, entry: Entry, along: Along) -> None:
        """The message goes for good."""
        self.acked.append(message_name(entry.priority, entry.id))
        if along.frees is not None:
            self.freed.append(along.frees)
        if along.mark is not None:
            self.remembered.append(along.mark)

    def reject(self, entry: Entry, dead: Dead, along: Along) -> None:
        """The message stays as a dead letter; that it is there is mark enough for a repeatable send."""
        self.dead[dead_name(entry.priority, entry.id)] = dead.encode()
        if along.frees is not None:
            self.freed.append(along.frees)

    @property
    def floor(self) -> int | None:
        """The earliest due that it adds before its timer's own."""
        return min((timer.due for timer in self.sooner), default=None)

    @property
    def marked(self) -> set[Mark]:
        """The marks that it adds."""
        return set(self.left.marks if self.left else ()).difference(self.timer.marks)

    @property
    def kinds(self) -> dict[Id, type[Settling]]:
        """What it does, message by message; what it leaves under its timer is not among them."""
        kinds: dict[Id, type[Settling]] = {name.id: Ack for name in self.acked}
        kinds.update((name.id, Reject) for name in self.dead)
        kinds.update((mark.id, Release) for mark in self.marked)
        for timer in (*self.moved, *self.sooner):
            kinds.update((entry.id, Extend if timer.state == State.LEASED else Release) for entry in timer.entries)
        return kinds


def work_out(process: Process, timer: Timer, wanted: Settlings, *, marking: bool = False) -> Worked:
    """What these outcomes come to for one timer; ids that it does not list are left out."""
    worked = Worked(timer, None)
    if not timer.marks and len(wanted) == len(timer.entries) and all(wanted.get(entry.id) is ACK for entry in timer.entries):
        worked.acked = [message_name(entry.priority, entry.id) for entry in timer.entries]
        return worked
    kept: list[Entry] = []
    moves: list[Move] = []
    for entry in timer.entries:
        outcome = wanted.get(entry.id)
        if outcome is None:
            kept.append(entry)
        elif isinstance(outcome, Ack):
            worked.ack(entry, outcome.along)
        elif move := _move(worked, entry, outcome, now=process.now()):
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


def _move(worked: Worked, entry: Entry, outcome: Settling, *, now: int) -> Move | None:
    """Where a message goes that is not acked; a rejected one stays, as a dead letter."""
    match outcome:
        case Reject(kind, reason, spent, along):
            worked.reject(entry, Dead(now, spent, kind, reason, worked.timer.nonce.hex()), along)
        case Release(due, spent, state):
            return Move(state, due, entry._replace(spent=spent))
        case Extend(until):
            return Move(State.LEASED, max(until, worked.timer.due + 1), entry)
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
