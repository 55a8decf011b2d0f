"""Queues in which nothing happens for a minute or longer, one process that serves them, and processes that send.

Every message has to begin within the time that decision 46 states, although notices are lost or late, the activity log
cannot be read, the clocks of senders are off, and the consumer that reads the log for all queues stops. Meanwhile the
rest of the store is reliable: what is bounded here are delays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from astyqueue import ids
from astyqueue.clock import Clock
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.model.message import Message
from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.protocol.layout.rows import Ring
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.queue.delivery.base_delivery import BaseDelivery, Waiter
from astyqueue.queue.row_sharing.idle_queues import ActivityWatch
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.units import SECOND, MonotonicUs
from tests.simulation.cassandra.cluster import Cluster
from tests.simulation.cassandra.unreliable_log import UnreliableLog
from tests.simulation.checkers.idle_deadlines import AwaitedMessage, IdleDeadlines
from tests.simulation.engine.client import Agent, Interceptor, Pause, SimulatedProcess
from tests.simulation.engine.event_loop import SkewedClock
from tests.simulation.engine.history import History, LateBegin, Result, Sent
from tests.simulation.engine.rng import SeededRandom
from tests.simulation.workload.consumer import delivery_record, settle_record

#: The names of all idle queues begin so.
IDLE: Final = "idle"
_ROUNDS: Final = 3
#: How long after an error a consumer begins anew.
_AGAIN: Final = SECOND // 2
#: Nothing happens for this long between two rounds: longer than a queue is in use.
_QUIET: Final = (61 * SECOND, 100 * SECOND)
#: The part of the senders that send in such a time.
_SENT_MEANWHILE: Final = 0.2
_LEASE: Final = 20 * SECOND
#: Time shards of a minute end in most rounds.
_LAYOUTS: Final = (
    Layout(),
    Layout(time_shards=3),
    Layout(concurrency_shards=2),
    Layout(time_shards=30, time_shard_us=60 * SECOND),
    Layout(time_shards=30, time_shard_us=60 * SECOND, concurrency_shards=2),
)
_DELAYS: Final = (None, None, None, SECOND // 5, 5 * SECOND, 70 * SECOND)
_SKEWS: Final = (-5 * SECOND, -6 * SECOND // 10, -SECOND // 20, SECOND // 2, 5 * SECOND, 20 * SECOND)
_LONGEST_ROUND: Final = 60 * SECOND
#: A suspended process may have been reading the doorbell or the log; the next read comes this long after at most.
_AFTER_LONG_READ: Final = 2 * SECOND
#: The bell is read less often when the process has neither sent to a queue nor claimed from it for this long.
_TRAFFIC: Final = 60 * SECOND


class IdleFault(StrEnum):
    """A kind of fault that delays messages into idle queues."""

    LOST = "notices lost"
    LATE = "notices late"
    UNREADABLE = "activity log unreadable"
    CLOCKS = "clocks of senders off"
    STOPS = "consumers stopped"
    SUSPENSIONS = "process suspended"


class _OwnClock:
    """The clock of a process that does not compare it with the store's."""

    def __init__(self, clock: SkewedClock) -> None:
        """Shows what the machine's clock shows."""
        self._clock = clock

    def now(self) -> int:
        """As `Clock`."""
        return self._clock.now()

    def monotonic(self) -> MonotonicUs:
        """As `Clock`."""
        return self._clock.monotonic()

    def blocking_seconds(self, until: MonotonicUs) -> float | None:
        """As `Clock`."""
        return self._clock.blocking_seconds(until)

    def on_move(self, wake: Callable[[], None]) -> Callable[[], None]:
        """As `Clock`."""
        return self._clock.on_move(wake)


