"""Sending: messages are checked, given ids, grouped by row and inserted; nothing is read and nobody is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Final

from astyqueue.errors import Vetoed
from astyqueue.ids import LEAST, Id, IdSource, first_at, moment
from astyqueue.model.message import MessageId
from astyqueue.model.outgoing import Composed, Composer, Message
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
        now = self._process.now()
        composed = self._composed(Composer(self._settings, now), message.body, message)
        [(row, [(_, put)])] = self._placed([composed], now).items()
        yield from send(self._process, Batch(row, (put,)))
        id_ = MessageId(row, composed.priority, put.name.id)
        for hook in self._hooks:
            told(hook.after_send, message, id_)
        return Sent(id_)

    def send_many(self, items: Iterable[object], options: Message) -> Steps[SendReport]:
        """Send bodies under these options, or `Message`s under their own; those of one row go together.

        An error says nothing of what was sent before it.
        """
        report = SendReport()
        source = iter(items)
        while chunk := list(islice(source, _CHUNK)):
            yield from self._send_chunk([(item.body, item) if isinstance(item, Message) else (item, options) for item in chunk], report)
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
        for row, placed in self._placed(composed, now).items():
            for batch in _batches(row, [put for _, put in placed]):
                yield from send(self._process, batch)
            for place, put in placed:
                report.ids[first + place] = MessageId(row, put.name.priority, put.name.id)
        self._tell(chunk, report.ids[first:])

    def _composed(self, composer: Composer, body: object, options: Message) -> Composed:
        composed = composer.compose(body, options)
        for hook in self._hooks:
            hook.before_send(replace(options, body=body))
        return composed

    def _tell(self, chunk: list[tuple[object, Message]], ids: list[MessageId | None]) -> None:
        for hook in self._hooks:
            for (body, options), id_ in zip(chunk, ids, strict=True):
                if id_:
                    told(hook.after_send, replace(options, body=body), id_)

    def _placed(self, composed: Sequence[Composed | None], now: int) -> dict[str, list[tuple[int, Put]]]:
        """The puts of each row, with each message's place in the list."""
        dues: dict[int, list[tuple[int, Composed]]] = {}
        for place, one in enumerate(composed):
            if one is not None:
                dues.setdefault(one.due, []).append((place, one))
        shard = next(self._turn) % self._ring.layout.concurrency_shards
        placed: dict[str, list[tuple[int, Put]]] = {}
        for due, group in dues.items():
            row_of = RowOf(self._ring, shard)
            for (place, one), id_ in zip(group, self._ids.block(len(group), due), strict=True):
                put = message_put(one.priority, id_, one.value, now)
                placed.setdefault(row_of(id_, one.key), []).append((place, put))
        return placed


class RowOf:
    """Finds the rows of messages: by their key, or else in the shard whose turn it is."""

    def __init__(self, ring: Ring, shard: int) -> None:
        """Remember the row of the last id, for the next is usually of the same time shard."""
        self._ring = ring
        self._shard = shard
        self._row = ""
        self._until = LEAST

    def __call__(self, id_: Id, key: str | None) -> str:
        """The row of a message; ids come in ascending order."""
        if key is not None:
            return self._ring.row(moment(id_), self._ring.shard_of_key(key))
        if id_ >= self._until:
            self._row = self._ring.row(moment(id_), self._shard)
            self._until = first_at(self._ring.closes(moment(id_)))
        return self._row


def as_message(item: object, options: Message) -> Message:
    """What is to be sent: a `Message` as it is, anything else as a body under these options."""
    return item if isinstance(item, Message) else replace(options, body=item)


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
