"""Which messages a claim takes, how they share timers, and which ones it dead-letters instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from astyqueue import ids
from astyqueue.ids import Id
from astyqueue.model.envelope import ATTEMPTS_MOST, LEASE_MOST, Envelope, decode
from astyqueue.protocol.layout.columns import Dead, Entry, State, Timer, dead_name, group_hash, message_name
from astyqueue.protocol.layout.unique_key import SettleEffects, settle_effects
from astyqueue.protocol.row.bounded_reads import READ_BUDGET, MessageSizes
from astyqueue.protocol.row.group_index import MOST_BLOCKED, GroupIndex, group_order
from astyqueue.protocol.row.snapshot import KnownHeader
from astyqueue.protocol.row.timer_index import TimerIndex
from astyqueue.store import Column, Name
from astyqueue.units import SECOND

#: A sender stamps a plain send by its own clock, an hour back. If that clock is further ahead than this (microseconds),
#: the send may have a later stamp than the ack that deletes the message, which would then come back.
AHEAD_AT_MOST: Final = 50 * 60 * SECOND
#: Why an expired message is a dead letter.
EXPIRED: Final = "it was not handed out before the moment it expires"
#: The messages of an expired lease on more than this many are claimed again under timers of this many; those of a
#: smaller one, each under its own.
REDELIVERED_TOGETHER: Final = 20


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A request to lease up to `want` messages, for `lease` microseconds each.

    `leased_count`: the messages that are leased to the process already. With `keeps`, the claim takes or extends the
    row lease, if row `leases` are in use; `yields`: give up after a refusal. `unlocks`: columns of a row lock that the
    claim's commit deletes. The caps bound the messages' own settings; `expires_cap` is the longest time from the due
    time until a message expires, and 0 is none. `ends_soon`: the process may not come back, so cursors that need no
    late scan any more are stored.
    """

    want: int
    lease: int
    max_attempts: int
    leased_count: int = 0
    keeps: bool = True
    yields: bool = False
    leases: bool = True
    unlocks: tuple[Name, ...] = ()
    lease_cap: int = LEASE_MOST
    max_attempts_cap: int = ATTEMPTS_MOST
    expires_cap: int = 0
    ends_soon: bool = False


class ClaimedMessage(NamedTuple):
    """A leased message, or one claimed at most once."""

    entry: Entry
    envelope: Envelope


class DeadLettered(NamedTuple):
    """A message that a claim dead-lettered, and its envelope if it can be read."""

    entry: Entry
    death: Dead
    envelope: Envelope | None


class LapsedEntry(NamedTuple):
    """A message whose lease expired, as its timer lists it, and the process that held the lease."""

    entry: Entry
    holder: str


#: A part of the messages whose lease expired: their timer, and the part's number within it.
Part = tuple[Name, int]
#: The messages that share a timer: fresh ones of one lease (microseconds), or a part of those whose lease expired.
Share = tuple[int, Part | None]