@dataclass(eq=False)
class _Consumer:
    """The consumer of one queue: it acks what it gets, and begins anew after an error."""

    client: SimulatedProcess
    runtime: QueueRuntime
    history: History
    rng: random.Random
    on_begin: Callable[[str, int], None]
    on_error: Callable[[str], None]
    settling: int = 0
    agent: Agent | None = None

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self.runtime.settings.name

    def start(self) -> None:
        """Begin to consume."""
        self.agent = self._consume()
        self.client.start(self.agent)

    def _consume(self) -> Agent:
        while True:
            try:
                yield from self.runtime.claimer.serve(Waiter(lambda: 100, self._accept), lambda: False)
            except StoreError:
                self.on_error(self.queue)
                yield Pause(_AGAIN)

    def _accept(self, deliveries: list[BaseDelivery]) -> None:
        self.history.delivered += [delivery_record(delivery, self.client) for delivery in deliveries]
        for delivery in deliveries:
            if isinstance(delivery.body, int):
                self.on_begin(delivery.row, delivery.body)
        self.settling += 1
        self.client.start(self._ack(deliveries), self.rng.randint(0, SECOND // 20))

    def _ack(self, deliveries: list[BaseDelivery]) -> Agent:
        notes = [settle_record(delivery, ACK, self.client) for delivery in deliveries]
        self.history.settled += notes
        self.history.begins(*["ack in an idle queue"] * len(notes))
        try:
            lost = yield from self.runtime.claimer.settle([(delivery, ACK) for delivery in deliveries])
        except StoreError:
            return
        finally:
            self.settling -= 1
        gone = {delivery.id for delivery in lost}
        for note in notes:
            note.answer(int(self.client.clock.monotonic()), unknowns=self.client.unknowns, lost=note.id in gone)


@dataclass(eq=False)
class _Sender:
    """The process that sends to one queue; `on_sent` is called with the queue's name, the message, and its delay."""

    client: SimulatedProcess
    runtime: QueueRuntime
    history: History
    on_sent: Callable[[str, Sent, int], None]
    sending: bool = False

    def send(self, rng: random.Random) -> Agent:
        """Send a few messages, with pauses in which the notice of an earlier one may stand for the next."""
        for _ in range(rng.randint(1, 3)):
            yield Pause(int(rng.expovariate(1 / rng.choice((SECOND // 20, 4 * SECOND)))))
            one, delay = self.history.send(int(self.client.clock.monotonic())), rng.choice(_DELAYS)
            self.history.begins("send to an idle queue")
            options = Message(None, delay=None if delay is None else delay / SECOND)
            try:
                report = yield from self.runtime.send_many([one.number], options)
            except StoreError as error:
                one.result = Result.UNKNOWN if isinstance(error, OutcomeUnknown) else Result.REFUSED
                continue
            one.result, one.message, one.clock_error = Result.DONE, report.ids[0], self.client.clock.error
            one.answered = int(self.client.clock.monotonic())
            self.on_sent(self.runtime.settings.name, one, delay or 0)
        self.sending = False


class IdleQueues:
    """One to four idle queues, served by one process, each with a sender of its own."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        rng: SeededRandom,
        *,
        faults: frozenset[IdleFault],
        interceptor: Interceptor,
        clients: list[SimulatedProcess],
    ) -> None:
        """The consumers begin at once; the processes are added to `clients`."""
        self._cluster = cluster
        self._loop = cluster.event_loop
        self._history = history
        self._rng = rng
        self._faults = faults
        self._interceptor = interceptor
        self._clients = clients
        self._log = cluster.activity_log = self._unreliable_log()
        self._awaited: dict[int, AwaitedMessage] = {}
        self._begun: set[int] = set()
        self._ended = False
        self._client = self._process("watcher")
        layout = rng.choice(_LAYOUTS)
        names = [f"{IDLE}{number}" for number in range(rng.randint(1, 4))]
        self._rings = {name: Ring(name, layout) for name in names}
        rows = len(self._rings[names[0]].rows())
        turns = rows if layout.concurrency_shards > 1 else -(-rows // 2)
        self._deadlines = IdleDeadlines(len(names), cells=cluster.profile.page, turns=turns)
        settings = [Settings(name=name, layout=layout, behaviour=Behaviour(lease_us=_LEASE)) for name in names]
        watch = ActivityWatch(self._client.clock)
        self._consumers = [self._consumer(each, watch) for each in settings]
        self._activities = {each.queue: each.runtime.scheduler.activity for each in self._consumers}
        self._senders = [self._sender(each) for each in settings]

    def _unreliable_log(self) -> UnreliableLog:
        log = UnreliableLog(self._loop, self._rng.derive("log"))
        log.loses = self._rng.choice((0.3, 0.7)) if IdleFault.LOST in self._faults else 0
        log.delays = 0.3 if IdleFault.LATE in self._faults else 0
        return log

    def _process(self, name: str) -> SimulatedProcess:
        client = SimulatedProcess(
            name, SkewedClock(self._loop, self._rng.randint(-500, 500)), self._cluster, interceptor=self._interceptor
        )
        self._clients.append(client)
        return client

    def _consumer(self, settings: Settings, watch: ActivityWatch) -> _Consumer:
        runtime = QueueRuntime(settings, self._client.clock, (), watch=watch)
        own = self._rng.derive(f"consumer of {settings.name}")
        return _Consumer(self._client, runtime, self._history, own, self._begins, self._failed)

    def _sender(self, settings: Settings) -> _Sender:
        client = self._process(f"sender to {settings.name}")
        clock: Clock = _OwnClock(client.clock) if IdleFault.CLOCKS in self._faults else client.clock
        return _Sender(client, QueueRuntime(settings, clock, ()), self._history, self._sent)

    def play(self) -> None:
        """Let the queues become idle, and send to them, again and again; a message that is late ends this."""
        for consumer in self._consumers:
            consumer.start()
        for number in range(_ROUNDS):
            own = self._rng.derive(f"round {number}")
            self._be_quiet(own if IdleFault.SUSPENSIONS in self._faults else None)
            self._round(own)
            if self._history.late_begins:
                break
        self._ended = True
        self._log.unreadable_until = 0
        self._be_quiet()
        self._wait_for_all()
        for client in (self._client, *[sender.client for sender in self._senders]):
            client.crash()
        self._cluster.activity_log = None

    def _be_quiet(self, rng: SeededRandom | None = None) -> None:
        """Suspend the process for longer than its queues are in use, so that they are idle afterwards.

        A minute of polls would show the same, and take longer than all the rest. With `rng` some of the senders do not
        wait for its end.
        """
        duration = self._rng.randint(*_QUIET)
        self._suspend(duration)
        if rng:
            for sender in self._senders:
                if rng.random() < _SENT_MEANWHILE:
                    self._start(sender, rng, rng.randint(0, duration))
        self._loop.advance_to(self._client.paused_until - SECOND // 2)

    def _suspend(self, duration: int) -> None:
        until = self._client.paused_until = max(self._client.paused_until, self._loop.now + duration)
        self._deadlines.hinder(None, self._loop.now, until + _AFTER_LONG_READ)

    def _round(self, rng: SeededRandom) -> None:
        """Send to some of the queues, under faults, until all that is due soon has begun."""
        self._deadlines.forget_before(self._loop.now)
        for sender in self._senders:
            if IdleFault.CLOCKS in self._faults:
                sender.client.clock.skew = int(rng.choice(_SKEWS))
            if rng.random() < 0.7 and not sender.sending:
                self._start(sender, rng, rng.randint(0, SECOND))
        self._plan_faults(rng)
        self._loop.run(self._over, self._loop.now + _LONGEST_ROUND)

    def _start(self, sender: _Sender, rng: SeededRandom, delay: int) -> None:
        sender.sending = True
        sender.client.start(sender.send(rng.derive(f"send to {sender.runtime.settings.name}")), delay)

    def _plan_faults(self, rng: SeededRandom) -> None:
        times = rng.randint(1, 2)
        if IdleFault.UNREADABLE in self._faults:
            self._loop.call_later(rng.randint(0, 3 * SECOND), self._make_unreadable, rng.choice((SECOND, 6 * SECOND)))
        if IdleFault.SUSPENSIONS in self._faults:
            self._loop.call_later(
                rng.randint(0, 4 * SECOND), self._suspend_at_work, rng.choice((SECOND // 2, 7 * SECOND))
            )
        for _ in range(times if IdleFault.STOPS in self._faults else 0):
            self._loop.call_later(
                rng.randint(0, 4 * SECOND), self._stop, rng.choice(self._consumers), rng.choice((SECOND // 10, _LEASE))
            )

    def _suspend_at_work(self, duration: int) -> None:
        if not self._ended:
            self._suspend(duration)

    def _make_unreadable(self, duration: int) -> None:
        """Have reads of the log fail; consumers that failed with it begin anew a little later."""
        if self._ended:
            return
        now = self._loop.now
        self._log.unreadable_until = now + duration
        self._deadlines.hinder(None, now, now + duration + _AGAIN)

    def _stop(self, consumer: _Consumer, duration: int) -> None:
        """Stop a consumer, which may be the one that reads the log for all queues; another begins later."""
        if self._ended or consumer.agent is None or not self._client.stop(consumer.agent):
            return
        consumer.agent = None
        for row in self._rings[consumer.queue].rows():  # it may have moved the head of one, and have delivered nothing
            self._deadlines.begins(row, self._loop.now)
        self._deadlines.hinder(consumer.queue, self._loop.now, self._loop.now + duration)
        self._loop.call_later(duration, consumer.start)

    def _failed(self, queue: str) -> None:
        self._deadlines.hinder(queue, self._loop.now, self._loop.now + _AGAIN)

    def _over(self) -> bool:
        soon = self._loop.now + 10 * SECOND
        sending = any(sender.sending for sender in self._senders)
        return not sending and all(one.due > soon for one in self._awaited.values())

    def _sent(self, queue: str, sent: Sent, delay: int) -> None:
        """Await a message, unless it began before its send returned."""
        if sent.number in self._begun or sent.message is None:
            return
        now, place, row = self._loop.now, ids.moment(sent.message.id), sent.message.row
        ring = self._rings[queue]
        ended = place <= now and row not in ring.current(now)
        self._awaited[sent.number] = AwaitedMessage(
            sent.number,
            queue,
            row,
            now,
            max(now, place),
            place,
            self._log.last.get(queue),
            unhurried=self._unhurried(queue),
            past=ended and not self._activities[queue].idle,
            future=row not in ring.current(place - delay),
            turns_from=0 if ring.shared else ring.turn(row, place) or 0,
        )

    def _unhurried(self, queue: str) -> bool:
        """Whether the queue is in use, but had no traffic of this process for a minute.

        So it is if the process was suspended while it worked on a message, or found by a turn that the bell was rung.
        """
        activity = self._activities[queue]
        return not activity.idle and self._client.clock.now() - activity.last_traffic >= _TRAFFIC

    def _begins(self, row: str, number: int) -> None:
        """Note that a message begins, whether or not its send has returned: the head of its row is behind it now."""
        one, now = self._awaited.pop(number, None), self._loop.now
        self._loop.recheck()
        if one and now > (deadline := self._deadlines.of(one)):
            self._history.late_begins.append(LateBegin(number, one.queue, now - deadline))
        if number not in self._begun:
            self._deadlines.begins(row, now)
        self._begun.add(number)

    def _record_overdue(self) -> None:
        now = self._loop.now
        overdue = [one for one in self._awaited.values() if now > self._deadlines.of(one)]
        self._history.late_begins += [LateBegin(one.number, one.queue, None) for one in overdue]

    def _wait_for_all(self) -> None:
        """Wait for the delayed messages, for a while also for late ones, and for the last acks."""
        latest = max([self._deadlines.of(one) for one in self._awaited.values()], default=self._loop.now)
        self._loop.run(lambda: not self._awaited, max(latest, self._loop.now) + _LONGEST_ROUND)
        self._record_overdue()
        self._loop.run(lambda: not any(consumer.settling for consumer in self._consumers), self._loop.now + _LEASE)
