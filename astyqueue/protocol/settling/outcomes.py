"""Outcomes of leased messages, and the changes they make to the timer that hides them; no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple

from astyqueue.ids import Id
from astyqueue.protocol.layout.columns import (
    Dead,
    Entry,
    Header,
    Mark,
    State,
    Timer,
    Type,
    dead_name,
    encoded,
    message_name,
)
from astyqueue.protocol.layout.unique_key import NOTHING, SettleEffects
from astyqueue.protocol.row.header_commit import RowTransaction
from astyqueue.protocol.row.timer_index import TimerChange
from astyqueue.protocol.steps import Client
from astyqueue.store import Name, Put


class Ack(NamedTuple):
    """Done: the message is deleted, with the columns that belong to it, and its follow-ups in the same row are sent."""

    effects: SettleEffects = NOTHING
    follow_ups: tuple[Put, ...] = ()


class Reject(NamedTuple):
    """Dead-lettered, with a kind ("rejected", "failed", ...) and a readable reason; `spent` includes this attempt.

    A dead letter has no unique key: a producer may send the message again.
    """

    kind: str
    reason: str
    spent: int
    effects: SettleEffects = NOTHING


class Release(NamedTuple):
    """Given back, to be delivered from `due` (microseconds) on; `spent` is the number of attempts so far."""

    due: int
    spent: int
    state: State = State.BACKING_OFF


class Extend(NamedTuple):
    """The lease is extended until `until` (microseconds); it is never shortened."""

    until: int


Outcome = Ack | Reject | Release | Extend
Outcomes = Mapping[Id, Outcome]
ACK: Final = Ack()


def columns_changed_by(wanted: Outcomes) -> int:
    """The number of columns that these outcomes change: one per message, its key and mark, and its follow-ups.

    Timers do not count, so an extension changes none. A large follow-up counts as several columns.
    """
    changing = [outcome for outcome in wanted.values() if not isinstance(outcome, Extend)]
    others = [outcome for outcome in changing if outcome is not ACK and isinstance(outcome, Ack | Reject)]
    follow_ups = sum(weight_of(outcome.follow_ups) for outcome in others if isinstance(outcome, Ack))
    return len(changing) + sum(2 - outcome.effects.count(None) for outcome in others) + follow_ups


#: Columns of follow-ups in one commit, where a column counts once more for each `_HEAVY` bytes: 500 KiB in all. A
#: larger follow-up is committed alone.
_FOLLOW_UPS: Final = 250
_HEAVY: Final = 2_048


def weight_of(follow_ups: Iterable[Put]) -> int:
    """How many columns these follow-ups stand for in a commit; a large one stands for several."""
    return sum(1 + len(put.value) // _HEAVY for put in follow_ups)


#: Pauses that differ by less than 1/SHARED of their length share a timer.
SHARED: Final = 20


@dataclass(slots=True)
class SettlePlan:
    """The changes that outcomes make to one timer: computed, not yet committed.

    `left`: the timer that remains. `dropped`: superseded messages that were given back, and are deleted instead.
    `written`: marks of settled messages, and follow-ups. `header_change`: after a header commit, the header before it
    and the one it wrote.
    """

    timer: Timer
    left: Timer | None
    acked: list[Name] = field(default_factory=list)
    dropped: list[Name] = field(default_factory=list)
    dead: dict[Name, bytes] = field(default_factory=dict)
    moved: list[Timer] = field(default_factory=list)
    sooner: list[Timer] = field(default_factory=list)
    freed: list[Name] = field(default_factory=list)
    written: list[Put] = field(default_factory=list)
    header_change: tuple[bytes | None, Header] | None = field(default=None, compare=False)

    def add_to(self, change: RowTransaction) -> None:
        """Add it to a transaction; with `sooner` timers, that must be a header commit."""
        change.replace(self.timer, self.left)
        change.delete(*self.acked, *self.dropped, *self.freed)
        change.put_all(*self.written)
        for name, value in self.dead.items():
            change.put(name, value)
        for timer in (*self.moved, *self.sooner):
            change.put_timer(timer)

    def ack(self, entry: Entry, outcome: Ack) -> None:
        """Delete the message and send its follow-ups; free its key and write its mark, if it has them."""
        self.acked.append(message_name(entry.priority, entry.id))
        if outcome.effects.frees is not None and not entry.superseded:
            self.freed.append(outcome.effects.frees)
        if outcome.effects.mark is not None:
            self.written.append(outcome.effects.mark)
        self.written.extend(outcome.follow_ups)

    def reject(self, entry: Entry, dead: Dead, effects: SettleEffects) -> None:
        """Dead-letter the message and free its key. It needs no mark: an idempotent send finds the message itself."""
        self.dead[dead_name(entry.priority, entry.id)] = dead.encode()
        if effects.frees is not None and not entry.superseded:
            self.freed.append(effects.frees)

    @property
    def floor(self) -> int | None:
        """The earliest due time of the timers that are due before its own; None if there are none."""
        return min((timer.due for timer in self.sooner), default=None)

    @property
    def timer_change(self) -> TimerChange:
        """The same change, for the snapshot of the row."""
        successors = *filter(None, [self.left]), *self.moved, *self.sooner
        return TimerChange(self.timer, successors, tuple(name.id for name in self.dead), self.header_change)

    @property
    def decided(self) -> list[Id]:
        """The messages of the timer that have an outcome in this plan."""
        kept = {entry.id for entry in self.left.entries} if self.left else frozenset[Id]()
        return [entry.id for entry in self.timer.entries if entry.id not in kept]

    @property
    def marked(self) -> set[Mark]:
        """The marks that it adds."""
        return set(self.left.marks if self.left else ()).difference(self.timer.marks)

    @property
    def kinds(self) -> dict[Id, type[Outcome]]:
        """The outcome of each message that leaves the timer or gets a mark in it."""
        kinds: dict[Id, type[Outcome]] = {name.id: Ack for name in self.acked}
        kinds.update((name.id, Reject) for name in self.dead)
        kinds.update((name.id, Release) for name in self.dropped)
        kinds.update((mark.id, Release) for mark in self.marked)
        for timer in (*self.moved, *self.sooner):
            kinds.update((entry.id, Extend if timer.state == State.LEASED else Release) for entry in timer.entries)
        return kinds

    @property
    def leased_until(self) -> dict[Id, int]:
        """When the leases that it extends end, by message."""
        return {entry.id: timer.due for timer in self.moved if timer.state == State.LEASED for entry in timer.entries}


def plan_settle(process: Client, timer: Timer, wanted: Outcomes, *, marking: bool = False) -> SettlePlan:
    """Plan these outcomes for one timer; ids that it does not list are ignored.

    Acks whose follow-ups do not fit into one commit are left for the next. With `marking`, messages due before the
    timer get a mark in it instead of a timer of their own.
    """
    settle_plan = SettlePlan(timer, None)
    others = [entry for entry in timer.entries if wanted.get(entry.id) is not ACK]
    if not others and not timer.marks and len(wanted) == len(timer.entries):
        settle_plan.acked = [message_name(entry.priority, entry.id) for entry in timer.entries]
        return settle_plan
    kept: list[Entry] = []
    least = timer.due + 1
    extended: dict[int, list[Entry]] = {}
    released: list[Move] = []
    wanted = _without_excess(timer, wanted)
    for entry in timer.entries:
        outcome = wanted.get(entry.id)
        if outcome is None:
            kept.append(entry)
        elif isinstance(outcome, Extend):
            extended.setdefault(max(outcome.until, least), []).append(entry)
        elif isinstance(outcome, Ack):
            settle_plan.ack(entry, outcome)
        elif isinstance(outcome, Reject):
            dead = Dead(process.now(), outcome.spent, outcome.kind, outcome.reason, timer.nonce.hex())
            settle_plan.reject(entry, dead, outcome.effects)
        elif entry.superseded:
            settle_plan.dropped.append(message_name(entry.priority, entry.id))
        else:
            released.append(Move(outcome.state, outcome.due, (entry._replace(spent=outcome.spent),)))
    sooner = [move for move in released if move.due < least]
    later = [move for move in released if move.due >= least]
    later += [Move(State.LEASED, due, tuple(sorted(entries))) for due, entries in extended.items()]
    marks = timer.marks
    if marking:
        marks += tuple(chain.from_iterable(map(_marks, sooner)))
    else:
        settle_plan.sooner = _timers(process, timer, sooner)
    settle_plan.moved = _timers(process, timer, later)
    if kept or marks:
        settle_plan.left = encoded(replace(timer, entries=tuple(kept), marks=marks))
    return settle_plan


def _without_excess(timer: Timer, wanted: Outcomes) -> Outcomes:
    """These outcomes without the acks whose follow-ups do not fit into one commit; the first always fits."""
    room, excess = _FOLLOW_UPS, set[Id]()
    for entry in timer.entries:
        outcome = wanted.get(entry.id)
        if not isinstance(outcome, Ack) or not outcome.follow_ups:
            continue
        weight = weight_of(outcome.follow_ups)
        if weight > room and room < _FOLLOW_UPS:
            excess.add(entry.id)
        else:
            room -= weight
    return {id_: outcome for id_, outcome in wanted.items() if id_ not in excess} if excess else wanted


class Move(NamedTuple):
    """Messages that move to another timer."""

    state: State
    due: int
    entries: tuple[Entry, ...]


def _marks(move: Move) -> list[Mark]:
    return [Mark(entry.id, entry.priority, entry.spent, move.due, entry.group) for entry in move.entries]


def _timers(process: Client, origin: Timer, moves: list[Move]) -> list[Timer]:
    """The timers that these messages move to; pauses that end close together share one, due with the last of them."""
    now = process.now()
    groups: list[list[Move]] = []
    for move in sorted(moves):
        first = groups[-1][0] if groups else None
        if first and first.state == move.state and move.due - first.due <= max(0, first.due - now) // SHARED:
            groups[-1].append(move)
        else:
            groups.append([move])
    return [_timer(process, origin, group) for group in groups]


def _timer(process: Client, origin: Timer, group: list[Move]) -> Timer:
    """A timer for these messages: under the same claim if they stay leased; otherwise their receipts end."""
    state, due, _ = group[-1]
    name = Name(Type.TIMER, 0, process.id_at(due), state)
    entries = tuple(chain.from_iterable([move.entries for move in group]))
    if state == State.LEASED:
        return encoded(
            Timer(
                name=name,
                entries=entries,
                nonce=origin.nonce,
                holder=origin.holder,
                made_for=origin.made_for,
                alone=origin.alone,
                isolated=origin.isolated,
            )
        )
    return encoded(Timer(name, entries, process.nonce(), "", len(entries)))
