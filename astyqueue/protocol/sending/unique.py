"""Sends with a unique key: one commit writes the key and its message, so that a crashed producer never keeps a key.

A plain send expects the keys to be free and the header unchanged, but does not bump it: its messages wait like any
others. A replacing send cancels the message that has the key in the same commit, and bumps the header; a superseding
one does so too, and marks a message that is leased, which cannot be cancelled, as superseded in its timer. For all, the
header shows whether a commit of unknown outcome may have been applied: while it is unchanged no process has claimed
from the row, so the key would still name the message.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from pydantic_core import to_json

from astyqueue import ids
from astyqueue.errors import BadInput, Closed, OutcomeUnknown, StoreError, StoreUnavailable
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId, decode, encode
from astyqueue.model.message import Unique
from astyqueue.protocol.layout.columns import HEADER, message_name
from astyqueue.protocol.layout.unique_key import KeyOwner, key_name
from astyqueue.protocol.row.header_commit import (
    COMMIT_TRIES,
    HeaderCommits,
    RemovalPlan,
    RowTransaction,
    bump_header,
    contend,
)
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot
from astyqueue.protocol.sending.insert import LATE, register_late
from astyqueue.protocol.sending.key_state import FREE, KeyState, cancel, key_states, supersede
from astyqueue.protocol.steps import Client, Steps, read_one
from astyqueue.store import Name, Named, Put

#: The modes that cancel the message that has the key, unless it is leased.
CANCELS: Final = frozenset({Unique.REPLACE, Unique.DEBOUNCE, Unique.SUPERSEDE})
#: Commits of unknown outcome before OutcomeUnknown is raised.
_UNKNOWNS: Final = 5


class UniqueMessage(NamedTuple):
    """A message with a unique key, to be sent; with a `life` it expires this long after it is due, in microseconds."""

    key: str
    priority: int
    id: Id
    value: bytes
    life: int | None = None

    @property
    def owner(self) -> KeyOwner:
        """The owner that its key's column names."""
        return KeyOwner(self.key, self.priority, self.id)

    @property
    def put(self) -> Put:
        """The message's column, without a write time: the commit sets it."""
        return Put(message_name(self.priority, self.id), self.value)


class UniqueSendResult(NamedTuple):
    """The message that has the key now, whether it was sent by this call, and the message that was cancelled for it.

    `repeats`: it is repeated by a schedule; the id is that of its run, or of the next run, which does not exist yet.
    """

    id: MessageId
    sent: bool
    replaced: MessageId | None = None
    repeats: bool = False


def result_of_kept_key(row: str, state: KeyState) -> UniqueSendResult | None:
    """The result for a message that is not sent, because its key is in this state; None if the key is free."""
    return (
        UniqueSendResult(state.owner.message(row), sent=False, repeats=state.repeats is not None)
        if state.owner
        else None
    )


def checked(state: KeyState, key: str) -> KeyState:
    """The state, if it is of this key; raises BadInput if it is of another key with the same hash."""
    if state.owner is not None and state.owner.key != key:
        both = f"keys {key!r:.80} and {state.owner.key!r:.80}"
        message = f"{both} have the same hash, and a message has the second: choose another key"
        raise BadInput(message)
    return state


def send_unique(process: Client, row: str, wanted: Sequence[UniqueMessage]) -> Steps[dict[str, UniqueSendResult]]:
    """Send the messages whose keys are free, in one commit; returns the result for each key. All keys must differ."""
    sending = _Unique(process, row, wanted)
    yield from sending.carry_out()
    return sending.results


def send_replacing(
    process: Client, row: str, wanted: UniqueMessage, *, keeps_due: bool, supersedes: bool = False
) -> Steps[UniqueSendResult]:
    """Send a message in place of the one that has its key. A leased message is not replaced.

    With `keeps_due` it is due when the replaced message was, if that is in the future. With `supersedes` it is also
    sent while the other one is leased, which is then not delivered again; a repeated message is not replaced.
    """
    sending = _Replacing(process, row, wanted, keeps_due=keeps_due, supersedes=supersedes)
    yield from sending.carry_out()
    result = sending.results[wanted.key]
    return result._replace(replaced=sending.replaced) if result.sent else result


