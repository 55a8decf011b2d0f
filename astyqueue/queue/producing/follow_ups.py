"""Prepares the follow-ups of deliveries, and sends those that go into other rows."""

from __future__ import annotations

from collections.abc import Sequence

from astyqueue.errors import BadInput
from astyqueue.ids import IdSource
from astyqueue.model.envelope import MessageId
from astyqueue.model.message import Message, MessageEncoder, PreparedMessage, with_policy_of_queue
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.sending.idempotent import numbered_id
from astyqueue.protocol.steps import Client, Steps
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.delivery.follow_ups import MOST, AfterCommit, FollowUp
from astyqueue.queue.history_writer import HistoryWriter
from astyqueue.queue.hooks import Hook, notified
from astyqueue.queue.producing.idempotent import IdentifiedMessage, RepeatableSender
from astyqueue.queue.producing.placement import Placement
from astyqueue.queue.producing.producer import SendListener, UncommittedSends
from astyqueue.queue.settings_sync import SettingsSync


class FollowUpProducer:
    """One queue in this process, as follow-ups are sent to it."""

    def __init__(
        self,
        process: Client,
        ids: IdSource,
        *,
        settings_sync: SettingsSync,
        placement: Placement,
        hooks: tuple[Hook, ...],
        claimer: Claimer,
        connection: object,
    ) -> None:
        """`connection` is the same object for all queues of a connection."""
        self.connection = connection
        self._process = process
        self._ids = ids
        self._settings_sync = settings_sync
        self._ring = Ring(settings_sync.settings.name, settings_sync.settings.layout)
        self._placement = placement
        self._hooks = hooks
        self._claimer = claimer

    def prepare(self, message: Message, origin: MessageId, number: int, *, base: int) -> FollowUp:
        """Check and encode a message; it goes into the row of `origin` if that is one for it.

        Otherwise its id follows from the origin, the number and the message, and its row from `base`, so that they are
        the same in every attempt.
        """
        if with_policy_of_queue(message, self._settings_sync.settings).unique is not None:
            problem = (
                "a follow-up has no unique key, which takes a commit of its own: leave out unique=, and in a queue "
                "with last_value the key"
            )
            raise BadInput(problem)
        self._settings_sync.check_same_queue()
        now = self._process.now()
        prepared = MessageEncoder(self._settings_sync.settings, now).prepare(message.body, message)
        for hook in self._hooks:
            hook.before_send(message)
        if self._placement.fits(origin.row, prepared, prepared.due or now):
            return FollowUp(self, message, prepared)
        # in the order of the calls; MOST microseconds before `base`, so that `number` (< MOST) never passes that
        moment = (prepared.due or base - MOST) + number
        id_ = numbered_id(f"{origin}/{self._ring.queue}/{message!r}", number, moment)
        # not the row of now: an attempt in a later time shard must find what this one sent
        row = self._placement.row_of_numbered(prepared, prepared.due or base, int.from_bytes(id_[8:]))
        return FollowUp(self, message, prepared, MessageId(row, prepared.priority, id_))

    def new_id(self, row: str, prepared: PreparedMessage) -> MessageId:
        """An id, drawn now, for a message in this row."""
        [id_] = self._ids.block(1, prepared.due)
        return MessageId(row, prepared.priority, id_)

    def sends(self, after_commit: AfterCommit | None = None) -> RepeatableFollowUps:
        """Sends into other rows than that of the delivery; see `FollowUpQueue.sends`."""
        listener: SendListener = self._claimer
        if after_commit is not None:
            listener = UncommittedSends(self._claimer, HistoryWriter(self._process, self._settings_sync), after_commit)
        return RepeatableFollowUps(self._settings_sync, RepeatableSender(self._process, self._settings_sync, listener))

    def announce(self, follow_ups: Sequence[FollowUp]) -> Steps[None]:
        """Have consumers scan the rows of these messages, which are in the store."""
        yield from self._claimer.announce([(row, None) for row in {one.sent_as.row for one in follow_ups}])

    def call_after_send(self, follow_up: FollowUp) -> None:
        """Call the queue's hooks about a message that is in the store."""
        for hook in self._hooks:
            notified(hook.after_send, follow_up.message, follow_up.sent_as)


class RepeatableFollowUps:
    """Sends follow-ups to one queue, each at most once, by one thread or task at a time."""

    def __init__(self, settings_sync: SettingsSync, sender: RepeatableSender) -> None:
        """`sender` leaves out what was sent before."""
        self._settings_sync = settings_sync
        self._sender = sender

    def send(self, follow_ups: Sequence[FollowUp]) -> Steps[list[FollowUp]]:
        """Send those that were not sent before; returns them. After an error any of them may have been sent."""
        yield from self._settings_sync.follow(only_sends=True)
        sent = set((yield from self._sender.send([IdentifiedMessage(one.sent_as, one.prepared) for one in follow_ups])))
        return [one for one in follow_ups if one.sent_as in sent]
