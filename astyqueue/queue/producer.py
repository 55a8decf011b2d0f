"""Sending: messages are checked, given ids, grouped by row and inserted; nothing is read and nobody is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Final

from astyqueue.errors import Vetoed
from astyqueue.ids import Id, IdSource, moment
from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import Composed, Message, compose
from astyqueue.model.settings import Settings
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.send import message_put, send
from astyqueue.protocol.steps import Steps
from astyqueue.queue.following import Following
from astyqueue.queue.hooks import Hook, told
from astyqueue.store import Batch, Put

#: Messages composed at a time, so that any number of them is sent in bounded memory.
_CHUNK: Final = 1_000
#: Bounds of one batch, which is one write of one row: columns, and bytes of their values.
_ROWS: Final = 200
_BYTES: Final = 512 * 1024


@dataclass(frozen=True, slots=True)
class Sent:
    """Where a message went. `new` is False when an earlier one was kept in its place."""

    id: MessageId
    new: bool = True


@dataclass(slots=True)
class SendReport:
    """What became of many messages: their ids in order, None for one that a hook refused, and why those were."""

    ids: list[MessageId | None] = field(default_factory=list)
    vetoed: dict[int, str] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """How many are in the store."""
        return len(self.ids) - len(self.vetoed)


class Producer:
    """Turns messages into batches of rows."""

    def __init__(self, process: Process, ids: IdSource, *, following: Following, hooks: tuple[Hook, ...]) -> None:
        """Send under the settings that are followed."""
        self._process = process
        self._ids = ids
        self._following = following
        self._hooks = hooks
        self._ring = Ring(following.settings.name, following.settings.layout)
        self._turn = count()

    @property
    def _settings(self) -> Settings:
        return self._following.settings

    def send(self, message: Message) -> Steps[Sent]:
        """Send one message; it is in the store when this returns."""
        composed = self._composed(message)
        [(row, placed)] = self._placed([composed]).items()
        [(_, put)] = placed
        yield from send(self._process, Batch(row, (put,)))
        id_ = MessageId(row, composed.priority, put.name.id)
        self._told(message, id_)
        return Sent(id_)

    def send_many(self, items: Iterable[object], defaults: Message) -> Steps[SendReport]:
        """Send bodies or `Message`s; those of one row go together. An error says nothing of the chunks sent before it."""
        report = SendReport()
        source = iter(items)
        while chunk := list(islice(source, _CHUNK)):
            yield from self._send_chunk([as_message(item, defaults) for item in chunk], report)
        return report

    def _send_chunk(self, chunk: list[Message], report: SendReport) -> Steps[None]:
        first = len(report.ids)
        composed: list[Composed | None] = []
        for place, message in enumerate(chunk, first):
            try:
                composed.append(self._composed(message))
            except Vetoed as veto:
                composed.append(None)
                report.vetoed[place] = str(veto)
        report.ids.extend([None] * len(chunk))
        for row, placed in self._placed(composed).items():
            for batch in _batches(row, [put for _, put in placed]):
                yield from send(self._process, batch)
            for place, put in placed:
                report.ids[first + place] = id_ = MessageId(row, put.name.priority, put.name.id)
                self._told(chunk[place], id_)

    def _composed(self, message: Message) -> Composed:
        composed = compose(message, self._settings, self._process.now())
        for hook in self._hooks:
            hook.before_send(message)
        return composed

    def _told(self, message: Message, id_: MessageId) -> None:
        for hook in self._hooks:
            told(hook.after_send, message, id_)

    def _placed(self, composed: list[Composed | None]) -> dict[str, list[tuple[int, Put]]]:
        """The puts of each row, with the place of each message in the list. Messages without a key share the next shard in turn."""
        now = self._process.now()
        turn = next(self._turn) % self._ring.layout.concurrency_shards
        dues: dict[int, list[int]] = {}
        for place, one in enumerate(composed):
            if one is not None:
                dues.setdefault(one.due, []).append(place)
        placed: dict[str, list[tuple[int, Put]]] = {}
        for due, places in dues.items():
            for place, id_ in zip(places, self._ids.block(len(places), due), strict=True):
                one = composed[place]
                if one is not None:
                    row = self._row(one, id_, turn)
                    placed.setdefault(row, []).append((place, message_put(one.priority, id_, one.value, now)))
        return placed

    def _row(self, composed: Composed, id_: Id, turn: int) -> str:
        """The row of a message: by its key if it has one, else the shard whose turn it is."""
        shard = turn if composed.key is None else self._ring.shard_of_key(composed.key)
        return self._ring.row(moment(id_), shard)


def as_message(item: object, defaults: Message) -> Message:
    """What is to be sent: a `Message` as it is, anything else as a body with the options given for all."""
    return item if isinstance(item, Message) else replace(defaults, body=item)


def _batches(row: str, puts: list[Put]) -> Iterator[Batch]:
    """Batches of one row, each within the bounds of a batch."""
    batch: list[Put] = []
    size = 0
    for put in puts:
        if len(batch) >= _ROWS or size + len(put.value) > _BYTES:
            yield Batch(row, tuple(batch))
            batch, size = [], 0
        batch.append(put)
        size += len(put.value)
    if batch:
        yield Batch(row, tuple(batch))
