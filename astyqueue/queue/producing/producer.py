"""Sends: checks messages, gives them ids and rows, and inserts them.

Messages with unique keys need a commit; the insert of all others neither reads nor conflicts. `Producer.send` is the
way of one message from its caller to the store and to the consumers that wait for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from typing import Final, NamedTuple, Protocol

from astyqueue.errors import QueueFull, StoreUnavailable, Vetoed
from astyqueue.ids import IdSource, moment
from astyqueue.journal_errors import SpoolFull
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Kind
from astyqueue.model.message import Message, MessageEncoder, PreparedMessage, Unique, own_options, with_policy_of_queue
from astyqueue.model.validation import check_several
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.insert import message_put, send
from astyqueue.protocol.sending.key_index import write_key_hints
from astyqueue.protocol.sending.unique import UniqueSendResult
from astyqueue.protocol.steps import Client, Steps, batches_within
from astyqueue.queue.delivery.follow_ups import AfterCommit
from astyqueue.queue.history_writer import HistoryWriter
from astyqueue.queue.hooks import Hook, call_after_delete, notified
from astyqueue.queue.producing.placement import Placement
from astyqueue.queue.producing.unique import commits_of, send_part, sent_or_kept
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.store import Batch, Put

#: The number of messages prepared at a time, so that any number of them is sent in bounded memory.
CHUNK: Final = 1_000
#: The number of batches sent at once.
_TOGETHER: Final = 8
#: What to do about something else than several bodies.
_SEVERAL: Final = (
    "give a list or a generator of bodies or Messages (send_many of astyqueue.aio takes an async generator too), "
    "or send one by send"
)


class _Part(NamedTuple):
    """One batch, and the positions of its messages in the order of sending."""

    batch: Batch
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class Sent:
    """The id of a sent message. `new` is False if an earlier message was kept instead, and `id` is that one's."""

    id: MessageId
    new: bool = True


@dataclass(slots=True)
class SendReport:
    """The result of `send_many`: the ids in order, None for a message that was not sent.

    By position in that order: `vetoed` has the reason of a hook that refused a message, and `taken` the message that
    has the unique key of one that was not sent. At the positions in `kept` the id is that of an earlier message with
    the key.
    """

    ids: list[MessageId | None] = field(default_factory=list)
    vetoed: dict[int, str] = field(default_factory=dict)
    taken: dict[int, MessageId] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)

    @property
    def sent(self) -> int:
        """The number of messages that were sent, without earlier ones that were kept."""
        return len(self.ids) - len(self.vetoed) - len(self.taken) - len(self.kept)

    def extend(self, later: SendReport) -> None:
        """Append the report of the messages sent next."""
        first = len(self.ids)
        self.ids += later.ids
        self.vetoed |= {first + place: reason for place, reason in later.vetoed.items()}
        self.taken |= {first + place: holder for place, holder in later.taken.items()}
        self.kept |= {first + place for place in later.kept}

    def held(self, place: int, result: UniqueSendResult, unique: Unique | None) -> None:
        """Record which message has the unique key of the one at this position."""
        if result.sent or unique is Unique.KEEP:
            self.ids[place] = result.id
        if not result.sent and unique is Unique.KEEP:
            self.kept.add(place)
        elif not result.sent:
            self.taken[place] = result.id


class SendCounter(Protocol):
    """Counts what was sent."""

    def add(self, name: str, count: int = 1) -> None:
        """Add `count` to the counter of this name."""
        ...


class SendListener(Protocol):
    """What a producer reports its sends to: the claimer of its queue, at once or after the commit of a transaction."""

    @property
    def history(self) -> HistoryWriter:
        """Writes the events of sends."""
        ...

    @property
    def stats(self) -> SendCounter:
        """Counts the messages that were sent."""
        ...

    def announce(self, rows: Sequence[tuple[str, int | None]]) -> Steps[None]:
        """Have consumers scan these rows, each with the moment at which the first message is due."""
        ...


