"""The trace of an execution as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from astyqueue.clock import instant
from astyqueue.errors import Undecodable
from astyqueue.ids import GREATEST, LEAST, Id, moment, text
from astyqueue.protocol.layout.columns import HEADER, Type, decode_header, decode_timer
from astyqueue.protocol.steps import Commit, Read, Send
from astyqueue.store import Batch, Column, Committed, Expectation, Name, Named, Put, Refused, Slice
from astyqueue.waiting import Rest
from tests.modelcheck.executor import Event
from tests.modelcheck.schedule import Action, Mode

T = TypeVar("T")

#: Columns of one answer that are shown.
_SHOWN: Final = 4

_OUTCOMES: Final = {
    Mode.GO: "",
    Mode.HELD: ", and does not hear it yet",
    Mode.APPLIED: ", and hears that the outcome is unknown",
    Mode.LOST: " is not done, and the outcome said to be unknown",
    Mode.UNANSWERED: ", and stops for ever before it hears so",
    Mode.END: "",
}


def render_trace(events: Iterable[Event]) -> str:
    """One line for each event, then the ids behind their numbers."""
    writer = _TraceWriter()
    lines = [f"{number:4}  {writer.event(event)}" for number, event in enumerate(events, 1)]
    return "\n".join(
        lines + [f"      #{number} is {instant(moment(id_))}, {text(id_)}" for id_, number in writer.numbers.items()]
    )


class _TraceWriter:
    """Writes one trace: an id is numbered when it first occurs."""

    def __init__(self) -> None:
        self.numbers: dict[Id, int] = {}

    def event(self, event: Event) -> str:
        """The actor, its request and the answer."""
        actor, mode = event.choice
        if mode is Mode.END:
            return "each unfinished actor stops for ever"
        if event.action is None:
            return f"{actor}: goes on with {self._answer(event.answer)}"
        outcome = f" -> {self._answer(event.answer)}" if mode in (Mode.GO, Mode.HELD, Mode.UNANSWERED) else ""
        return f"{actor}: {self._action_text(event.action)}{outcome}{_OUTCOMES[mode]}"

    def _action_text(self, action: Action) -> str:
        match action:
            case Read(wanted, exact):
                return ("read exactly " if exact else "read ") + ", ".join(map(self._wanted, wanted))
            case Send():
                return "; ".join(f"send to {batch.row}: {self._batch(batch)}" for batch in action.batches)
            case Commit(batch, expects):
                return f"commit to {batch.row}: {self._batch(batch)}, if {_listed(expects, self._expectation)}"
            case Rest():
                return "rest"
            case _:
                return getattr(action, "__name__", None) or str(action)

    def _wanted(self, wanted: Slice | Named) -> str:
        if isinstance(wanted, Named):
            return f"{_listed(wanted.names, self._name)} of {wanted.row}"
        bounds = [f" from {self._id(wanted.after)}"] if wanted.after != LEAST else []
        bounds += [f" before {self._id(wanted.until)}"] if wanted.until != GREATEST else []
        bounds += [f", {wanted.limit} at most"] if wanted.limit is not None else []
        level = "" if wanted.priority is None else f" of priority {wanted.priority}"
        return f"{_kind(wanted.type)}s{level}{''.join(bounds)} of {wanted.row}"

    def _batch(self, batch: Batch) -> str:
        puts = [f"put {self._column(put)}" for put in batch.puts]
        return _listed([*puts, *[f"delete {self._name(name)}" for name in batch.deletes]], str)

    def _expectation(self, expectation: Expectation) -> str:
        name, value = expectation
        return f"{self._name(name)} is absent" if value is None else f"{self._column(Put(name, value))} is there"

    def _answer(self, answer: object) -> str:
        match answer:
            case None:
                return "done"
            case Committed():
                return "applied"
            case Refused(present):
                return "refused: " + _listed(map(Expectation._make, present.items()), self._expectation)
            case list():
                return _listed([column for part in answer for column in part], self._column)
            case BaseException():
                return f"{type(answer).__name__}: {answer}"
            case _:
                return repr(answer)

    def _column(self, column: Column | Put) -> str:
        """The column, with what it holds as far as that is short."""
        try:
            return f"{self._name(column.name)}{self._inside(column)}"
        except Undecodable:
            return f"{self._name(column.name)} = {column.value[:12]!r}"

    def _inside(self, column: Column | Put) -> str:
        if column.name == HEADER:
            header = decode_header("", column.value)
            return f" of version {header.version}"
        if column.name.type == Type.TIMER and column.value:
            timer = decode_timer("", column.name, column.value)
            hidden = [entry.id for entry in timer.entries] + [mark.id for mark in timer.marks]
            return f" [{' '.join(map(self._id, hidden))}]"
        return ""

    def _name(self, name: Name) -> str:
        return "header" if name == HEADER else f"{_kind(name.type)} {self._id(name.id)}"

    def _id(self, id_: Id) -> str:
        return f"#{self.numbers.setdefault(id_, len(self.numbers) + 1)}"


def _kind(number: int) -> str:
    """The name of this type of column."""
    if number not in set(Type):
        return f"column of type {number}"
    return "dead letter" if number == Type.DEAD else Type(number).name.lower()


def _listed(things: Iterable[T], text_of: Callable[[T], str]) -> str:
    texts = [text_of(thing) for thing in things]
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(texts[:_SHOWN]) + more if texts else "nothing"