@dataclass(slots=True)
class ClaimPlan:
    """A claim that is planned, not yet committed; `read` counts the bytes of messages that were read for it.

    `known` and `timers`: the header that its commit expects, and the timers that were read under it. `leaving`: the ids
    that leave each timer. `superseded`: messages that are deleted instead. `early`: messages that may not be claimed
    yet, by the moment (microseconds) until which they are hidden. `blocked`: messages that wait for another one of
    their group. `unlisted`: messages of groups that a timer lists, beyond the head: they are only taken off the timer,
    and the first scan meets them in order with the earlier ones of their group. `buried`: messages to dead-letter, at
    most `dead_letters_left`. `ending`: messages that this commit settles for good. `full`: no more messages may be
    blocked in the row, and one more would have to be. `late_scans`: those made for it to their end. They are made again
    if the commit is refused, as what they found was not claimed.
    """

    request: ClaimRequest
    now: int
    room: int
    known: KnownHeader
    timers: TimerIndex
    dead_letters_left: int = 0
    leased: dict[Share, list[ClaimedMessage]] = field(default_factory=dict)
    dead: dict[Name, bytes] = field(default_factory=dict)
    at_most_once: list[ClaimedMessage] = field(default_factory=list)
    leaving: dict[Name, set[Id]] = field(default_factory=dict)
    effects: dict[Id, SettleEffects] = field(default_factory=dict)
    buried: list[DeadLettered] = field(default_factory=list)
    superseded: list[Entry] = field(default_factory=list)
    early: dict[int, list[Entry]] = field(default_factory=dict)
    blocked: list[Entry] = field(default_factory=list)
    unlisted: set[Id] = field(default_factory=set)
    ending: AbstractSet[Id] = frozenset()
    full: bool = False
    groups_taken: set[int] = field(default_factory=set)
    cursors: list[list[Id]] = field(default_factory=list)
    late_scans: list[int] = field(default_factory=list)
    undecodable: int = 0
    more: bool = False
    suspect: bool = False
    read: int = 0

    def fits(self, sizes: MessageSizes) -> int:
        """The number of messages to read next: at least one for a claim, the rest within the budget of bytes.

        Blocked messages use up no room, and where some were found more follow: each read is longer than the one before.
        """
        if self.room <= 0:
            return 0
        least = 0 if self.read else 1
        return max(0, min(self.room + len(self.blocked), max(least, sizes.within(READ_BUDGET - self.read))))

    def has_read(self, columns: list[Column], sizes: MessageSizes) -> None:
        """Count the bytes of these messages."""
        if columns:
            read = sum([len(column.value) for column in columns])
            self.read += read
            sizes.saw(read, len(columns))

    @property
    def anything(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.leased or self.dead or self.at_most_once or self.leaving or self.early or self.blocked)

    @property
    def waiting(self) -> int:
        """The number of messages that were read and must wait for others of their group."""
        return len(self.blocked) + len(self.unlisted)

    @property
    def ids(self) -> set[Id]:
        """The messages that are planned so far."""
        taken = {held.entry.id for sharing in self.leased.values() for held in sharing}
        hidden = (entry.id for entries in (*self.early.values(), self.blocked) for entry in entries)
        return taken.union((held.entry.id for held in self.at_most_once), (name.id for name in self.dead), hidden)

    @property
    def alone(self) -> bool:
        """Whether its one message will be the only one that this process has leased."""
        return self.request.leased_count == 0 and not self.at_most_once and sum(map(len, self.leased.values())) == 1

    def take(self, entry: Entry, value: bytes, part: Part | None = None, *, scanned: Id | None = None) -> bool:
        """Plan to lease, hide or dead-letter one message; False if this commit has no room for it.

        `scanned`: for a message that a timer lists, how far the scan has come that may meet it later.
        """
        if self.room <= 0:
            return False
        try:
            envelope = decode(value)
        except ValueError as error:
            self.undecodable += 1
            return self._add_dead(entry, "undecodable", f"its message cannot be read: {error}")
        if envelope.group is not None:
            if scanned is not None and not entry.group and scanned < entry.id < ids.first_at(self.now + 1):
                self.unlisted.add(entry.id)
                return True
            entry = entry._replace(group=group_hash(envelope.group))
        return self._take_decoded(entry, envelope, part)

    def _take_decoded(self, entry: Entry, envelope: Envelope, part: Part | None) -> bool:
        group = entry.group
        waits = group != 0 and self._waits(entry)
        if envelope.sent > self.now + AHEAD_AT_MOST and not waits:
            return self._put_off(entry, envelope.sent - AHEAD_AT_MOST)
        may_end = envelope.expires is not None or self.request.expires_cap or entry.spent
        if may_end and (end := self._end(entry, envelope)):
            return self._add_dead(entry, *end, envelope=envelope)
        if waits:
            return self._block(entry)
        if group:
            self.groups_taken.add(group)
        held = ClaimedMessage(entry, envelope)
        self.room -= 1
        lease = self.request.lease if envelope.lease is None else min(envelope.lease, self.request.lease_cap)
        if lease == 0:
            self.at_most_once.append(held)
            self.effects[entry.id] = settle_effects(entry.priority, entry.id, envelope)
        else:
            self.leased.setdefault((lease, part), []).append(held)
        return True

    def _end(self, entry: Entry, envelope: Envelope) -> tuple[str, str] | None:
        """The kind and reason of the dead letter that a message becomes instead of being leased; None for no such."""
        cap = self.request.expires_cap
        if (envelope.expires is not None and envelope.expires <= self.now) or (
            cap and ids.moment(entry.id) + cap <= self.now
        ):
            return "expired", EXPIRED
        own = envelope.attempts
        allowed = self.request.max_attempts if own is None else min(own, self.request.max_attempts_cap)
        if entry.spent >= allowed:
            return "attempts", f"{entry.spent} of {allowed} attempts ended without an outcome: each lease ran out"
        return None

    def _waits(self, entry: Entry) -> bool:
        """Whether a message must wait: of its group another one is under way, in this plan, or comes before it."""
        groups, group = self.timers.groups, entry.group
        if group in self.groups_taken or groups.is_busy(group, apart_from=entry.id, ending=self.ending):
            return True
        first = groups.first(group)
        return first is not None and first < group_order(entry) and not groups.has_begun(entry.id)

    def _block(self, entry: Entry) -> bool:
        """Plan to list a message as blocked, so that the first scan passes it: it keeps no others from a claim."""
        if entry.id in self.timers.groups.blocked:
            return False
        if len(self.timers.groups.blocked) + len(self.blocked) >= MOST_BLOCKED:
            self.full = True
            return False
        self.blocked.append(entry)
        return True

    def _put_off(self, entry: Entry, until: int) -> bool:
        # hidden, it does not keep a claim from the messages beyond it; in whole seconds, so that many share a timer
        self.room -= 1
        if entry.group:
            self.groups_taken.add(entry.group)
        self.early.setdefault(-(-until // SECOND) * SECOND, []).append(entry)
        return True

    def _add_dead(self, entry: Entry, kind: str, reason: str, *, envelope: Envelope | None = None) -> bool:
        if len(self.dead) >= self.dead_letters_left:
            return False
        self.room -= 1
        death = Dead(self.now, entry.spent, kind, reason, "")
        self.dead[dead_name(entry.priority, entry.id)] = death.encode()
        self.buried.append(DeadLettered(entry, death, envelope))
        if envelope is not None:
            self.effects[entry.id] = settle_effects(entry.priority, entry.id, envelope)._replace(leaves=None)
        return True

    def lapsed(self, timers: Iterable[Timer]) -> list[LapsedEntry]:
        """The messages of these timers that are claimed because their lease expired."""
        over = [timer for timer in timers if timer.state == State.LEASED and timer.due <= self.now]
        return [
            LapsedEntry(entry, timer.holder)
            for timer in over
            for entry in timer.entries
            if entry.id in self.leaving[timer.name]
        ]

    @property
    def consumed(self) -> list[Name]:
        """The messages that the claim deletes: those delivered at most once, and superseded ones."""
        gone = [*[held.entry for held in self.at_most_once], *self.superseded]
        return [message_name(entry.priority, entry.id) for entry in gone]

    def drop(self, superseded: list[Redelivery]) -> None:
        """Plan to delete superseded messages whose leases ran out, as many as the commit has room for."""
        for again in superseded[: self.dead_letters_left]:
            self.superseded.append(again.entry)
            self.leaving.setdefault(again.timer.name, set()).add(again.entry.id)
        self.dead_letters_left -= len(self.superseded)


class Redelivery(NamedTuple):
    """A message of a due timer: its entry with the attempts so far, the timer, and its part if the lease expired."""

    entry: Entry
    timer: Timer
    part: Part | None


@dataclass(slots=True)
class DueMessages:
    """The messages of due timers: by priority, parked ones (highest priority first), suspects that may crash workers.

    `superseded` ones are not delivered again. `has_more`: messages were left out.
    """

    by_level: dict[int, list[Redelivery]] = field(default_factory=dict)
    parked: list[Redelivery] = field(default_factory=list)
    suspects: list[Redelivery] = field(default_factory=list)
    superseded: list[Redelivery] = field(default_factory=list)
    has_more: bool = False

    def add(self, again: Redelivery) -> None:
        """Sort in one message."""
        if again.entry.superseded:
            self.superseded.append(again)
        elif again.part is not None and again.part[1] == _SUSPECT:
            self.suspects.append(again)
        elif again.timer.state == State.PARKED:
            self.parked.append(again)
        else:
            self.by_level.setdefault(again.entry.priority, []).append(again)

    def add_free(self, groups: GroupIndex, ending: AbstractSet[Id]) -> None:
        """Sort in the first blocked message of each group that is free, the oldest message of a priority first.

        Messages that keep their group busy come before all: at the bound of blocked messages no other may be passed.
        """
        for blocked in groups.free(ending=ending):
            self.add(Redelivery(blocked.entry, blocked.timer, None))
        for level in self.by_level.values():
            level.sort(key=lambda again: (not groups.has_begun(again.entry.id), again.entry.id))


def due_messages(timers: list[Timer], now: int, *, top: int, room: int) -> DueMessages:
    """Sort out the messages of timers that are due.

    Once there are `room` of the `top` priority, released and listed messages are left out, except those that keep a
    group busy: this claim takes none of them. Without that, each claim would cost what waits, where a producer such as
    a spool lists all it sends.

    An expired lease counts as an attempt only if the message was alone: its holder had no other lease, and no other
    lease of that holder expired with it. A message that was alone in its timer but not in its process is a suspect: the
    next process to claim it must hold no other lease, and claims none beside it, so that a message that crashes its
    worker never dead-letters others. If another lease of that holder is found expired beside it, that had expired
    before the suspect was claimed, and the holder lived on.
    """
    found = DueMessages()
    if not timers:
        return found
    expired = Counter(timer.holder for timer in timers if timer.state == State.LEASED and timer.due <= now)
    first = found.by_level.setdefault(top, [])
    for timer in timers:
        if len(first) >= room and timer.state not in (State.LEASED, State.PARKED) and not timer.grouped:
            found.has_more = True
            continue
        for again in _of_timer(timer, now, company=expired[timer.holder] > 1):
            found.add(again)
    if not first:
        del found.by_level[top]
    found.parked.sort(key=lambda again: -again.entry.priority)
    return found


_SUSPECT: Final = -1


def _of_timer(timer: Timer, now: int, *, company: bool) -> list[Redelivery]:
    marked = [
        Redelivery(Entry(mark.id, mark.priority, mark.spent, group=mark.group), timer, None)
        for mark in timer.marks
        if min(mark.due, timer.due) <= now
    ]
    if timer.due > now:
        return marked
    if timer.state != State.LEASED:
        return marked + [Redelivery(entry, timer, None) for entry in timer.entries]
    if timer.made_for > 1:
        width = REDELIVERED_TOGETHER if timer.made_for > REDELIVERED_TOGETHER else 1
        return marked + [
            Redelivery(entry, timer, (timer.name, index // width)) for index, entry in enumerate(timer.entries)
        ]
    counts = timer.isolated or (timer.alone and not company)
    part = 0 if counts else _SUSPECT
    return marked + [
        Redelivery(entry._replace(spent=entry.spent + counts), timer, (timer.name, part)) for entry in timer.entries
    ]


def plan_redeliveries(claim_plan: ClaimPlan, due: list[Redelivery], present: list[Column], heads: Sequence[Id]) -> None:
    """Plan messages of due timers while there is room; ids whose message is gone are dropped from their timer.

    `heads`: how far the first scan has come, by priority. A message of a group beyond it that was never claimed is only
    taken off its timer: earlier ones of its group may wait there too, and the scan meets all of them in their order.
    """
    values = {column.name.id: column.value for column in present}
    for again in due:
        if claim_plan.room <= 0:
            return
        value = values.get(again.entry.id)
        if value is None or claim_plan.take(again.entry, value, again.part, scanned=heads[again.entry.priority]):
            claim_plan.leaving.setdefault(again.timer.name, set()).add(again.entry.id)