class UncommittedSends:
    """Reports the sends of a transaction to the listener of its queue after the commit; announces none of them."""

    def __init__(self, listener: SendListener, history: HistoryWriter, after_commit: AfterCommit) -> None:
        """`history` is one of its own: what others buffered must not be rolled back with this transaction."""
        self.history = history
        self.stats = self  # as `SendListener.stats`: `add` counts after the commit
        self._listener = listener
        self._after_commit = after_commit

    def add(self, name: str, count: int = 1) -> None:
        """Add to a counter after the commit."""
        self._after_commit.append(partial(self._listener.stats.add, name, count))

    def announce(self, rows: Sequence[tuple[str, int | None]]) -> Steps[None]:  # noqa: ARG002 - the listener's
        """Announce nothing: before the commit consumers would find nothing."""
        yield from ()


class Producer:
    """Sends messages from this process, and wakes the consumers that wait for them."""

    def __init__(
        self,
        process: Client,
        ids: IdSource,
        *,
        settings_sync: SettingsSync,
        placement: Placement,
        hooks: tuple[Hook, ...],
        listener: SendListener,
    ) -> None:
        """`listener` wakes consumers for new messages."""
        self._process = process
        self._ids = ids
        self._settings_sync = settings_sync
        self._placement = placement
        self._ring = Ring(settings_sync.settings.name, settings_sync.settings.layout)
        self._hooks = hooks
        self._listener = listener
        self._history = listener.history

    def reporting_to(self, listener: SendListener, hooks: tuple[Hook, ...]) -> Producer:
        """A producer of the same queue that reports to another listener, and calls these hooks."""
        return Producer(
            self._process,
            self._ids,
            settings_sync=self._settings_sync,
            placement=self._placement,
            hooks=hooks,
            listener=listener,
        )

    def send(self, message: Message) -> Steps[Sent]:
        """Send one message; it is in the store when this returns."""
        yield from self._keep_up()
        now = self._process.now()
        message = with_policy_of_queue(message, self._settings_sync.settings)
        prepared = MessageEncoder(self._settings_sync.settings, now).prepare(message.body, message)
        for hook in self._hooks:
            hook.before_send(message)
        sent = yield from self._send_prepared(message, prepared, now)
        for hook in self._hooks if sent.new else ():
            notified(hook.after_send, message, sent.id)
        self._count_sent(sent.new)
        return sent

    def adapted(self, message: Message) -> Message:
        """A message of another queue with a priority of this one: the nearest."""
        sorted_here = self._settings_sync.behaviour.sort_header
        return replace(message, priority=0 if sorted_here else min(message.priority, self._ring.layout.priorities - 1))

    def _send_prepared(self, message: Message, prepared: PreparedMessage, now: int) -> Steps[Sent]:  # noqa: ARG002 - for producers that send it elsewhere
        """Send one message that was checked and that hooks let pass."""
        if prepared.unique:
            return (yield from self._send_unique(prepared))
        return (yield from self._send_plain(prepared, now))

    def _count_sent(self, count: int) -> None:
        self._listener.stats.add("sent", count)

    def _keep_up(self) -> Steps[None]:
        """Follow the settings and the store's time. If the store does not answer, the send itself raises the error."""
        with contextlib.suppress(StoreUnavailable):
            yield from self._settings_sync.follow(only_sends=True)

    def _send_plain(self, prepared: PreparedMessage, now: int) -> Steps[Sent]:
        """Give one message its id and row, and insert it."""
        [id_] = self._ids.block(1, prepared.due)
        due = moment(id_)
        row = self._placement.row_of(prepared, due)
        message = MessageId(row, prepared.priority, id_)
        yield from self._insert_one(message, prepared, sent=now)
        return Sent(message)

    def _insert_one(self, message: MessageId, prepared: PreparedMessage, *, sent: int) -> Steps[None]:
        if prepared.key is not None:
            yield from write_key_hints(self._process, [(prepared.key, message)])
        batch = Batch(message.row, (message_put(prepared.priority, message.id, prepared.value, sent=sent),))
        yield from send(self._process, batch, beside=self._events_of([(message, prepared)]))
        yield from self._listener.announce([(message.row, message.moment)])

    def _send_unique(self, prepared: PreparedMessage) -> Steps[Sent]:
        """Send one message with a unique key, or keep the owner of its key if the message says "keep"."""
        [(row, part)] = commits_of(self._ring, {0: prepared})

        def attempt() -> Steps[UniqueSendResult]:
            return (yield from send_part(self._process, self._ids, row, part))[0]

        result = yield from sent_or_kept(self._process, attempt, key=str(prepared.key), unique=prepared.unique)
        if result.sent:
            yield from self._listener.announce([(row, result.id.moment)])
        yield from self._record_unique({0: result}, {0: prepared})
        return Sent(result.id, result.sent)

    def send_many(self, items: Iterable[object], options: Message) -> Steps[SendReport]:
        """Send bodies with these options, or `Message`s with their own; those of one row go into one batch.

        After an error, any of the messages before it may have been sent.
        """
        yield from self._keep_up()
        report = SendReport()
        source = check_several(items, "send_many sends several bodies", _SEVERAL)
        while chunk := list(islice(source, CHUNK)):
            wanted = [
                (item.body, own_options(item, options)) if isinstance(item, Message) else (item, options)
                for item in chunk
            ]
            yield from self._send_chunk(wanted, report)
        self._count_sent(report.sent)
        return report

    def _send_chunk(self, chunk: list[tuple[object, Message]], report: SendReport) -> Steps[None]:
        first, now = len(report.ids), self._process.now()
        encoder = MessageEncoder(self._settings_sync.settings, now)
        prepared: list[PreparedMessage | None] = []
        for body, options in chunk:
            try:
                prepared.append(self._prepared(encoder, body, options))
            except Vetoed as veto:
                report.vetoed[first + len(prepared)] = str(veto)
                prepared.append(None)
        report.ids.extend([None] * len(chunk))
        yield from self._send_unique_of(prepared, report, first=first)
        sent = yield from self._place_and_insert(prepared, now)
        for place, id_ in sent.items():
            report.ids[first + place] = id_
        new = [None if place in report.kept else id_ for place, id_ in enumerate(report.ids[first:], first)]
        self._call_after_send(chunk, new)

    def _send_unique_of(self, prepared: list[PreparedMessage | None], report: SendReport, *, first: int) -> Steps[None]:
        """Send those that have unique keys, and remove them from `prepared`."""
        unique = {place: one for place, one in enumerate(prepared) if one and one.unique}
        results: dict[int, UniqueSendResult] = {}
        for row, part in commits_of(self._ring, unique):
            committed = yield from send_part(self._process, self._ids, row, part)
            results |= committed
            if due := [result.id.moment for result in committed.values() if result.sent]:
                yield from self._listener.announce([(row, min(due))])
        yield from self._record_unique(results, unique)
        for place, result in results.items():
            report.held(first + place, result, unique[place].unique)
            prepared[place] = None

    def _place_and_insert(self, prepared: Sequence[PreparedMessage | None], now: int) -> Steps[dict[int, MessageId]]:
        """Insert those that are not None; returns their ids by position."""
        sent: dict[int, MessageId] = {}
        by_row: dict[str, tuple[list[Put], list[int]]] = {}
        for (due, spot), places in sorted(self._placement.lots(prepared).items()):
            drawn = self._ids.block(len(places), due)  # ids of one block have the same moment
            row = self._placement.row(moment(drawn[0]), spot)
            puts, placed = by_row.setdefault(row, ([], []))
            placed += places
            for place, id_ in zip(places, drawn, strict=True):
                if one := prepared[place]:
                    puts.append(message_put(one.priority, id_, one.value, sent=now))
                    sent[place] = MessageId(row, one.priority, id_)
        keyed = [(one.key, sent[place]) for place, one in enumerate(prepared) if one and one.key is not None]
        yield from write_key_hints(self._process, keyed)  # first, so that no message of a key is missed
        parts = [part for row, (puts, placed) in by_row.items() for part in _parts(row, puts, placed)]
        yield from self._insert(parts, sent, prepared)
        return sent

    def _insert(
        self, parts: Sequence[_Part], sent: Mapping[int, MessageId], prepared: Sequence[PreparedMessage | None]
    ) -> Steps[None]:
        """Insert batches concurrently, `_TOGETHER` at a time, each with the history events of its messages.

        One after the other if messages have groups: a later one that is there first would be handed out first.
        """
        at_once = 1 if any(one and one.group is not None for one in prepared) else _TOGETHER
        for first in range(0, len(parts), at_once):
            together = parts[first : first + at_once]
            beside = self._events_of(
                (sent[place], one) for part in together for place in part.places if (one := prepared[place])
            )
            yield from send(self._process, *[part.batch for part in together], beside=beside)
            yield from self._listener.announce(
                [(part.batch.row, moment(part.batch.puts[0].name.id)) for part in together]
            )

    def _events_of(self, sent: Iterable[tuple[MessageId, PreparedMessage]]) -> list[Batch]:
        """The batches with the history events of these messages; none if the queue keeps no such events."""
        if not self._history.wants(Kind.SENT):
            return []
        return self._history.batches_of(self._history.events.of_sending(id_, one) for id_, one in sent)

    def _record_unique(
        self, results: Mapping[int, UniqueSendResult], prepared: Mapping[int, PreparedMessage]
    ) -> Steps[None]:
        """Write history events for messages sent with unique keys, and for those that they replaced; call hooks."""
        call_after_delete(self._hooks, [result.replaced for result in results.values() if result.replaced], "replaced")
        if self._history.wants(Kind.SENT):
            events, sent = self._history.events, {place: result for place, result in results.items() if result.sent}
            gone = [(result.replaced, prepared[place].key) for place, result in sent.items() if result.replaced]
            cancelled = [events.of_command(Kind.CANCELLED, id_, key, why="replaced") for id_, key in gone]
            yield from self._history.write_or_buffer(
                [*cancelled, *(events.of_sending(one.id, prepared[place]) for place, one in sent.items())]
            )

    def _prepared(self, encoder: MessageEncoder, body: object, options: Message) -> PreparedMessage:
        prepared = encoder.prepare(body, with_policy_of_queue(options, self._settings_sync.settings))
        for hook in self._hooks:
            hook.before_send(replace(options, body=body))
        return prepared

    def _call_after_send(self, chunk: list[tuple[object, Message]], ids: list[MessageId | None]) -> None:
        if not self._hooks:
            return
        sent = [(replace(options, body=body), id_) for (body, options), id_ in zip(chunk, ids, strict=True) if id_]
        for hook, (message, id_) in product(self._hooks, sent):
            notified(hook.after_send, message, id_)


def _parts(row: str, puts: list[Put], places: list[int]) -> Iterator[_Part]:
    """Batches of one row, each within the limits of a batch."""
    for part in batches_within([len(put.value) for put in puts]):
        yield _Part(Batch(row, tuple(puts[part])), places[part])


async def send_as_they_come(
    items: AsyncIterable[object], send_many: Callable[[Sequence[object]], Awaitable[SendReport]]
) -> SendReport:
    """Send the items whenever 1000 have come, and the last of them when the generator ends; one report for all."""
    report, chunk = SendReport(), list[object]()
    try:
        async for item in items:
            chunk.append(item)
            if len(chunk) == CHUNK:
                report.extend(await send_many(chunk))
                chunk.clear()
        report.extend(await send_many(chunk))
    except QueueFull as full:
        raise full.after(report.sent) from full
    except SpoolFull as full:
        report.extend(full.report)
        full.report = report
        raise
    return report
