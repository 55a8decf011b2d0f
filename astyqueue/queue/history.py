"""Telling the history of a queue what happens to it in this process, as far as its setting asks for that.

What a settle comes to is written before the settle is committed, for many of them together. What nobody waits for (that a
message was claimed, say) is noted, and goes with whatever is written next, or after a second.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from astyqueue.clock import SECOND
from astyqueue.errors import StoreError
from astyqueue.model.event import Event, Kind, keeps
from astyqueue.protocol.history import batches_of, record
from astyqueue.protocol.outcomes import ACK, Settling
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.steps import Steps
from astyqueue.queue.events import Events, kinds_of
from astyqueue.queue.following import Following
from astyqueue.queue.holding import Handed
from astyqueue.store import Batch

_log: Final = logging.getLogger("astyqueue.queue")
#: How long what nobody waits for may wait for company, and how much of it is remembered while the store is away.
_PATIENCE: Final = SECOND
_NOTED: Final = 10_000


class History:
    """What this process has to tell the history of one queue."""

    def __init__(self, process: Process, following: Following) -> None:
        """What is kept, and for how long, is what the settings that are followed say."""
        self.events = Events(process, following.settings.name)
        self._now = process.now
        self._following = following
        self._ring = Ring(following.settings.name, following.settings.layout)
        self._noted: deque[Event] = deque(maxlen=_NOTED)
        self._lock = threading.Lock()
        self._since = 0

    def wants(self, kind: Kind) -> bool:
        """Whether events of this kind are kept."""
        return keeps(self._following.behaviour.history, kind)

    def of_outcome(self, delivery: Handed, outcome: Settling) -> tuple[Event, ...]:
        """The events of an outcome that is handed in now. Those that cannot be made are left out: the message must be settled."""
        if outcome is ACK and not self.wants(Kind.DONE):  # most outcomes of most queues: they are to cost nothing
            return ()
        kinds = self.tells(outcome)
        try:
            return self.events.of_outcome(delivery, outcome, kinds) if kinds else ()
        except Exception:  # noqa: BLE001 - whatever a message holds that another program wrote
            _log.exception("history lacks an outcome queue=%s id=%s", self._ring.queue, delivery.message_id)
            return ()

    def tells(self, outcome: Settling) -> list[Kind]:
        """The kinds of events that are kept of such an outcome."""
        return list(filter(self.wants, kinds_of(outcome)))

    def note(self, kind: Kind, events: Callable[[], Iterable[Event]]) -> None:
        """Have events of this kind written with whatever is next; they are made only if they are kept."""
        if self.wants(kind):
            self._remember(events())

    def _remember(self, events: Iterable[Event]) -> None:
        made = list(events)
        with self._lock:
            if not self._noted:
                self._since = self._now()
            self._noted.extend(made)

    def lost(self, events: Iterable[Event]) -> None:
        """Say of events that were written that they did not come about."""
        self._remember(replace(event, lost=True) for event in events)

    def write(self, events: Sequence[Event]) -> Steps[None]:
        """Have these in the store when this returns, and what was noted with them; costs nothing when there are none.

        An error leaves any of it written or not; to write it again changes nothing more.
        """
        if not events:
            return
        noted = self._take()
        try:
            yield from record(self._ring, [*noted, *events], self._kept)
        except BaseException:
            self._put_back(noted)
            raise

    def _take(self) -> list[Event]:
        with self._lock:
            taken = list(self._noted)
            self._noted.clear()
        return taken

    def _put_back(self, taken: list[Event]) -> None:
        """Before what was noted meanwhile; if that is too much, the oldest are forgotten."""
        with self._lock:
            self._noted = deque([*taken, *self._noted], maxlen=_NOTED)

    def write_noted(self) -> Steps[None]:
        """Write what was noted, once that is a while ago; if the store fails it waits on."""
        if self._noted and not 0 <= self._now() - self._since < _PATIENCE:
            yield from self.flush()

    def tell(self, events: Iterable[Event]) -> Steps[None]:
        """Write what has happened already. If that fails it is tried again later, and raises nothing: it cannot be undone."""
        wanted = [event for event in events if self.wants(event.kind)]
        if wanted:
            self._remember(wanted)
            yield from self.flush()

    def flush(self) -> Steps[None]:
        """Write what was noted; if the store fails it waits on."""
        self._since = self._now()
        noted = self._take()
        try:
            yield from record(self._ring, noted, self._kept)
        except StoreError as error:
            self._put_back(noted)
            _log.warning("history waits queue=%s events=%d error=%s", self._ring.queue, len(self._noted), error)
        except BaseException:
            self._put_back(noted)
            raise

    def beside(self, events: Iterable[Event]) -> list[Batch]:
        """The batches that write these events, for who sends them along with what they tell of."""
        return batches_of(self._ring, events, self._kept)

    @property
    def _kept(self) -> int:
        return self._following.behaviour.history_kept_us
