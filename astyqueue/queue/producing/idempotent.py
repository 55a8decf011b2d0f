"""Sends messages that may have been sent before: each has an id of its own, and is in its row at most once.

A message is written unless it is there or the mark of its settling is: for `deduplication` (a day, by default) after it
was settled. One that was cleared, or purged as a dead letter, leaves no mark and is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from astyqueue.errors import NotFound
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.model.message import PreparedMessage
from astyqueue.protocol.history import first_sent
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.idempotent import (
    IdempotentMessage,
    IdempotentSender,
    idempotent_from_encoded,
    idempotent_message,
)
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.producing.producer import SendListener
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.units import SECOND

#: Microseconds by which the clocks of processes may differ.
_APART: Final = 60 * SECOND


class IdentifiedMessage(NamedTuple):
    """A message and the id that it has whenever it is sent."""

    id: MessageId
    prepared: PreparedMessage


class RepeatableSender:
    """Idempotent sends of one process to one queue; to each row by one thread or task at a time."""

    def __init__(self, process: Client, settings_sync: SettingsSync, listener: SendListener) -> None:
        """`listener` counts what is sent, wakes consumers, and has the history."""
        self._process = process
        self._settings_sync = settings_sync
        self._ring = Ring(settings_sync.settings.name, settings_sync.settings.layout)
        self._listener = listener
        self._rows: dict[str, IdempotentSender] = {}

    def send(self, messages: Sequence[IdentifiedMessage]) -> Steps[list[MessageId]]:
        """Send those that neither are there nor were settled, in order; returns their ids.

        After an error any of them may have been sent: repeat the call.
        """
        by_row: dict[str, list[IdentifiedMessage]] = {}
        for one in messages:
            by_row.setdefault(one.id.row, []).append(one)
        if strange := [row for row in by_row if not self._ring.contains(row)]:
            message = f"queue {self._ring.queue!r} has no row {strange[0]!r}: the message was sent to another layout"
            raise NotFound(message)
        sent: list[MessageId] = []
        for row, some in by_row.items():
            sent += yield from self._send_to(row, some)
        self._listener.stats.add("sent", len(sent))
        return sent

    def _send_to(self, row: str, messages: list[IdentifiedMessage]) -> Steps[list[MessageId]]:
        keyed = [(one.prepared.key, one.id) for one in messages if one.prepared.key is not None]
        yield from write_key_hints(self._process, keyed)
        seconds = self._settings_sync.behaviour.deduplication_us // SECOND
        # After an error, what a sender knows of its row may be outdated: then the next one reads it.
        sender = self._rows.pop(row, None) or IdempotentSender(self._process, row)
        put = yield from sender.send([_repeatable(one, seconds) for one in messages])
        self._rows[row] = sender
        if put:
            yield from self._listener.announce([(row, None)])
        new = {one.id for one in put}
        yield from self._record(messages, [one for one in messages if one.id.id not in new])
        return [one.id for one in messages if one.id.id in new]

    def _record(self, messages: Sequence[IdentifiedMessage], before: Sequence[IdentifiedMessage]) -> Steps[None]:
        """Write the events of sending to the history, if it keeps them, at the moment of this write.

        The process that sent those that were there `before` may have died before it wrote theirs: they are looked up.
        """
        history = self._listener.history
        if not history.wants(Kind.SENT):
            return
        now = self._process.now()
        recorded: set[MessageId] = set()
        if before:
            since = min(one.prepared.sent for one in before) - _APART
            recorded = yield from first_sent(self._ring, [one.id for one in before], since=since, until=now + _APART)
        missing = [one for one in messages if one.id not in recorded]
        yield from history.write([replace(history.events.of_sending(one.id, one.prepared), at=now) for one in missing])


def _repeatable(one: IdentifiedMessage, seconds: int) -> IdempotentMessage:
    """The message as one that may be sent again, the cheap way unless it has a group."""
    make = idempotent_from_encoded if one.prepared.group is None else idempotent_message
    return make(one.prepared.value, one.prepared.priority, one.id.id, seconds=seconds)
