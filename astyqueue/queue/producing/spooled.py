"""Sends of a queue with a spool: messages go to the local disk, and from there to the store, by the forwarder.

A message gets its final id and row when it is sent. The forwarder sends it idempotently with that id, so that a batch
of unknown outcome is sent again without doubling a message, be it waiting or settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, NoReturn

from astyqueue.errors import BadInput, NotFound, Undecodable
from astyqueue.ids import IdSource, moment
from astyqueue.journal_errors import JournalFull, SpoolFull
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message, PreparedMessage, Unique
from astyqueue.model.settings import Settings
from astyqueue.protocol.admin.settings import encode_settings, open_queue
from astyqueue.protocol.steps import Client, Steps, call_local
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.hooks import Hook
from astyqueue.queue.producing.idempotent import IdentifiedMessage, RepeatableSender
from astyqueue.queue.producing.placement import Placement
from astyqueue.queue.producing.producer import Producer, SendReport
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.spool import Spool, SpooledMessage
from astyqueue.store import Store
from astyqueue.structured_log import log_event

#: A forwarder uses one in this many of a store's concurrent calls; the rest is left to consumers. 8 rows on Cassandra,
#: and 1 on SQLite, which has one writer.
_SHARE: Final = 8
_log: Final = logging.getLogger("astyqueue.spool")


class Spooling(NamedTuple):
    """The spool of a queue, the store that its forwarder sends to, and how it carries out steps in threads of its own.

    `opened`: the queue was found in the store when it was built; otherwise its settings are those in the spool.
    """

    spool: Spool
    store: Store
    run: Callable[[Steps[Any]], object]
    opened: bool

    def anew(self) -> Spooling:
        """The same for a forked child."""
        return self._replace(spool=self.spool.anew())


class _Appending:
    """An append to a spool, of which `appended` messages are in the spool already."""

    def __init__(self, spool: Spool, messages: Sequence[SpooledMessage]) -> None:
        """Nothing is appended yet."""
        self.appended = 0
        self._spool: Final = spool
        self._messages: Final = messages

    def finish(self) -> Steps[None]:
        """Append them all, and wait for room if the spool is for that; JournalFull if it is not.

        A task that is cancelled while it waits ends there: no message is appended afterwards.
        """
        room = self._spool.room
        full = yield from call_local(self._append)
        if full is not None and not self._spool.waits_for_room:
            raise full
        if full is not None:
            with room.waiting() as wakeup:
                while full := (yield from call_local(self._append)):
                    yield from room.wait(wakeup, full.reason)
            room.found()

    def _append(self) -> JournalFull | None:
        """Append those that are left; returns the error of a full spool, as those of a local call are not for steps."""
        try:
            self._spool.append(self._messages[self.appended :])
        except JournalFull as full:
            self.appended += full.appended
            return full
        return None


class _PartlyAppended(Exception):
    """Of a chunk, the first `handled` messages were vetoed or appended, these with their ids in `sent` by position.

    `error` ended the append: it may be the end of the steps of a task that was cancelled.
    """

    def __init__(self, error: BaseException, sent: dict[int, MessageId], handled: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.sent = sent
        self.handled = handled


def refuse_unanswerable(option: str) -> NoReturn:
    """Raise BadInput for an option whose outcome only the store knows."""
    message = (
        f"{option} needs an answer of the store, and a queue with a spool returns before it has one: "
        "send this message by a queue that was built without a spool"
    )
    raise BadInput(message)


class SpooledProducer(Producer):
    """Sends messages into the spool, and those of the spool to the store. A send makes no request to the store."""

    def __init__(
        self,
        process: Client,
        ids: IdSource,
        *,
        settings_sync: SettingsSync,
        placement: Placement,
        hooks: tuple[Hook, ...],
        claimer: Claimer,
        spooling: Spooling,
    ) -> None:
        """`claimer` wakes consumers for messages that were forwarded."""
        super().__init__(process, ids, settings_sync=settings_sync, placement=placement, hooks=hooks, listener=claimer)
        self.spool: Final = spooling.spool
        self._spooling: Final = spooling
        self._opened = spooling.opened
        self._saved = settings_sync.settings
        self._is_save_failing = False
        self._repeatable: Final = RepeatableSender(process, settings_sync, claimer)

    def start(self) -> None:
        """Start to forward; a second call does nothing."""
        self.spool.start(self._forward, self._process.observers)

    def _keep_up(self) -> Steps[None]:
        """Raise NotFound if the forwarder saw that the queue was recreated with another layout. Reads nothing."""
        yield from ()
        self._settings_sync.check_same_queue()

    def _count_sent(self, count: int) -> None:
        self._listener.stats.add("spooled", count)

    def _insert_one(self, message: MessageId, prepared: PreparedMessage, *, sent: int) -> Steps[None]:  # noqa: ARG002 - the message has it
        try:
            yield from _Appending(self.spool, [SpooledMessage(message, prepared.value)]).finish()
        except JournalFull as full:
            raise SpoolFull(full.place, self._ring.queue, full.reason) from full

    def _send_chunk(self, chunk: list[tuple[object, Message]], report: SendReport) -> Steps[None]:
        """As its base; after an error, hooks get what is in the spool. That of a full spool has the report of it."""
        first, sent_before = len(report.ids), report.sent
        try:
            yield from super()._send_chunk(chunk, report)
        except _PartlyAppended as partly:
            handled = partly.handled
            report.ids[first:] = [partly.sent.get(place) for place in range(handled)]
            report.vetoed = {place: why for place, why in report.vetoed.items() if place < first + handled}
            self._call_after_send(chunk[:handled], report.ids[first:])
            self._count_sent(report.sent)
            if not isinstance(full := partly.error, JournalFull):
                raise full from None
            raise SpoolFull(full.place, self._ring.queue, full.reason, appended=report.sent, report=report) from full
        except BaseException:
            self._count_sent(sent_before)
            raise

    def _place_and_insert(self, prepared: Sequence[PreparedMessage | None], now: int) -> Steps[dict[int, MessageId]]:  # noqa: ARG002 - the messages have it
        sent: dict[int, MessageId] = {}
        for (due, spot), places in sorted(self._placement.lots(prepared).items()):
            drawn = self._ids.block(len(places), due)
            row = self._placement.row(moment(drawn[0]), spot)
            for place, id_ in zip(places, drawn, strict=True):
                if one := prepared[place]:
                    sent[place] = MessageId(row, one.priority, id_)
        places = sorted(sent)
        wanted = [SpooledMessage(sent[place], one.value) for place in places if (one := prepared[place])]
        appending = _Appending(self.spool, wanted)
        try:
            yield from appending.finish()
        except BaseException as error:
            if not appending.appended and not isinstance(error, JournalFull):
                raise
            appended = {place: sent[place] for place in places[: appending.appended]}
            raise _PartlyAppended(error, appended, places[appending.appended]) from error
        return sent

    def _send_unique(self, prepared: PreparedMessage) -> Steps[Any]:
        refuse_unanswerable(_unanswerable(prepared.unique))

    def _send_unique_of(self, prepared: list[PreparedMessage | None], report: SendReport, *, first: int) -> Steps[None]:  # noqa: ARG002 - the signature of its base
        yield from ()
        if unique := next((one.unique for one in prepared if one and one.unique), None):
            refuse_unanswerable(_unanswerable(unique))

    def _forward(self, messages: Sequence[SpooledMessage]) -> Mapping[str, Exception]:
        """Send messages of a spool to the store; the queue must be there, with the layout they were sent to.

        The messages of a row are sent in order, those of several rows at the same time if the store is for that.
        Returns the errors of the rows that failed, of whose messages any may have been sent.
        """
        self._spooling.run(self._look_at_queue())
        rows: dict[str, list[SpooledMessage]] = {}
        for one in messages:
            rows.setdefault(one.id.row, []).append(one)
        at_once = min(len(rows), self._spooling.store.at_once // _SHARE)
        if at_once <= 1:
            outcomes = list(map(self._forward_row, rows.values()))
        else:
            name = f"astyqueue-spool:{self.spool.folder.queue}"
            with ThreadPoolExecutor(at_once, thread_name_prefix=name) as threads:
                outcomes = list(threads.map(self._forward_row, rows.values()))
        return {row: error for row, error in zip(rows, outcomes, strict=True) if error is not None}

    def _forward_row(self, messages: Sequence[SpooledMessage]) -> Exception | None:
        """Send messages of one row; returns the error, because other rows go on."""
        try:
            self._spooling.run(self._repeatable.send([identified(one) for one in messages]))
        except Exception as error:  # noqa: BLE001 - the forwarder decides what it means
            return error
        return None

    def _look_at_queue(self) -> Steps[None]:
        """Follow the store's time and the queue's settings; NotFound if the queue was dropped or recreated.

        As in a plain send, settings that cannot be read change nothing.
        """
        sync, known = self._settings_sync, self._settings_sync.settings
        yield from sync.time.follow(only_sends=True)
        try:
            stored = yield from sync.load(confirmed=True)
        except Undecodable as error:
            sync.warn(str(error))
            return
        if stored is None and not self._opened:
            # As a queue that is built: it is created if it is not there.
            layout, behaviour = known.layout.model_dump(), known.behaviour.model_dump()
            stored = (yield from open_queue(known.name, layout=layout, behaviour=behaviour)).settings
        if stored is None:
            message = f"queue {known.name!r} was dropped"
            raise NotFound(message)
        self._opened = True
        self._save(stored)
        try:
            sync.stored(stored)
        except NotFound as error:  # its text is for sends; this one is kept with the messages, and read later
            message = f"queue {known.name!r} was recreated with another layout"
            raise NotFound(message) from error

    def _save(self, settings: Settings) -> None:
        """Keep the settings for the next process, which may start while the store is away."""
        if settings == self._saved:
            return
        try:
            self.spool.folder.save_settings(encode_settings(settings))
        except OSError as error:  # on a full disk, forwarding is what makes room; the next batch tries again
            if not self._is_save_failing:
                folder = self.spool.folder
                log_event(_log, logging.WARNING, "spool_settings_not_saved", queue=folder.queue, error=error)
            self._is_save_failing = True
            return
        self._saved, self._is_save_failing = settings, False


def _unanswerable(unique: Unique | None) -> str:
    in_place = unique is Unique.SUPERSEDE
    return "a key in a queue with last_value" if in_place else f"unique={str(unique)!r}"


def identified(spooled: SpooledMessage) -> IdentifiedMessage:
    """The message with the id and the envelope that it got when it was sent into the spool."""
    envelope = spooled.envelope
    prepared = PreparedMessage(
        due=envelope.due,
        priority=spooled.id.priority,
        key=envelope.key,
        value=spooled.value,
        sent=envelope.sent,
        unique=None,
        headers=envelope.headers,
        group=envelope.group,
    )
    return IdentifiedMessage(spooled.id, prepared)
