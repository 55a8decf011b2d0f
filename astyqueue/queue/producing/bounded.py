"""Sends to a queue that may have a bound, `max_messages`: they refuse, wait, delete old messages or go elsewhere.

A producer does not count for each send. A count gives its process credit for a tenth of the room that it found, and
only when this is used up the next send counts again. So each process that sends exceeds the bound by a tenth of it at
most, however many messages the others send. What its threads are sending at the moment of another process's count, and
what is not sent by a producer (see docs/how-to/kinds-of-queue.md), comes on top.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import NotFound, QueueFull, Vetoed
from astyqueue.ids import IdSource
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.model.message import Message, MessageEncoder, PreparedMessage, with_policy_of_queue
from astyqueue.model.settings import BLOCK, DROP_OLDEST, FORWARD, Behaviour, Settings
from astyqueue.protocol.admin.bounded_queue import Depth, delete_waiting, measure
from astyqueue.protocol.admin.settings import load_settings
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.key_state import keys_with_owner
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.expiry_sweep import ExpirySweep
from astyqueue.queue.hooks import Hook, call_after_delete
from astyqueue.queue.producing.placement import Placement
from astyqueue.queue.producing.producer import Producer, SendListener, SendReport, Sent
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Rest, Wakeup

#: A count gives credit for this part of the room.
_PART: Final = 10
#: The pause after a count that found the queue full: the least, and as a multiple of what the count took, so that a
#: process counts for a fifth of its time at most; and the longest, for a store that is slow to answer.
_PAUSE: Final = SECOND // 100
_PAUSES: Final = 4
_PAUSE_AT_MOST: Final = SECOND
#: The most credit where a send deletes, and the most messages that it deletes: more than the credit, so that a queue
#: that was far above its bound comes down.
_CREDIT_TO_DELETE: Final = 1_000
_DELETED_AT_ONCE: Final = 2 * _CREDIT_TO_DELETE
#: Why a message was deleted, for hooks and the history.
OVERFLOW: Final = "overflow"
_NO_OPTIONS: Final = Message(None)

#: Opens the producer of another queue of the same store, given the names of the queues that forward to it.
OpensProducer = Callable[[Settings, frozenset[str]], Producer]


class SendCredit:
    """The messages that this process may still send before it counts again; used by all its threads.

    `full_until`: the last count found no room, and until this moment no other is made. `counted`: what it found.
    """

    def __init__(self) -> None:
        """Without credit."""
        self.full_until: MonotonicUs = BEGINNING
        self.counted = 0
        self._lock = threading.Lock()
        self._left = 0
        self._limit = 0
        self._under_way = 0
        self._taken = 0

    def take(self, wanted: int, limit: int) -> int:
        """Take credit for up to `wanted` messages; none if it was given for another limit.

        Without a limit, for all of them: it may be removed while a sender waits for room.
        """
        with self._lock:
            if limit:
                taken = min(wanted, self._left) if limit == self._limit else 0
                self._left -= taken
            else:
                taken = wanted
            self._under_way += taken
            self._taken += taken
            return taken

    @contextlib.contextmanager
    def sending(self, taken: int) -> Iterator[None]:
        """While the block lasts a count may not see these messages."""
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= taken

    @property
    def unseen(self) -> tuple[int, int]:
        """Messages in flight, and the take counter that `give(since=)` needs; read both before a count."""
        with self._lock:
            return self._under_way, self._taken

    def give(self, credit: int, limit: int, *, counted: int, since: int) -> None:
        """Replace the credit after a count; what other threads took `since` it began is deducted."""
        with self._lock:
            self._left = max(0, credit - (self._taken - since))
            self._limit = limit
            self.counted = counted


class BoundedProducer(Producer):
    """Sends messages, up to the bound of their queue if that has one."""

    def __init__(
        self,
        process: Client,
        ids: IdSource,
        *,
        settings_sync: SettingsSync,
        placement: Placement,
        hooks: tuple[Hook, ...],
        listener: SendListener,
        clock: Clock,
        opens: OpensProducer,
        forwarding: frozenset[str] = frozenset(),
        credit: SendCredit | None = None,
        expiry: ExpirySweep | None = None,
    ) -> None:
        """`forwarding`: the queues whose messages come here by overflow. `credit`: that of a transaction's queue.

        With `expiry`, sends look for expired messages from time to time, as there may be no consumer to do that.
        """
        super().__init__(process, ids, settings_sync=settings_sync, placement=placement, hooks=hooks, listener=listener)
        self._clock = clock
        self._opens = opens
        self._forwarding = forwarding | {settings_sync.settings.name}
        self._credit = credit or SendCredit()
        self._in_transaction = credit is not None
        self._expiry = expiry
        self._overflow_producers: dict[str, Producer] = {}

    def reporting_to(self, listener: SendListener, hooks: tuple[Hook, ...]) -> Producer:
        """As of every producer, for a transaction: it does not wait and forwards nothing, but refuses."""
        return BoundedProducer(
            self._process,
            self._ids,
            settings_sync=self._settings_sync,
            placement=self._placement,
            hooks=hooks,
            listener=listener,
            clock=self._clock,
            opens=self._opens,
            credit=self._credit,
        )

    @property
    def _behaviour(self) -> Behaviour:
        return self._settings_sync.behaviour

    def _keep_up(self) -> Steps[None]:
        yield from super()._keep_up()
        if self._expiry and (row := (yield from self._expiry.next_row())):
            self._expiry.call_hooks()
            yield from self._listener.announce([(row, None)])

    def _send_prepared(self, message: Message, prepared: PreparedMessage, now: int) -> Steps[Sent]:
        """Send one message here, or to the overflow queue."""
        if not self._behaviour.max_messages:
            return (yield from super()._send_prepared(message, prepared, now))
        taken = self._credit.take(1, self._behaviour.max_messages)
        if not taken and prepared.unique and (yield from _keys_with_owner(self._ring, [str(prepared.key)])):
            return (yield from super()._send_prepared(message, prepared, now))
        taken = taken or (yield from self._admitted(1))
        if not taken:
            return (yield from self._forward(message))
        with self._credit.sending(taken):
            return (yield from super()._send_prepared(message, prepared, now))

    def _send_chunk(self, chunk: list[tuple[object, Message]], report: SendReport) -> Steps[None]:
        """Send as many here as there is room for; then wait for more, or send the rest elsewhere."""
        behaviour, wanted = self._behaviour, len(chunk)
        if not behaviour.max_messages:
            yield from super()._send_chunk(chunk, report)
            return
        done, owned, is_read = 0, set[int](), False
        while done < wanted:
            end, taken = wanted, self._credit.take(wanted - done, self._behaviour.max_messages)
            if not (taken or is_read):
                owned, is_read = (yield from self._with_owner(chunk)), True
            if not taken:
                end = next((place for place in range(done, wanted) if (place in owned) != (done in owned)), wanted)
            if not taken and done in owned:
                yield from super()._send_chunk(chunk[done:end], report)
                done = end
                continue
            taken = taken or (yield from self._admitted(end - done, before=report.sent))
            part = chunk[done : done + taken if taken else end]
            done += len(part)
            if not taken:
                yield from self._forward_chunk(part, report)
                continue
            with self._credit.sending(taken):
                yield from super()._send_chunk(part, report)
        if behaviour.overflow == DROP_OLDEST and wanted > _excess(behaviour.max_messages) and not self._in_transaction:
            yield from self._delete_excess(behaviour.max_messages)

    def _with_owner(self, chunk: Sequence[tuple[object, Message]]) -> Steps[set[int]]:
        """The positions of the messages with unique keys that other messages have."""
        settings = self._settings_sync.settings
        encoder = MessageEncoder(settings, self._process.now())
        with_policy = [(body, with_policy_of_queue(options, settings)) for body, options in chunk]
        unique = {place: one for place, one in enumerate(with_policy) if one[1].unique is not None}
        keys = {place: str(encoder.prepare(*one).key) for place, one in unique.items()}
        owned = yield from _keys_with_owner(self._ring, keys.values())
        return {place for place, key in keys.items() if key in owned}

    def _admitted(self, wanted: int, *, before: int = 0) -> Steps[int]:
        """How many of `wanted` messages may be sent here now: at least one, or none if they are to be forwarded.

        Raises QueueFull if they may not be sent; `before`: the messages that the same call has sent already.
        """
        patience = self._clock.monotonic() + self._behaviour.overflow_wait_us
        while not (taken := self._credit.take(wanted, (behaviour := self._behaviour).max_messages)):
            now = self._clock.monotonic()
            full = now < self._credit.full_until
            waits = behaviour.overflow == BLOCK and not self._in_transaction and now < patience
            if full and waits:
                yield Rest(Wakeup(self._clock), min(self._credit.full_until, patience))
            elif full and behaviour.overflow == FORWARD and not self._in_transaction:
                return 0
            elif full:
                self._listener.stats.add("refused", wanted)
                raise self._full(behaviour, before)
            else:
                yield from self._count(wanted, behaviour)
        return taken

    def _full(self, behaviour: Behaviour, before: int) -> QueueFull:
        return QueueFull(
            self._ring.queue,
            counted=self._credit.counted,
            limit=behaviour.max_messages,
            waited=behaviour.overflow_wait_us if behaviour.overflow == BLOCK and not self._in_transaction else 0,
            sent=before,
        )

    def _count(self, wanted: int, behaviour: Behaviour) -> Steps[None]:
        """Count the messages of the queue, and give credit; where the oldest are to go, delete as many as needed."""
        limit, deletes = behaviour.max_messages, behaviour.overflow == DROP_OLDEST
        began, (under_way, taken) = self._clock.monotonic(), self._credit.unseen
        reach = _DELETED_AT_ONCE if deletes else 0
        depth = yield from self._depth(limit, reach)
        room = limit - depth.messages - under_way
        if room <= 0 and not deletes and (yield from self._bury_expired()):
            yield from self._count(wanted, behaviour)
            return
        if deletes:
            yield from self._delete(depth.oldest[: max(0, wanted - room)])
            credit = max(wanted, _excess(limit))
        else:
            credit = -(-max(0, room) // _PART)
        self._credit.give(credit, limit, counted=depth.messages, since=taken)
        if not credit:
            ended = self._clock.monotonic()
            self._credit.full_until = ended + min(max(_PAUSE, _PAUSES * (ended - began)), _PAUSE_AT_MOST)

    def _bury_expired(self) -> Steps[bool]:
        """Before a send is refused, find expired messages in all rows: its process may not live for a minute."""
        rows = (yield from self._expiry.all_rows()) if self._expiry else []
        if rows and self._expiry:
            self._expiry.call_hooks()
            yield from self._listener.announce([(row, None) for row in rows])
        return bool(rows)

    def _depth(self, limit: int, reach: int) -> Steps[Depth]:
        rows, levels = self._ring.rows(), self._ring.layout.priorities
        return (yield from measure(self._process, rows, levels, most=limit + reach, oldest=reach))

    def _delete_excess(self, limit: int) -> Steps[None]:
        """Delete what is above the limit now: a call may have sent more at once than a count gives credit for."""
        depth = yield from self._depth(limit, _DELETED_AT_ONCE)
        yield from self._delete(depth.oldest[: max(0, depth.messages - limit)])

    def _delete(self, oldest: Sequence[MessageId]) -> Steps[None]:
        """Delete these messages unless a consumer has one meanwhile; count, record and announce it."""
        if not oldest:
            return
        events = yield from self._history.of_command(Kind.CANCELLED, oldest, why=OVERFLOW)
        deleted: list[MessageId] = []
        try:
            yield from delete_waiting(self._process, oldest, deleted.extend)
        except Exception:  # what was deleted until then is gone
            yield from self._deleted(deleted, events)
            raise
        yield from self._deleted(deleted, events)

    def _deleted(self, deleted: Sequence[MessageId], events: Sequence[Event]) -> Steps[None]:
        gone = set(deleted)
        self._listener.stats.add("evicted", len(deleted))
        call_after_delete(self._hooks, deleted, OVERFLOW)
        yield from self._history.write_or_buffer([event for event in events if event.message in gone])
        yield from self._listener.announce([(row, None) for row in {one.row for one in deleted}])

    def _forward(self, message: Message) -> Steps[Sent]:
        producer = yield from self._overflow_producer(before=0)
        try:
            sent = yield from producer.send(producer.adapted(message))
        except NotFound as dropped:
            raise self._without_overflow(0) from dropped
        self._listener.stats.add("forwarded")
        return sent

    def _forward_chunk(self, chunk: list[tuple[object, Message]], report: SendReport) -> Steps[None]:
        producer = yield from self._overflow_producer(before=report.sent)
        part = SendReport([None] * len(chunk))
        messages: dict[int, Message] = {}
        for place, (body, options) in enumerate(chunk):
            message = replace(options, body=body)
            try:
                for hook in self._hooks:
                    hook.before_send(message)
            except Vetoed as veto:
                part.vetoed[place] = str(veto)
            else:
                messages[place] = producer.adapted(message)
        try:
            sent = yield from producer.send_many(messages.values(), _NO_OPTIONS)
        except QueueFull as full:
            raise full.after(report.sent) from full
        except NotFound as dropped:
            raise self._without_overflow(report.sent) from dropped
        places = list(messages)
        for number, id_ in enumerate(sent.ids):
            part.ids[places[number]] = id_
        part.taken = {places[number]: holder for number, holder in sent.taken.items()}
        part.kept = {places[number] for number in sent.kept}
        part.vetoed |= {places[number]: reason for number, reason in sent.vetoed.items()}
        report.extend(part)
        self._listener.stats.add("forwarded", part.sent)
        self._call_after_send(chunk, [None if place in part.kept else id_ for place, id_ in enumerate(part.ids)])

    def _overflow_producer(self, *, before: int) -> Steps[Producer]:
        """The producer of the overflow queue; QueueFull if it is gone, or forwards to this one."""
        name = self._behaviour.overflow_to
        if name not in self._overflow_producers:
            settings = None if name in self._forwarding else (yield from load_settings(name))
            if settings is None:
                raise self._full(self._behaviour, before)
            self._overflow_producers[name] = self._opens(settings, self._forwarding)
        return self._overflow_producers[name]

    def _without_overflow(self, before: int) -> QueueFull:
        """The error once the overflow queue was dropped; one that was created again is opened by the next send."""
        self._overflow_producers.clear()
        return self._full(self._behaviour, before)


def _keys_with_owner(ring: Ring, keys: Iterable[str]) -> Steps[set[str]]:
    """Those of these unique keys that messages have.

    Another message with such a key needs no room: it is kept out, or takes the place of the other.
    """
    by_row: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        by_row.setdefault(ring.home(ring.shard_of_key(key)), []).append(key)
    owned: set[str] = set()
    for row, some in by_row.items():
        owned |= yield from keys_with_owner(row, some)
    return owned


def _excess(limit: int) -> int:
    """By how much a process may exceed the limit of a queue whose oldest messages are deleted for new ones."""
    return min(_CREDIT_TO_DELETE, -(-limit // _PART))
