"""Sending: messages are checked, given ids, grouped by row and inserted; nothing is read and nobody is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice, product
from typing import Final, NamedTuple

from astyqueue.errors import BadInput, Vetoed
from astyqueue.ids import IdSource, moment
from astyqueue.model.event import Kind
from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import Composed, Composer, Message, Unique
from astyqueue.model.settings import Settings
from astyqueue.protocol.lookup import leave_hints
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.send import message_put, send
from astyqueue.protocol.steps import Steps
from astyqueue.protocol.unique import Holder
from astyqueue.queue.following import Following
from astyqueue.queue.history import History
from astyqueue.queue.hooks import Hook, told
from astyqueue.queue.placement import Placement
from astyqueue.queue.uniquely import Arrived, Uniquely
from astyqueue.store import Batch, Put

#: Messages composed at a time, so that any number of them is sent in bounded memory.
_CHUNK: Final = 1_000
#: Bounds of one batch, which is one write of one row: columns, and bytes of their values.
_ROWS: Final = 200
_BYTES: Final = 512 * 1024
#: Batches under way at once.
_TOGETHER: Final = 8
_NO_OPTIONS: Final = Message(None)
#: What a `Message` says besides its body, and what it says of that when nobody asks for anything.
_OPTIONS: Final = {option.name: option.default for option in fields(Message) if option.name != "body"}


class _Part(NamedTuple):
    """One batch, and the places of its messages in the order of sending."""

    batch: Batch
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message went. `new` is False when an earlier one was kept in its place."""

    id: MessageId
    new: bool = True


@dataclass(slots=True)
class SendReport:
    """What became of many messages: their ids in order, None for one that was not sent.

    By their places in that order: `vetoed` tells why a hook refused one, `taken` which message has the unique key of one
    that was not sent for that, and at the places in `kept` the id is that of an earlier message with the key.
    """

    ids: list[MessageId | None] = field(default_factory=list)
    vetoed: dict[int, str] = field(default_factory=dict)
    taken: dict[int, MessageId] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)

    @property
    def sent(self) -> int:
        """How many of them are in the store, earlier ones not counted."""
        return len(self.ids) - len(self.vetoed) - len(self.taken) - len(self.kept)

    def held(self, place: int, holder: Holder, unique: Unique | None) -> None:
        """Note which message has the unique key of the one at this place."""
        if holder.sent or unique is Unique.KEEP:
            self.ids[place] = holder.id
        if not holder.sent and unique is Unique.KEEP:
            self.kept.add(place)
        elif not holder.sent:
            self.taken[place] = holder.id


