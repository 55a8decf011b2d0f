"""What the queue for threads and the queue for tasks have in common: one queue, open in this process."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from astyqueue.clock import Clock
from astyqueue.errors import StoreUnavailable
from astyqueue.ids import IdSource
from astyqueue.model.checks import check_count
from astyqueue.model.outgoing import Message
from astyqueue.model.settings import Settings
from astyqueue.protocol.process import Process
from astyqueue.protocol.rows import Ring
from astyqueue.protocol.settings import change_behaviour
from astyqueue.protocol.steps import Steps
from astyqueue.queue.claimer import Claimer
from astyqueue.queue.following import Following
from astyqueue.queue.holding import Handed, Kind, Seat
from astyqueue.queue.hooks import Hook
from astyqueue.queue.lead import was_closed
from astyqueue.queue.locking import Locking
from astyqueue.queue.operating import Operating
from astyqueue.queue.placement import Placement
from astyqueue.queue.producer import Producer, SendReport, Sent
from astyqueue.queue.rounds import Rounds
from astyqueue.queue.terms import Terms
from astyqueue.queue.ways import USUAL, Ways
from astyqueue.triggers import Triggers

_HOST: Final = 60


def process_of(clock: Clock) -> Process:
    """This process under a name that no other has: host, process id and a random part."""
    name = f"{socket.gethostname()[:_HOST]}:{os.getpid()}:{secrets.token_hex(3)}"
    return Process(name, clock.now)


@dataclass(frozen=True, slots=True)
class Taking:
    """What a taker asks for: up to `limit` deliveries, waiting so many microseconds at most (None: for ever); and what it got."""

    limit: int
    wait: int | None
    kind: Kind
    renew: bool = False
    taken: list[Handed] = field(default_factory=list)


class Core:
    """The parts that work for one queue in one process; after a fork the child makes its own."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        hooks: Iterable[Hook],
        *,
        triggers: Triggers | None = None,
        fires: bool = True,
        ways: Ways = USUAL,
    ) -> None:
        """Work with settings that were just read from the store. `triggers` are those of users; `fires`: schedules are fired here."""
        self.pid = os.getpid()
        self.clock = clock
        self.hooks = tuple(hooks)
        self.triggers = Triggers() if triggers is None else triggers
        self.fires = fires
        self.ways = ways
        self.process = process_of(clock)
        self.following = Following(self.process, settings, clock)
        self.ring = Ring(settings.name, settings.layout)
        self.rounds = Rounds(self.ring, clock, self.process.name)
        fired = self.triggers if fires else None
        locking = Locking(ways.lock(self.process, clock), ways.lock_timeout, self.rounds)
        self.claimer = Claimer(
            self.process, self.rounds, clock=clock, following=self.following, locking=locking, hooks=self.hooks, triggers=fired
        )
        placement = Placement(self.ring, ways.place)
        self.producer = Producer(
            self.process,
            IdSource(clock),
            following=self.following,
            placement=placement,
            hooks=self.hooks,
            arrived=self._arrived,
            history=self.claimer.history,
        )
        self.terms = Terms(self.process.now, lambda: self.settings.behaviour, random.random)
        self.operating = Operating(
            self.process, lambda: self.settings, clock=clock, changed=self.claimer.changed, history=self.claimer.history
        )
        self.closed = False
        self._in_children: dict[int, Core] = {}

    def fire_nothing(self) -> None:
        """Leave the schedules of the queue to others from now on."""
        self.fires = False
        self.claimer.firings.turn_off()
        self.rounds.visits.fire(on=False)

    @property
    def settings(self) -> Settings:
        """The queue's settings, as far as this process knows."""
        return self.following.settings

    def here(self) -> Core:
        """This core, or in a child process after a fork a new one; a closed queue raises Closed.

        Threads of the child that ask at the same moment get the same one: of two, one would renew no lease. No lock is needed for
        that, nor could one be trusted after a fork: of several that are made, the dictionary keeps the first.
        """
        if self.closed:
            raise was_closed(self.settings.name)
        if (pid := os.getpid()) == self.pid:
            return self
        made = Core(self.settings, self.clock, self.hooks, triggers=self.triggers, fires=self.fires, ways=self.ways)
        return self._in_children.setdefault(pid, made)

    def close(self) -> None:
        """Hand out and settle nothing more here; whoever waits is told."""
        self.closed = True
        self.claimer.close(self.settings.name)

    def send(self, message: Message) -> Steps[Sent]:
        """Send one message, and let the claimer here know of it."""
        yield from self._keep_up()
        sent = yield from self.producer.send(message)
        self.claimer.stats.add("sent", sent.new)
        return sent

    def _keep_up(self) -> Steps[None]:
        """Follow the settings and the store's time; where the store does not answer, the send is what tells of it."""
        with contextlib.suppress(StoreUnavailable):
            yield from self.following.follow(only_sends=True)

    def send_many(self, items: Iterable[object], defaults: Message) -> Steps[SendReport]:
        """Send many, and let the claimer here know of them."""
        yield from self._keep_up()
        report = yield from self.producer.send_many(items, defaults)
        self.claimer.stats.add("sent", report.sent)
        return report

    def take(self, order: Taking) -> Steps[list[Handed]]:
        """Deliveries for one taker. One that is stopped while it waits gives back at once what it was just handed.

        Whoever stops listening when these steps have ended, but before it has the result, does so by `give_back`.
        """
        check_count(order.limit, "deliveries cannot be received")
        taken = order.taken
        until = None if order.wait is None else self.clock.monotonic() + order.wait
        seat = Seat(lambda: order.limit - len(taken), taken.extend, kind=order.kind, renew=order.renew)
        try:
            yield from self.claimer.take(seat, lambda: bool(taken), until=until)
        except BaseException:
            self.give_back(order)
            raise
        if not taken:
            self.claimer.stats.add("empty_polls")
        return taken

    def give_back(self, order: Taking) -> None:
        """Let others have at once what a taker was handed that will never see it."""
        while order.taken:
            self.claimer.give_back(order.taken.pop())

    def _arrived(self, sent: list[tuple[str, int]]) -> Steps[None]:
        """Let the claimer here know what was sent, and ring for those of other processes."""
        for row, moment in sent:
            self.claimer.sent(row, moment)
        yield from self.rounds.survey.doorbell.ring([row for row, _ in sent])

    def configure(self, changes: dict[str, object]) -> Steps[Settings]:
        """Change how the queue behaves, here at once and elsewhere within ten seconds."""
        settings = yield from change_behaviour(self.settings.name, changes)
        self.following.settings = settings
        self.claimer.wake()
        return settings