class _Planned(NamedTuple):
    """Messages, and the transaction that sends them; None: the row changed while it was read."""

    sent: list[UniqueMessage]
    change: RowTransaction | None


class _Sending(HeaderCommits[_Planned]):
    """One send, repeated until it is applied; `results` has the message of each key."""

    def __init__(self, process: Client, row: str) -> None:
        self.results: dict[str, UniqueSendResult] = {}
        self._process = process
        self._row = row
        self._header: bytes | None = None
        self._states: dict[Name, KeyState] = {}
        self._tried: list[UniqueMessage] = []
        self._unknown: OutcomeUnknown | None = None
        self._against: bytes | None = None
        self._unknowns = 0
        self._is_read_back = False

    @abstractmethod
    def _look(self) -> Steps[None]:
        """Read the header and the keys, as of one moment."""

    @abstractmethod
    def _plan(self) -> _Planned | None:
        """The messages whose keys are available; None if there are none."""

    def carry_out(self) -> Steps[None]:
        """Read and commit until the messages are stored, or other messages have their keys."""
        try:
            yield from self.until_applied()
        except (StoreError, Closed) as error:  # it does not prove that an earlier commit was not applied
            if self._unknown is None or isinstance(error, OutcomeUnknown):
                raise
            raise self._unknown from error
        self.results |= {one.key: UniqueSendResult(one.owner.message(self._row), sent=True) for one in self._tried}
        long_ago = ids.first_at(self._process.now() - LATE)
        if late := [one.put.name for one in self._tried if one.id < long_ago]:
            yield from register_late(self._process, self._row, late)

    def plan(self) -> Steps[_Planned | None]:
        """Read, and plan unless a commit of unknown outcome turns out to be applied."""
        yield from self._look()
        if self._has_arrived():
            return None
        planned = self._plan()
        if planned is None:
            if self._unknown:  # a request that was delayed may still be carried out on this header
                raise self._unknown
            self._tried = []
        elif planned.change:
            self._tried, self._against = planned.sent, self._header
        return planned

    def transaction(self, plan: _Planned) -> Steps[RowTransaction | None]:
        """The transaction that was planned."""
        yield from ()
        return plan.change

    def read_back(self, plan: _Planned, unknown: OutcomeUnknown) -> Steps[bool]:  # noqa: ARG002 - the interface of every loop
        """Always False, without a request: the next plan reads the keys, which show it."""
        yield from ()
        self._unknown, self._is_read_back = unknown, False
        self._unknowns += 1
        return False

    def again(self, refused: int) -> Steps[bool]:
        """Read again, up to 50 times; after five commits of unknown outcome raise OutcomeUnknown."""
        if self._unknown and self._unknowns == _UNKNOWNS:
            raise self._unknown
        if (yield from contend(self._process, self._row, refused=refused)):
            return True
        message = (
            f"row {self._row}: gave up after {COMMIT_TRIES} conflicts while sending a message with a unique key. "
            "It was not sent: send it again when the queue is less busy"
        )
        raise StoreUnavailable(message)

    def _has_arrived(self) -> bool:
        """Whether a commit of unknown outcome was applied: yes if one of its keys names its message.

        Otherwise it was not applied if the header is unchanged, because only a claim can have removed the message. If
        the header has changed, OutcomeUnknown is raised again.
        """
        if self._unknown is None:
            return False
        if any(self._states.get(key_name(one.key), FREE).owner == one.owner for one in self._tried):
            return self._process.report_read_back(self._row, "send", applied=True)
        if self._header != self._against:
            raise self._unknown
        if not self._is_read_back:
            self._process.report_read_back(self._row, "send", applied=False)
        self._is_read_back = True
        return False

    def _read(self, *keys: str) -> Steps[None]:
        """Read header and keys together: between two reads a message could come, be settled and free its key."""
        columns = yield from read_one(Named(self._row, (HEADER, *map(key_name, keys))), exact=True)
        self._header = next((column.value for column in columns if column.name == HEADER), None)
        self._states = yield from key_states(self._row, [column for column in columns if column.name != HEADER])

    def _state(self, one: UniqueMessage) -> KeyState:
        return checked(self._states.get(key_name(one.key), FREE), one.key)