class Producer:
    """Turns messages into batches of rows."""

    def __init__(
        self,
        process: Process,
        ids: IdSource,
        *,
        following: Following,
        placement: Placement,
        hooks: tuple[Hook, ...],
        arrived: Arrived,
        history: History,
    ) -> None:
        """Send under the settings that are followed; `arrived` is told of each batch that is in the store."""
        self._history = history
        self._arrived = arrived
        self._process = process
        self._ids = ids
        self._following = following
        self._hooks = hooks
        self._placement = placement
        ring = Ring(following.settings.name, following.settings.layout)
        self._uniquely = Uniquely(process, ids, ring=ring, arrived=arrived)

    @property
    def _settings(self) -> Settings:
        return self._following.settings

    def send(self, message: Message) -> Steps[Sent]:
        """Send one message; it is in the store when this returns."""
        now = self._process.now()
        composed = self._composed(Composer(self._settings, now), message.body, message)
        sent = (yield from self._send_unique(composed)) if composed.unique else (yield from self._send_plain(composed, now))
        for hook in self._hooks if sent.new else ():
            told(hook.after_send, message, sent.id)
        return sent

    def _send_unique(self, composed: Composed) -> Steps[Sent]:
        holder = yield from self._uniquely.send(composed)
        yield from self._tell_of({0: holder}, {0: composed})
        return Sent(holder.id, holder.sent)

    def _send_plain(self, composed: Composed, now: int) -> Steps[Sent]:
        sent = yield from self._place_and_insert([composed], now)
        return Sent(sent[0])

    def send_many(self, items: Iterable[object], options: Message) -> Steps[SendReport]:
        """Send bodies under these options, or `Message`s under their own; those of one row go together.

        An error says nothing of what was sent before it.
        """
        report = SendReport()
        source = iter(items)
        while chunk := list(islice(source, _CHUNK)):
            yield from self._send_chunk([_body_and_options(item, options) for item in chunk], report)
        return report

    def _send_chunk(self, chunk: list[tuple[object, Message]], report: SendReport) -> Steps[None]:
        first, now = len(report.ids), self._process.now()
        composer = Composer(self._settings, now)
        composed: list[Composed | None] = []
        for body, options in chunk:
            try:
                composed.append(self._composed(composer, body, options))
            except Vetoed as veto:
                report.vetoed[first + len(composed)] = str(veto)
                composed.append(None)
        report.ids.extend([None] * len(chunk))
        yield from self._send_unique_of(composed, report, first=first)
        sent = yield from self._place_and_insert(composed, now)
        for place, id_ in sent.items():
            report.ids[first + place] = id_
        self._tell(chunk, [None if place in report.kept else id_ for place, id_ in enumerate(report.ids[first:], first)])

    def _send_unique_of(self, composed: list[Composed | None], report: SendReport, *, first: int) -> Steps[None]:
        """Send those that have unique keys, and take them out of what is to be sent."""
        unique = {place: one for place, one in enumerate(composed) if one and one.unique}
        holders = yield from self._uniquely.send_many(unique)
        yield from self._tell_of(holders, unique)
        for place, holder in holders.items():
            report.held(first + place, holder, unique[place].unique)
            composed[place] = None

    def _place_and_insert(self, composed: Sequence[Composed | None], now: int) -> Steps[dict[int, MessageId]]:
        """Insert those that are no None, and say by place which messages they are."""
        sent: dict[int, MessageId] = {}
        by_row: dict[str, tuple[list[Put], list[int]]] = {}
        for (due, spot), places in sorted(self._placement.groups(composed).items()):
            drawn = self._ids.block(len(places), due)  # ids drawn together are of one moment
            row = self._placement.row(moment(drawn[0]), spot)
            puts, placed = by_row.setdefault(row, ([], []))
            placed += places
            for place, id_ in zip(places, drawn, strict=True):
                if one := composed[place]:
                    puts.append(message_put(one.priority, id_, one.value, sent=now))
                    sent[place] = MessageId(row, one.priority, id_)
        keyed = [(one.key, sent[place]) for place, one in enumerate(composed) if one and one.key is not None]
        yield from leave_hints(self._process, keyed)  # first, so that no message of a key is missed
        parts = [part for row, (puts, placed) in by_row.items() for part in _parts(row, puts, placed)]
        yield from self._insert(parts, sent, composed)
        return sent

    def _insert(self, parts: Sequence[_Part], sent: Mapping[int, MessageId], composed: Sequence[Composed | None]) -> Steps[None]:
        """Insert batches side by side, so many at a time, each with what the history is to know of its messages."""
        for first in range(0, len(parts), _TOGETHER):
            together = parts[first : first + _TOGETHER]
            told = [(sent[place], composed[place]) for part in together for place in part.places] if self._history.wants(Kind.SENT) else []
            beside = self._history.beside(self._history.events.of_sending(id_, one) for id_, one in told if one)
            yield from send(self._process, *[part.batch for part in together], beside=beside)
            yield from self._arrived([(part.batch.row, moment(part.batch.puts[0].name.id)) for part in together])

    def _tell_of(self, holders: Mapping[int, Holder], composed: Mapping[int, Composed]) -> Steps[None]:
        """Tell the history of what was sent with unique keys, and what was cancelled for it."""
        if self._history.wants(Kind.SENT):
            events, sent = self._history.events, {place: holder for place, holder in holders.items() if holder.sent}
            gone = [(holder.replaced, composed[place].key) for place, holder in sent.items() if holder.replaced]
            cancelled = [events.of_order(Kind.CANCELLED, id_, key, why="replaced") for id_, key in gone]
            yield from self._history.tell([*cancelled, *(events.of_sending(one.id, composed[place]) for place, one in sent.items())])

    def _composed(self, composer: Composer, body: object, options: Message) -> Composed:
        composed = composer.compose(body, options)
        for hook in self._hooks:
            hook.before_send(replace(options, body=body))
        return composed

    def _tell(self, chunk: list[tuple[object, Message]], ids: list[MessageId | None]) -> None:
        if not self._hooks:
            return
        sent = [(replace(options, body=body), id_) for (body, options), id_ in zip(chunk, ids, strict=True) if id_]
        for hook, (message, id_) in product(self._hooks, sent):
            told(hook.after_send, message, id_)


def as_message(item: object, options: Message) -> Message:
    """What is to be sent: a `Message` as it is, anything else as a body under these options. BadInput for both together."""
    body, own = _body_and_options(item, options)
    return own if own is item else replace(own, body=body)


def _body_and_options(item: object, options: Message) -> tuple[object, Message]:
    """What is to be sent, and under which options: those of a `Message` are its own, and others beside it would be lost."""
    if not isinstance(item, Message):
        return item, options
    if options != _NO_OPTIONS and (given := [name for name, usual in _OPTIONS.items() if getattr(options, name) != usual]):
        problem = (
            f"a Message has options of its own, so {', '.join(f'{name}=' for name in given)} beside it would be lost: "
            f"say {'it' if len(given) == 1 else 'them'} in the Message, or send its body"
        )
        raise BadInput(problem)
    return item.body, item


def _parts(row: str, puts: list[Put], places: list[int]) -> Iterator[_Part]:
    """Batches of one row, each within the bounds of a batch."""
    first = size = 0
    for at, put in enumerate(puts):
        if at > first and (at - first >= _ROWS or size + len(put.value) > _BYTES):
            yield _Part(Batch(row, tuple(puts[first:at])), places[first:at])
            first, size = at, 0
        size += len(put.value)
    if puts:
        yield _Part(Batch(row, tuple(puts[first:])), places[first:])
