"""The queue services in memory and in a file: the interface of `service` on queues of astyqueue."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote

from pydantic_core import to_json

from astyqueue.clock import Clock, CorrectedClock
from astyqueue.errors import BadSetting, Closed, QueueDoesNotExist, QueueNameExists, StoreUnavailable, saying_how_far
from astyqueue.ids import IdSource
from astyqueue.model.body import BODY_BYTES_AT_MOST
from astyqueue.model.envelope import ATTEMPTS_MOST, LEASE_LEAST
from astyqueue.model.settings import Settings
from astyqueue.observe.observers import Observers
from astyqueue.protocol.admin.settings import list_queues, load_settings, open_queue
from astyqueue.protocol.layout.columns import State
from astyqueue.protocol.settling.outcomes import Release
from astyqueue.protocol.steps import Steps, run
from astyqueue.queue.connection import connect
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.producing.producer import CHUNK
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.queue_service.local_receipts import PullReceipt, delete, hide
from astyqueue.queue_service.service import PulledMessage, QueueService, how_far
from astyqueue.units import SECOND

#: The environment variable with the directory of a `FileQueueService` that gives none.
DIRECTORY_VARIABLE: Final = "ASTYQUEUE_DATA_DIR"
_FILE: Final = "queues.db"

T = TypeVar("T")


class _StoredQueueService(QueueService):
    """Queues in a store. Each call reads their settings, so it knows what other processes created or deleted."""

    def __init__(self, url: str, clock: Clock | None) -> None:
        self._url = url
        self._clock = clock or CorrectedClock()
        self._store = connect(url, clock=clock).store
        self._observers = Observers.of_debug_log(self._clock.monotonic)
        self._opened: dict[str, MessageQueue] = {}
        self._opening = threading.Lock()
        # A queue that is created again goes on where the deleted one ended: what is pushed at the same moment of the
        # clock is behind that only with an id of the same source.
        self._ids = IdSource(self._clock)
        # A push draws ids and inserts the messages under it: a message that lands behind a pull's position, because
        # another thread inserted a later id first, is found half a second late.
        self._pushing = threading.Lock()

    def queues(self) -> list[str]:
        """The names of all queues, in alphabetical order."""
        return self._run(list_queues())

    def close(self) -> None:
        """Close the store; threads that wait in a pull get Closed."""
        self._store.close()
        for name in tuple(self._opened):
            self._forget(name)

    def _create(self, name: str, visibility: int) -> str:
        behaviour = {
            "lease_us": max(visibility * SECOND, LEASE_LEAST),
            "max_attempts": ATTEMPTS_MOST,
            "body_bytes": BODY_BYTES_AT_MOST,
            "history": "none",
        }
        opened = self._run(
            open_queue(name, layout={}, behaviour=behaviour, spread=self._store.spread, observers=self._observers)
        )
        if (stored := _visibility(opened.settings)) != visibility:
            raise QueueNameExists(name, stored, visibility)
        return f"{self._url}#{name}"

    def _push(self, name: str, bodies: list[str]) -> list[str]:
        ids: list[str] = []
        with saying_how_far(lambda: how_far(len(ids), len(bodies))), self._queue(name) as queue, self._pushing:
            for first in range(0, len(bodies), CHUNK):
                ids += map(str, queue.send_many(bodies[first : first + CHUNK]).ids)
        return ids

    def _pull(self, name: str, wait: int) -> PulledMessage | None:
        until = self._clock.monotonic() + wait * SECOND
        with self._queue(name) as queue:
            while True:
                left = max(0, until - self._clock.monotonic())
                claimed = queue.receive(wait=timedelta(microseconds=left))
                if not claimed:
                    return None
                if (pulled := _hidden(queue, claimed[0])) is not None:
                    return pulled

    def _delete(self, name: str, receipt: str) -> None:
        with self._queue(name) as queue:
            queue.run(delete(queue.core, PullReceipt.parse(receipt, queue.core)))

    def _change_visibility(self, name: str, receipt: str, visibility: int) -> bool:
        with self._queue(name) as queue:
            until = queue.core.process.now() + visibility * SECOND
            return queue.run(hide(queue.core, PullReceipt.parse(receipt, queue.core), until))

    def _purge(self, name: str) -> None:
        with self._queue(name) as queue:
            queue.clear()

    def _delete_queue(self, name: str) -> None:
        with self._queue(name) as queue:
            queue.drop()
        self._forget(name)

    @contextmanager
    def _queue(self, name: str) -> Iterator[MessageQueue]:
        """The queue; QueueDoesNotExist if there is none, or if another thread deletes it meanwhile."""
        queue = self._open(name)
        try:
            yield queue
        except Closed as closed:
            self._open(name)  # Closed if this service is
            raise QueueDoesNotExist(name) from closed  # it was deleted, and one of its name is there again

    def _open(self, name: str) -> MessageQueue:
        """The queue with its settings as they are stored now; QueueDoesNotExist if there is none."""
        stored = self._run(load_settings(name, exact=True))
        if stored is None:
            self._forget(name)
            raise QueueDoesNotExist(name)
        with self._opening:
            queue = self._opened.get(name)
            if queue is None or queue.settings.layout != stored.layout:
                core = QueueRuntime(stored, self._clock, (), observers=self._observers, ids=self._ids)
                queue = self._opened[name] = MessageQueue(core, self._store)
            queue.core.settings_sync.settings = stored
            return queue

    def _forget(self, name: str) -> None:
        with self._opening:
            queue = self._opened.pop(name, None)
        if queue is not None:
            queue.close()

    def _run(self, steps: Steps[T]) -> T:
        self._observers.check_log_levels()
        return run(steps, self._store, self._observers)


class MemoryQueueService(_StoredQueueService):
    """Queues in the memory of this process; they end with this object."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        """Start without queues. Tests pass a `TimeMachine` as the clock."""
        super().__init__("memory://", clock)


class FileQueueService(_StoredQueueService):
    """Queues in one file of a directory, for any number of processes of this machine."""

    def __init__(self, directory: str | Path | None = None, *, clock: Clock | None = None) -> None:
        """Use the queues of this directory, which is created for this user alone if it is missing.

        Without `directory` it is the one that the environment variable ASTYQUEUE_DATA_DIR names, else `astyqueue` in
        $XDG_DATA_HOME if that is an absolute path, else ~/.local/share/astyqueue. BadSetting if a file is in its place.
        """
        self.directory = _data_directory(directory).absolute()
        _make(self.directory)
        super().__init__(f"sqlite:///{quote(str(self.directory / _FILE))}", clock)


def _data_directory(given: str | Path | None) -> Path:
    """The directory of a file service; variables that are set to nothing count as missing."""
    if given is not None:
        if not isinstance(given, str | Path) or not str(given):
            message = (
                f"the directory of the queue service is {given!r:.80}: give a path, such as /var/lib/shop, "
                "or leave it out for the usual one"
            )
            raise BadSetting(message)
        return Path(given)
    if named := os.environ.get(DIRECTORY_VARIABLE):
        return Path(named).expanduser()  # where no shell set it, as in a unit file, none replaced the ~
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (data if data.is_absolute() else Path.home() / ".local" / "share") / "astyqueue"


def _make(directory: Path) -> None:
    """Create the directory for this user alone if it is missing."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        message = f"the queue service needs a directory, and {directory} is a file, or below one: give another path"
        raise BadSetting(message) from error
    except OSError as error:
        message = f"the directory of the queue service, {directory}, cannot be created: {error.strerror}"
        raise StoreUnavailable(message) from error


def _visibility(settings: Settings) -> int:
    """The visibility timeout of a queue in seconds; the least lease, a tenth of a second, stands for zero."""
    return settings.behaviour.lease_us // SECOND


def _hidden(queue: MessageQueue, claimed: Delivery) -> PulledMessage | None:
    """The claimed message, hidden for the visibility timeout; None if its lease was lost before that.

    The release ends the lease and leaves the message to no process: one that dies after a pull delays nothing else.
    """
    core = queue.core
    until = core.process.now() + _visibility(queue.settings) * SECOND
    release = Release(until, claimed.attempt, State.SNOOZED)
    if queue.run(core.claimer.settle([(claimed, release)])):
        return None
    body = claimed.body if isinstance(claimed.body, str) else to_json(claimed.body).decode()
    receipt = PullReceipt(claimed.message_id, claimed.attempt)
    return PulledMessage(str(claimed.message_id), body, str(receipt), claimed.attempt)
