"""Replays a journal into a queue: a message for each record, with an id that follows from the record.

A replay that is repeated, after a crash or by mistake, sends only what is missing: each send is idempotent. A message
of a spool keeps its first id in the queue it was sent to, so that what was forwarded is not sent again either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from astyqueue import ids
from astyqueue.clock import instant
from astyqueue.errors import BadInput, Vetoed
from astyqueue.journal import JSON, ReadOnlyJournal, Record
from astyqueue.journal.read_only_journal import Readable, Since, check_there
from astyqueue.journal.records import Place
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message, MessageEncoder, with_policy_of_queue
from astyqueue.protocol.layout.columns import message_name
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.layout.unique_key import removed_name
from astyqueue.protocol.sending.idempotent import numbered_id
from astyqueue.protocol.steps import Client, Steps, call_local, read_one
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.hooks import Hook, notified
from astyqueue.queue.producing.idempotent import IdentifiedMessage, RepeatableSender
from astyqueue.queue.producing.placement import Placement
from astyqueue.queue.producing.spooled import identified
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.spool import RefusedMessage, SpooledMessage
from astyqueue.store import Named
from astyqueue.units import SECOND

#: Records of one step: their messages are sent together.
_LOT: Final = 500

#: The body of a record's message, or a `Message` with its options.
MessageOf = Callable[[Record[Any]], object]
Source = Readable[Any] | str | os.PathLike[str]


@dataclass(slots=True)
class ReplayReport:
    """What a replay did: records `read`, and of those `sent`, `there` before, and `skipped` by `where` or by a hook.

    `sequence` is that of the last record that was read. In a dry run nothing is `sent`: what is neither `there` nor
    `skipped` would be.
    """

    read: int = 0
    sent: int = 0
    there: int = 0
    skipped: int = 0
    sequence: int = 0
    dry_run: bool = False

    def as_json(self) -> dict[str, object]:
        """The same as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Which records are replayed, and how; `MessageQueue.replay` explains them."""

    since: Since | None = None
    until: Since | Place | None = None
    where: Callable[[Record[Any]], bool] | None = None
    message: MessageOf | None = None
    source: str | None = None
    again: bool = False
    dry_run: bool = False
    prefix: str = "journal"


class Replay:
    """One replay, some records at a time. Close it, which also closes a journal that it opened itself."""

    def __init__(
        self,
        process: Client,
        journal: Source,
        options: ReplayOptions,
        *,
        settings_sync: SettingsSync,
        placement: Placement,
        hooks: tuple[Hook, ...],
        claimer: Claimer,
    ) -> None:
        """Nothing is read yet; a folder is opened for reading, NotFound if it has no such journal."""
        self.report: Final = ReplayReport(dry_run=options.dry_run)
        self._held: Final = ExitStack()
        self._settings_sync: Final = settings_sync
        self._placement: Final = placement
        self._hooks: Final = hooks
        self._options: Final = options
        self._made: Final[MessageOf] = options.message or _value
        if isinstance(journal, str | os.PathLike):
            check_there(journal, options.prefix, option="prefix=")
            opened = ReadOnlyJournal.open(journal, codec=StoredCodec(), prefix=options.prefix)
            journal = self._held.enter_context(opened)
        again = f"/{process.nonce().hex()}" if options.again else ""
        self._source: Final = (options.source or journal.place) + again
        self._reader: Final = self._held.enter_context(journal.read(since=options.since, until=options.until))
        self._sender: Final = RepeatableSender(process, settings_sync, claimer)

    def go_on(self) -> Steps[bool]:
        """Replay the next records; False if there is none now. After an error, a new replay continues."""
        records = yield from call_local(partial(self._reader.take, _LOT))
        if not records:
            return False
        wanted = [record for record in records if self._options.where is None or self._options.where(record)]
        made = [(record, self._message(record)) for record in wanted]
        admitted = [(record, message) for record, message in made if self._is_admitted(message)]
        found = [self._identified(record, message) for record, message in admitted]
        if self._options.dry_run:
            self.report.there += yield from _count_there([one.id for one in found])
        else:
            sent = yield from self._sender.send(found)
            messages = {one.id: message for one, (_, message) in zip(found, admitted, strict=True)}
            self._call_after_send(messages, sent)
            self.report.sent += len(sent)
            self.report.there += len(found) - len(sent)
        self.report.read += len(records)
        self.report.skipped += len(records) - len(found)
        self.report.sequence = records[-1].sequence
        return True

    def _message(self, record: Record[Any]) -> Message:
        made = self._made(record)
        message = made if isinstance(made, Message) else Message(made)
        if with_policy_of_queue(message, self._settings_sync.settings).unique is not None:
            problem = (
                f"record {record.sequence}: a replayed message has no unique key: leave out unique=, and in a queue "
                "with last_value the key"
            )
            raise BadInput(problem)
        return message

    def _is_admitted(self, message: Message) -> bool:
        try:
            for hook in self._hooks:
                hook.before_send(message)
        except Vetoed:
            return False
        return True

    def _identified(self, record: Record[Any], message: Message) -> IdentifiedMessage:
        """The message as it would have been sent when the record arrived, so that it is the same at every replay."""
        if isinstance(message, _SpooledBefore) and not self._options.again and self._has_place_of(message.spooled.id):
            return identified(message.spooled)
        try:
            prepared = MessageEncoder(self._settings_sync.settings, record.arrived_us).prepare(message.body, message)
        except BadInput as error:
            problem = f"record {record.sequence} cannot be replayed: {error}"
            raise BadInput(problem) from error
        id_ = numbered_id(self._source, record.sequence, max(prepared.due, record.arrived_us))
        row = self._placement.row_of_numbered(prepared, ids.moment(id_), record.sequence)
        return IdentifiedMessage(MessageId(row, prepared.priority, id_), prepared)

    def _has_place_of(self, id_: MessageId) -> bool:
        """Whether this is the queue that the message was sent to, still with its row and priority."""
        layout = self._settings_sync.settings.layout
        return Ring(self._settings_sync.settings.name, layout).contains(id_.row) and id_.priority < layout.priorities

    def _call_after_send(self, messages: dict[MessageId, Message], sent: Iterable[MessageId]) -> None:
        for id_ in sent if self._hooks else ():
            for hook in self._hooks:
                notified(hook.after_send, messages[id_], id_)

    def close(self) -> None:
        """Leave the journal."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpooledBefore(Message):
    """The message of a record of a spool, and what the record has."""

    spooled: SpooledMessage


