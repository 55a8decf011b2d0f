"""Sends with a unique key: the key and its message are put in one commit, so that no dead producer ever keeps a key.

A plain one expects the keys free and the header as it was read, but does not raise it: what it puts is waiting, like any
send. One that replaces cancels the message that has the key in the same commit, and raises the header. Both are told by the
header whether a commit of unknown outcome may have been applied: as long as it stands nobody has claimed from the row, so
the key would still name the message.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from pydantic_core import to_json

from astyqueue import ids
from astyqueue.errors import BadInput, OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.model.message import MessageId, decode, encode
from astyqueue.model.outgoing import Unique
from astyqueue.protocol.along import Owner, key_name
from astyqueue.protocol.change import Change
from astyqueue.protocol.columns import HEADER, message_name
from astyqueue.protocol.keystate import FREE, KeyState, cancel, key_states
from astyqueue.protocol.process import Process
from astyqueue.protocol.raising import TRIES, Removal, ask_for
from astyqueue.protocol.send import LATE, see_late
from astyqueue.protocol.settle import raise_for
from astyqueue.protocol.sight import Sight, know
from astyqueue.protocol.steps import Steps, read_one
from astyqueue.store import Committed, Name, Named, Put

#: What cancels the message that has the key, unless that is in hand.
CANCELS: Final = frozenset({Unique.REPLACE, Unique.DEBOUNCE})
#: Commits of unknown outcome after which that is told.
_UNKNOWNS: Final = 5


class Keyed(NamedTuple):
    """A message with a unique key, on its way into its row."""

    key: str
    priority: int
    id: Id
    value: bytes

    @property
    def owner(self) -> Owner:
        """What its key is to say."""
        return Owner(self.key, self.priority, self.id)

    @property
    def put(self) -> Put:
        """The message; a commit gives it its time."""
        return Put(message_name(self.priority, self.id), self.value)


class Holder(NamedTuple):
    """Which message has a key now, whether it is the one that was sent, and which was cancelled for it.

    `repeats`: it comes again, and the id is that of its run, or of the run to come, which is not there yet.
    """

    id: MessageId
    sent: bool
    replaced: MessageId | None = None
    repeats: bool = False


def holder_of(row: str, state: KeyState) -> Holder | None:
    """What is told of a key in this state, if it is taken."""
    return Holder(state.owner.message(row), sent=False, repeats=state.repeats is not None) if state.owner else None


def checked(state: KeyState, key: str) -> KeyState:
    """The state of this key; if it is that of another one of the same hash, BadInput is raised."""
    if state.owner is not None and state.owner.key != key:
        message = f"keys {key!r:.80} and {state.owner.key!r:.80} have the same hash, and a message has the second: take another key"
        raise BadInput(message)
    return state


def send_unique(process: Process, row: str, wanted: Sequence[Keyed]) -> Steps[dict[str, Holder]]:
    """Send those whose keys are free, all in one commit, and say which message now has each key; no key comes twice in it."""
    sending = _Unique(process, row, wanted)
    yield from sending.carry_out()
    return sending.holders


def send_replacing(process: Process, row: str, wanted: Keyed, *, keeps_due: bool) -> Steps[Holder]:
    """Send it in the place of the message that has its key, and say which message now has it: another one that is in hand stays.

    With `keeps_due` it takes over the moment at which the other was due, if that is still to come.
    """
    sending = _Replacing(process, row, wanted, keeps_due=keeps_due)
    yield from sending.carry_out()
    holder = sending.holders[wanted.key]
    return holder._replace(replaced=sending.replaced) if holder.sent else holder


class _Planned(NamedTuple):
    """Messages, and the change that sends them."""

    sent: list[Keyed]
    change: Change


class _Sending(ABC):
    """One send, tried until it goes through; `holders` tells which message has each key."""

    def __init__(self, process: Process, row: str) -> None:
        self.holders: dict[str, Holder] = {}
        self._process = process
        self._row = row
        self._header: bytes | None = None
        self._states: dict[Name, KeyState] = {}
        self._tried: list[Keyed] = []
        self._unknown: OutcomeUnknown | None = None
        self._against: bytes | None = None
        self._unknowns = 0

    @abstractmethod
    def _look(self) -> Steps[None]:
        """Learn how the header and the keys are, at one moment."""

    @abstractmethod
    def _plan(self) -> _Planned | None:
        """What can be sent on what was seen; others have the keys of the rest. None if it must be looked at again."""

    def carry_out(self) -> Steps[None]:
        """Look and commit until the messages are there, or others have their keys."""
        for number in range(1, TRIES + 1):
            if (yield from self._try()):
                break
            yield from ask_for(self._process, self._row, refused=number)
        else:
            message = (
                f"row {self._row}: others changed it {TRIES} times in a row while a message with a unique key was to be sent. "
                "It was not: send it again when the queue is less busy"
            )
            raise self._unknown or StoreUnavailable(message)
        self.holders |= {one.key: Holder(one.owner.message(self._row), sent=True) for one in self._tried}
        long_ago = ids.first_at(self._process.now() - LATE)
        if late := [one.put.name for one in self._tried if one.id < long_ago]:
            yield from see_late(self._process, self._row, late)

    def _try(self) -> Steps[bool]:
        """Look and commit once; whether that is the end of it."""
        try:
            yield from self._look()
        except StoreError as error:
            raise self._unknown or error from error
        if self._has_arrived():
            return True
        if (planned := self._plan()) is None:
            return False
        self._tried, self._against = planned.sent, self._header
        return not planned.sent or (yield from self._commit(planned.change))

    def _has_arrived(self) -> bool:
        """Whether a commit of unknown outcome turns out to have been applied, as it was when one of its keys names its message.

        If the header stands on which it was made, it was not, for what it put can only have gone by way of a claim. If
        another one does, nobody can say.
        """
        if self._unknown is None:
            return False
        if any(self._states.get(key_name(one.key), FREE).owner == one.owner for one in self._tried):
            return True
        if self._header != self._against:
            raise self._unknown
        return False

    def _commit(self, change: Change) -> Steps[bool]:
        """Whether it was applied; of an unknown outcome, the next look tells."""
        try:
            outcome = yield from change.commit()
        except OutcomeUnknown as unknown:
            self._unknown = unknown
            self._unknowns += 1
            if self._unknowns == _UNKNOWNS:
                raise
            return False
        except StoreError as error:
            raise self._unknown or error from error
        return isinstance(outcome, Committed)

    def _read(self, *keys: str) -> Steps[None]:
        """Read the header and the keys together: else a message might come, be done and leave its key to another between the two."""
        columns = yield from read_one(Named(self._row, (HEADER, *map(key_name, keys))), exact=True)
        self._header = next((column.value for column in columns if column.name == HEADER), None)
        self._states = yield from key_states(self._row, [column for column in columns if column.name != HEADER])

    def _state(self, one: Keyed) -> KeyState:
        """How its key is; another key of the same hash raises BadInput."""
        return checked(self._states.get(key_name(one.key), FREE), one.key)


class _Unique(_Sending):
    """Sends those whose keys are free."""

    def __init__(self, process: Process, row: str, wanted: Sequence[Keyed]) -> None:
        super().__init__(process, row)
        self._wanted = wanted

    def _look(self) -> Steps[None]:
        yield from self._read(*[one.key for one in self._wanted])

    def _plan(self) -> _Planned:
        states = [(one, self._state(one)) for one in self._wanted]
        self.holders = {one.key: holder for one, state in states if (holder := holder_of(self._row, state))}
        change = Change(self._row)
        change.expect(HEADER, self._header)
        free = [(one, state) for one, state in states if state.owner is None]
        for one, state in free:
            change.expect(key_name(one.key), state.column.value if state.column else None)
            change.put(key_name(one.key), one.owner.encode())
            change.put_all(one.put)
        return _Planned([one for one, _ in free], change)


class _Replacing(_Sending):
    """Sends one in the place of the message that has its key, unless somebody has that in hand."""

    def __init__(self, process: Process, row: str, wanted: Keyed, *, keeps_due: bool) -> None:
        super().__init__(process, row)
        self._wanted = wanted
        self._keeps_due = keeps_due
        self.replaced: MessageId | None = None
        self._sight = Sight(row, 1)
        self._put_off: dict[int, Keyed] = {}

    def _look(self) -> Steps[None]:
        self._sight.forget()
        yield from know(self._sight, self._process.now())
        yield from self._read(self._wanted.key)

    def _plan(self) -> _Planned | None:
        if self._header != self._sight.value:
            return None
        state = self._state(self._wanted)
        holder = holder_of(self._row, state)
        if holder and state.in_hand(self._sight, self._process.now()):
            self.holders = {self._wanted.key: holder}
            return _Planned([], Change(self._row))
        self.replaced = holder.id if holder else None
        sent = self._in_place_of(state.owner)
        plan = Removal(taken=[(state.column, Put(key_name(sent.key), sent.owner.encode()))], puts=[sent.put])
        cancel(plan, self._sight, state)
        if state.repeats:
            plan.freed.append(state.repeats.column)
        change = Change(self._row)
        plan.add_to(change)
        raise_for(self._process, change, self._header, due=None)
        return _Planned([sent], change)

    def _in_place_of(self, owner: Owner | None) -> Keyed:
        """What is sent: due when the other one was, if it is to keep that moment and it is still to come."""
        due = ids.moment(owner.id) if owner and self._keeps_due else 0
        if due <= self._process.now():
            return self._wanted
        if due not in self._put_off:
            envelope = decode(self._wanted.value)
            value = encode(envelope._replace(due=due), to_json(envelope.body))
            self._put_off[due] = self._wanted._replace(id=self._process.id_at(due), value=value)
        return self._put_off[due]