class _Unique(_Sending):
    def __init__(self, process: Client, row: str, wanted: Sequence[UniqueMessage]) -> None:
        super().__init__(process, row)
        self._wanted = wanted

    def _look(self) -> Steps[None]:
        yield from self._read(*[one.key for one in self._wanted])

    def _plan(self) -> _Planned | None:
        states = [(one, self._state(one)) for one in self._wanted]
        self.results = {one.key: result for one, state in states if (result := result_of_kept_key(self._row, state))}
        free = [(one, state) for one, state in states if state.owner is None]
        if not free:
            return None
        change = RowTransaction(self._row)
        change.expect(HEADER, self._header)
        for one, state in free:
            change.expect(key_name(one.key), state.column.value if state.column else None)
            change.put(key_name(one.key), one.owner.encode())
            change.put_all(one.put)
        return _Planned([one for one, _ in free], change)


class _Replacing(_Sending):
    def __init__(self, process: Client, row: str, wanted: UniqueMessage, *, keeps_due: bool, supersedes: bool) -> None:
        super().__init__(process, row)
        self._wanted = wanted
        self._keeps_due = keeps_due
        self._supersedes = supersedes
        self.replaced: MessageId | None = None
        self._snapshot = RowSnapshot(row, 1)
        self._put_off: dict[int, UniqueMessage] = {}
        self._began = process.now()

    def _look(self) -> Steps[None]:
        self._snapshot.forget()
        yield from load_snapshot(self._snapshot, self._process.now())
        yield from self._read(self._wanted.key)

    def _plan(self) -> _Planned | None:
        if self._header != self._snapshot.loaded_header.value:
            return _Planned([], None)
        state = self._state(self._wanted)
        result = result_of_kept_key(self._row, state)
        is_leased = state.is_leased(self._snapshot, self._process.now())
        if result and (state.repeats if self._supersedes else is_leased):
            self.results = {self._wanted.key: result}
            return None
        self.replaced = result.id if result and not is_leased and state.is_stored else None
        sent = self._in_place_of(state.owner)
        plan = RemovalPlan(taken=[(state.column, Put(key_name(sent.key), sent.owner.encode()))], puts=[sent.put])
        if state.owner and is_leased:
            supersede(plan, self._snapshot, state.owner)
        else:
            cancel(plan, self._snapshot, state)
        if state.repeats:
            plan.freed.append(state.repeats.column)
        change = RowTransaction(self._row)
        plan.add_to(change)
        bump_header(self._process, change, self._header, due=None)
        return _Planned([sent], change)

    def _in_place_of(self, owner: KeyOwner | None) -> UniqueMessage:
        """The message to send: if it keeps the due time of the replaced one it is due then, or now if that is over."""
        if owner is None or not self._keeps_due:
            return self._wanted
        due = max(ids.moment(owner.id), self._began)
        if due == self._began >= ids.moment(self._wanted.id):
            return self._wanted
        if due not in self._put_off:
            envelope = decode(self._wanted.value)
            expires = envelope.expires if self._wanted.life is None else due + self._wanted.life
            value = encode(envelope._replace(due=due, expires=expires), to_json(envelope.body))
            self._put_off[due] = self._wanted._replace(id=self._process.id_at(due), value=value)
        return self._put_off[due]
