"""One queue, open in this process: the parts shared by the queue for threads and the queue for tasks."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import BadInput
from astyqueue.ids import IdSource
from astyqueue.model.message import Message
from astyqueue.model.settings import Settings
from astyqueue.model.validation import check_count
from astyqueue.observe.observers import UNOBSERVED, Observers
from astyqueue.protocol.admin.settings import change_behaviour
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.steps import Client, Steps, call_local
from astyqueue.queue.consuming.claimer import Claimer
from astyqueue.queue.consuming.expiry_sweep import ExpirySweep
from astyqueue.queue.consuming.leader_follower import closed_error
from astyqueue.queue.delivery.base_delivery import BaseDelivery, DeliveryFactory, Waiter
from astyqueue.queue.delivery.retry_policy import RetryPolicy
from astyqueue.queue.hooks import Hook
from astyqueue.queue.options import DEFAULT_OPTIONS, ClientOptions, behaviour_of, check_names
from astyqueue.queue.producing.bounded import BoundedProducer
from astyqueue.queue.producing.follow_ups import FollowUpProducer
from astyqueue.queue.producing.placement import Placement
from astyqueue.queue.producing.producer import Producer, SendReport, Sent
from astyqueue.queue.producing.replay import Replay, ReplayOptions, Source
from astyqueue.queue.producing.spooled import SpooledProducer, Spooling
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch
from astyqueue.queue.row_sharing.paced_doorbell import PacedDoorbell
from astyqueue.queue.row_sharing.row_locks import RowLocks
from astyqueue.queue.row_sharing.row_scheduler import RowScheduler
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.spool import Spool
from astyqueue.triggers import Triggers

_HOST: Final = 60


def new_client(clock: Clock) -> Client:
    """This process under a unique name: host, process id and a random part."""
    name = f"{socket.gethostname()[:_HOST]}:{os.getpid()}:{secrets.token_hex(3)}"
    return Client(name, clock.now)


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """A consumer's request for up to `limit` deliveries, waiting at most `wait` microseconds (None: without limit).

    `taken` are the deliveries it got, `given_back` those of them that it never saw.
    """

    limit: int
    wait: int | None
    delivery_factory: DeliveryFactory
    renew: bool = False
    taken: list[BaseDelivery] = field(default_factory=list)
    given_back: list[BaseDelivery] = field(default_factory=list)


class QueueRuntime:
    """The parts that run one queue in one process; after a fork the child makes its own."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        hooks: Iterable[Hook],
        *,
        triggers: Triggers | None = None,
        fires: bool = True,
        client_options: ClientOptions = DEFAULT_OPTIONS,
        observers: Observers = UNOBSERVED,
        spooling: Spooling | None = None,
        watch: ActivityWatch | None = None,
        forwarding: frozenset[str] = frozenset(),
        ids: IdSource | None = None,
    ) -> None:
        """`settings` were just read; `triggers` are users' own types; `fires`: this process fires schedules.

        With `spooling`, messages are sent to a spool. All queues of a connection share one `watch`. `forwarding`: the
        queues whose overflow queue this one is. Messages of runtimes that share `ids` are in the order of their sends.
        """
        self._forwarding = forwarding
        self.pid = os.getpid()
        self.clock = clock
        self.hooks = tuple(hooks)
        self.triggers = Triggers() if triggers is None else triggers
        self.fires = fires
        self.client_options = client_options
        self.observers = observers
        self.watch = watch or ActivityWatch(clock)
        self.process = replace(new_client(clock), observers=self.observers)
        self.settings_sync = SettingsSync(self.process, settings, clock)
        self.ring = Ring(settings.name, settings.layout)
        self.doorbell = PacedDoorbell(self.ring, clock)
        self.scheduler = RowScheduler(self.ring, clock, self.process.name, self.doorbell, watch=self.watch)
        fired = self.triggers if fires else None
        row_locks = RowLocks(client_options.lock(self.process, clock), client_options.lock_timeout, clock)
        self.claimer = Claimer(
            self.process,
            self.scheduler,
            clock=clock,
            settings_sync=self.settings_sync,
            row_locks=row_locks,
            hooks=self.hooks,
            doorbell=self.doorbell,
            triggers=fired,
        )
        self.spooling = spooling
        self.placement = Placement(self.ring, client_options.place)
        self._ids = IdSource(clock) if ids is None else ids
        self.producer = self._new_producer()
        self.follow_ups = self._new_follow_ups()
        self.retry_policy = RetryPolicy(self.process.now, self.settings_sync, random.random)
        self.closed = False
        self._closing: list[object] = []
        self._in_children: dict[int, QueueRuntime] = {}

    def __repr__(self) -> str:
        """The queue, this process, and its claimer."""
        state = ", closed" if self.closed else ""
        return f"<QueueRuntime of {self.settings.name} in {self.process.name}: {self.claimer!r}{state}>"

    def _new_follow_ups(self) -> FollowUpProducer:
        return FollowUpProducer(
            self.process,
            self._ids,
            settings_sync=self.settings_sync,
            placement=self.placement,
            hooks=self.hooks,
            claimer=self.claimer,
            connection=self.watch,
        )

    def _new_producer(self) -> Producer:
        parts = (self.process, self._ids)
        if self.spooling is None:
            return BoundedProducer(
                *parts,
                settings_sync=self.settings_sync,
                placement=self.placement,
                hooks=self.hooks,
                listener=self.claimer,
                clock=self.clock,
                opens=self._overflow_producer,
                forwarding=self._forwarding,
                expiry=ExpirySweep(self.process, self.clock, self.settings_sync, self.claimer.recorder),
            )
        return SpooledProducer(
            *parts,
            settings_sync=self.settings_sync,
            placement=self.placement,
            hooks=self.hooks,
            claimer=self.claimer,
            spooling=self.spooling,
        )

    def _overflow_producer(self, settings: Settings, forwarding: frozenset[str]) -> Producer:
        """The producer of another queue of the same store: this one's overflow queue."""
        runtime = QueueRuntime(
            settings,
            self.clock,
            (),
            fires=False,
            observers=self.observers,
            watch=self.watch,
            forwarding=forwarding,
        )
        runtime.settings_sync.stored(settings)
        return runtime.producer

    def start_spool(self) -> None:
        """Have what is in the spool forwarded, if there is a spool; a second call does nothing."""
        if isinstance(self.producer, SpooledProducer):
            self.producer.start()

    @property
    def spool(self) -> Spool:
        """The spool of this process; BadInput if the queue has none."""
        if self.spooling is None:
            message = f"queue {self.settings.name!r} has no spool: build it with .spool(directory)"
            raise BadInput(message)
        return self.spooling.spool

    def fire_nothing(self) -> None:
        """Fire no schedules in this process from now on; other processes must."""
        self.fires = False
        self.claimer.firings.turn_off()
        self.scheduler.fire_schedules(on=False)

    @property
    def settings(self) -> Settings:
        """The queue's settings, as this process last read them."""
        return self.settings_sync.settings

    def here(self) -> QueueRuntime:
        """This runtime or, in a child process after a fork, a new one; a closed queue raises Closed.

        Threads of the child that call this at the same moment get the same runtime: of two, one would renew no leases.
        `dict.setdefault` keeps the first of several; a lock could not be trusted after a fork.
        """
        if self.closed:
            raise closed_error(self.settings.name)
        if (pid := os.getpid()) == self.pid:
            return self
        made = QueueRuntime(
            self.settings,
            self.clock,
            self.hooks,
            triggers=self.triggers,
            fires=self.fires,
            client_options=self.client_options,
            observers=self.observers.anew(),
            spooling=self.spooling.anew() if self.spooling else None,
            watch=self.watch.here(),
        )
        there = self._in_children.setdefault(pid, made)
        there.start_spool()
        return there

    def close_spool(self) -> Steps[None]:
        """Forward what is in the spool, if there is one, for its `drain` (5 s by default)."""
        if self.spooling is not None:
            yield from call_local(self.spooling.spool.close)

    @contextlib.contextmanager
    def closing(self) -> Iterator[None]:
        """Close when the block ends; of several at once, the last one closes: the others have requests under way."""
        self._closing.append(me := object())
        try:
            yield
        finally:
            self._closing.remove(me)
            if not self._closing:
                self.close()

    def close(self) -> None:
        """Deliver and settle nothing more here; threads and tasks that wait get Closed."""
        self.closed = True
        self.claimer.close(self.settings.name)
        self.watch.leave(self.scheduler.activity)

    def send(self, message: Message) -> Steps[Sent]:
        """Send one message, and wake the consumers that wait for it."""
        return self.producer.send(message)

    def send_many(self, items: Iterable[object], defaults: Message) -> Steps[SendReport]:
        """Send many messages, and wake the consumers that wait for them."""
        return self.producer.send_many(items, defaults)

    def replay(self, journal: Source, options: ReplayOptions) -> Replay:
        """A replay of a journal into this queue; it has read nothing yet."""
        return Replay(
            self.process,
            journal,
            options,
            settings_sync=self.settings_sync,
            placement=self.placement,
            hooks=self.hooks,
            claimer=self.claimer,
        )

    def take(self, request: ReceiveRequest) -> Steps[list[BaseDelivery]]:
        """Deliveries for one consumer; if it is cancelled while it waits, those it just got are given back at once.

        A caller that is cancelled after these steps ended, but before it has the result, must call `give_back`.
        """
        check_count(request.limit, "deliveries cannot be received")
        taken = request.taken
        until = None if request.wait is None else self.clock.monotonic() + request.wait
        waiter = Waiter(
            lambda: request.limit - len(taken),
            taken.extend,
            delivery_factory=request.delivery_factory,
            renew=request.renew,
        )
        try:
            yield from self.claimer.take(waiter, lambda: bool(taken), until=until)
        except BaseException:
            self.give_back(request)
            raise
        if not taken:
            self.claimer.stats.add("empty_polls")
        return taken

    def give_back(self, request: ReceiveRequest) -> None:
        """Give back the deliveries of a request whose caller will never see them: the next leader commits that."""
        while request.taken:
            request.given_back.append(request.taken.pop())
            self.claimer.give_back(request.given_back[-1])

    def configure(self, options: Mapping[str, object]) -> Steps[Settings]:
        """Change the queue's behaviour, in this process at once and in others within ten seconds."""
        check_names(options, to_change=True)
        settings = yield from change_behaviour(self.settings.name, behaviour_of(options), self.observers)
        yield from self.claimer.announce([])
        self.settings_sync.settings = settings
        self.claimer.wake()
        return settings