def _count_there(wanted: Iterable[MessageId]) -> Steps[int]:
    """How many of these messages are in the queue, or have the mark of having been settled.

    Messages are read first, then marks: one settle deletes the message and writes the mark.
    """
    by_row: dict[str, list[MessageId]] = {}
    for one in wanted:
        by_row.setdefault(one.row, []).append(one)
    there = 0
    for row, some in by_row.items():
        messages = tuple(message_name(one.priority, one.id) for one in some)
        present = {column.name for column in (yield from read_one(Named(row, messages, values=False), exact=True))}
        absent = [one for one, name in zip(some, messages, strict=True) if name not in present]
        marks = tuple(removed_name(one.priority, one.id) for one in absent)
        there += len(present) + len((yield from read_one(Named(row, marks, values=False), exact=True)) if marks else ())
    return there


def _value(record: Record[Any]) -> object:
    return record.value


class StoredCodec:
    """Values of journals that astyqueue wrote: the `Message` of a record of a spool, otherwise JSON."""

    def encode(self, value: object) -> bytes:
        """JSON."""
        return JSON.encode(value)

    def decode(self, data: bytes) -> object:
        """A `Message`, or the value; ValueError if it is neither."""
        spooled = _spooled(data)
        return JSON.decode(data) if spooled is None else spooled


def _spooled(data: bytes) -> Message | None:
    """The message of a record of a spool; None for any other record."""
    with suppress(ValueError):
        data = RefusedMessage.parse(data).message
    try:
        one = SpooledMessage.parse(data)
        envelope = one.envelope
    except (ValueError, BadInput):
        return None
    return _SpooledBefore(
        envelope.body,
        key=envelope.key,
        at=instant(envelope.due or envelope.sent),
        priority=one.id.priority,
        headers=envelope.headers,
        expires=None if envelope.expires is None else instant(envelope.expires),
        lease=None if envelope.lease is None else envelope.lease / SECOND,
        max_attempts=envelope.attempts,
        group=envelope.group,
        spooled=one,
    )
