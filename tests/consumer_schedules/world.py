"""Consumers of managers, played in an order drawn from a seed, and what must hold whenever a manager's lock is free.

Nothing runs by itself: a schedule carries out one enabled action after the other. A wake-up, or a report of credit, is
an action of its own, made any time after the call that caused it; and a consumer of several queues is interrupted
between its calls of their managers. So schedules interleave at each boundary of a lock.
"""

from __future__ import annotations

import functools
import time
from bisect import insort
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from astyqueue.dispatch.consumers.consumer_manager import ConsumerManager
from astyqueue.dispatch.consumers.consumer_states import Consumer
from astyqueue.dispatch.consumers.credit import Credit
from astyqueue.dispatch.consumers.multi_queue import MultiQueueConsumer
from astyqueue.dispatch.consumers.ready_buffer import ALL, Ready, Selector
from astyqueue.units import NEVER
from tests.consumer_schedules.oracle import Broken, Oracle

Action = Callable[[], None]
Item = Ready[int]
SELECTORS: Final = (
    Selector(frozenset({"a"})),
    Selector(frozenset({"a", "b"})),
    Selector(frozenset({"c"})),
    Selector(accepts=lambda task, _: task == "b"),
)


class DeferredCredit(Credit):
    """Credit whose reports are made by an action of their own."""

    def __init__(self, world: World, messages: int = 0, size: int = 0) -> None:
        super().__init__(messages, size)
        self._world = world

    def _report(self, *, changed: bool) -> None:
        if changed:
            self._world.later.append(functools.partial(super()._report, changed=True))

    def could_take(self, size: int) -> bool:
        """Whether a message of this size may go out, computed anew."""
        if self._paused or (self._messages and self._used_messages >= self._messages):
            return False
        return not (self._size and self._used_size) or self._used_size + size <= self._size


class Queue(ConsumerManager[int]):
    """A manager with an account, kept apart from it, of its messages and its consumers' order of sleep."""

    def __init__(self, world: World, live: int | None, running: int | None) -> None:
        super().__init__(lambda: world.time, live=live, age=world.age, running=running, on_expired=self.on_late)
        self.running_limit = running
        self.world = world
        self.live_limit = live
        self.present: list[Item] = []
        self.members: dict[Consumer[int], Slot] = {}
        self.asleep_in_order: dict[Consumer[int], None] = {}

    @property
    def running(self) -> int:
        """How many messages consumers hold that have not left."""
        slots = self.world.slots
        return sum(owner is self and consumer in self.members for slot in slots for owner, consumer, _ in slot.held)

    def live_members(self) -> list[Consumer[int]]:
        """Those that are fed: the first ones."""
        return [*self.members][: self.live_limit]

    def add_message(self, item: Item) -> None:
        self.present.append(item)
        self.put([item])

    def on_late(self, expired: list[Item]) -> None:
        for item in expired:
            self.present.remove(item)

    def add_consumer(self, consumer: Consumer[int], *, follow_credit: bool = True) -> None:
        consumer.wake = functools.partial(self.world.on_wake, self, consumer, consumer.wake)
        self.members[consumer] = self.world.adding
        super().add_consumer(consumer, follow_credit=follow_credit)

    def remove_consumer(self, consumer: Consumer[int]) -> None:
        self.members.pop(consumer, None)
        self.asleep_in_order.pop(consumer, None)
        super().remove_consumer(consumer)

    def pull(self, consumer: Consumer[int], *, ended: bool = False) -> Item | None:
        self.world.interrupt(self.members.get(consumer))
        item = super().pull(consumer, ended=ended)
        if item is not None:
            self._account(consumer, item)
        elif consumer in self.members:
            self.asleep_in_order.setdefault(consumer)
        self.world.interrupt(self.members.get(consumer))
        return item

    def pull_quickly(self, consumer: Consumer[int]) -> Item | None:
        self.world.interrupt(self.members.get(consumer))
        if (item := super().pull_quickly(consumer)) is not None:
            self._account(consumer, item)
        return item

    def _account(self, consumer: Consumer[int], item: Item) -> None:
        """Check a message that was pulled, and count it as held by the slot of its consumer."""
        self.world.oracle.check_pulled(self, consumer, item)
        self.present.remove(item)
        self.members[consumer].held.append((self, consumer, item))

    def ended(self, consumer: Consumer[int]) -> None:
        self.world.interrupt(self.members.get(consumer))
        super().ended(consumer)

    def refresh(self, consumer: Consumer[int]) -> None:
        self.world.interrupt(self.members.get(consumer))
        super().refresh(consumer)

    def release(self, consumer: Consumer[int], item: Item, *, reject: bool = False) -> bool:
        insort(self.present, item, key=lambda one: one.position)
        if reject:
            self.world.oracle.rejections.add((consumer, item))
        held = super().release(consumer, item, reject=reject)
        if not held:
            self.present.remove(item)
        return held


class Slot:
    """A thread that pulls, handles, and sleeps when there is nothing; of one queue, or of several."""

    def __init__(self, world: World, credit: DeferredCredit | None, *, prefetches: bool) -> None:
        self.world = world
        self.credit = credit
        self.prefetches = prefetches
        self.phase = "pull"
        self.signalled = False
        self.steps = 0
        self.held: list[tuple[Queue, Consumer[int], Item]] = []
        self.consumer: Consumer[int] | None = None
        self.queue: Queue | None = None
        self.multi: MultiQueueConsumer[int] | None = None

    def wake(self) -> None:
        """The signal of its wake-up has arrived."""
        if self.phase == "sleep":
            self.phase = "pull"
        else:
            self.signalled = True

    def actions(self) -> Iterator[Action]:
        """What this thread, and those that finish its messages, can do next."""
        if self.phase == "pull":
            yield self.pull
        elif self.phase == "handle":
            yield self.handle
        if self.prefetches and self.held:
            yield self.finish

    def pull(self) -> None:
        self.phase = "inside"
        if self._pulled():
            self.steps = self.world.steps_of_handler()
            self.phase = "pull" if self.prefetches else "handle"
        elif self.signalled:
            self.phase, self.signalled = "pull", False
        else:
            self.phase = "sleep"

    def _pulled(self) -> bool:
        if self.multi is not None:
            return self.multi.pull() is not None
        if self.queue is None or self.consumer is None or self.consumer not in self.queue.members:
            return False
        return self.queue.pull(self.consumer) is not None

    def handle(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            self.phase = "inside"
            self.finish()
            self.phase = "pull"

    def finish(self) -> None:
        queue, consumer, item = self.held.pop(self.world.random.randrange(len(self.held)))
        released = self.world.finished(queue, consumer, item)
        if not released and (self.credit is not None or self.multi is None):
            queue.ended(consumer)
        if self.credit is not None:
            self.credit.give_back(item.size, silently=not self.prefetches)


class World:
    """One schedule. `plain`: equal consumers that never withdraw, for which more is promised."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.plain = random.random() < 0.3
        self.oracle = Oracle()
        self.later: list[Action] = []
        self.slots: list[Slot] = []
        self.done: set[Item] = set()
        self.sent = 0
        self.depth = 0
        self.handler = random.choice((0, 1, 8))
        self.changes = 0 if self.plain else random.randrange(8)
        self.unsent = random.randrange(1, 12)
        self.time = 0
        self.timed = not self.plain and random.random() < 0.3
        self.age = random.randrange(20) if self.timed and random.random() < 0.5 else None
        live = None if self.plain or random.random() < 0.7 else random.randrange(1, 3)
        running = None if self.plain or random.random() < 0.6 else random.randrange(1, 4)
        self.queues = [Queue(self, live, running) for _ in range(1 if self.plain else random.choice((1, 1, 2, 3)))]
        for _ in range(random.randrange(1, 5)):
            self.add_slot()

    def add_slot(self) -> None:
        """Have one more consumer."""
        random = self.random
        credit = None
        prefetches = not self.plain and random.random() < 0.3
        several = not prefetches and len(self.queues) > 1 and random.random() < 0.6
        if prefetches:
            credit = DeferredCredit(self, random.choice((0, 2, 3)), random.choice((0, 5, 8, 10)))
        elif random.random() < 0.5:
            credit = DeferredCredit(self, 1)
        self.adding = slot = Slot(self, credit, prefetches=prefetches)
        self.slots.append(slot)
        if several:
            slot.multi = MultiQueueConsumer(functools.partial(self.later.append, slot.wake), credit)
            for queue in self.queues:
                slot.multi.add_queue(
                    queue, weight=random.randrange(1, 4), priority=self._priority(), selector=self._selector()
                )
            return
        slot.queue = random.choice(self.queues)
        wake = functools.partial(self.later.append, slot.wake)
        slot.consumer = Consumer(wake, credit=credit, priority=self._priority(), selector=self._selector())
        slot.queue.add_consumer(slot.consumer)

    def _priority(self) -> int:
        return 0 if self.plain else self.random.choice((0, 0, 1, 2))

    def _selector(self) -> Selector:
        return ALL if self.plain or self.random.random() < 0.5 else self.random.choice(SELECTORS)

    def steps_of_handler(self) -> int:
        """How many steps the handler of one message takes."""
        return self.random.randrange(self.handler + 1)

    def send(self) -> None:
        """Put one message, or several at once."""
        self.unsent -= 1
        self.sent += 1
        task = self.random.choice(("a", "b", "c", None))
        expires = self.time + self.random.randrange(30) if self.timed and self.random.random() < 0.5 else NEVER
        item = Ready(self.sent, size=self.random.randrange(1, 8), task=task, expires=expires)
        self.random.choice(self.queues).add_message(item)

    def finished(self, queue: Queue, consumer: Consumer[int], item: Item) -> bool:
        """Ack a message, release or reject it; returns whether it was released."""
        chance = 1.0 if self.plain else self.random.random()
        released = chance <= 0.3 and queue.release(consumer, item, reject=chance < 0.1)
        if not released:
            self.done.add(item)
        return released

    def on_wake(self, queue: Queue, consumer: Consumer[int], wake: Action) -> None:
        """A manager wakes a consumer; the signal arrives later."""
        if consumer.on_credit is not None and not consumer.has_credit:
            message = f"{consumer} was woken without credit"
            raise Broken(message)
        if self.plain and consumer in queue.asleep_in_order:
            if next(iter(queue.asleep_in_order)) is not consumer:
                message = f"{consumer} was woken before others that slept longer"
                raise Broken(message)
            del queue.asleep_in_order[consumer]
        self.later.append(wake)

    def interrupt(self, slot: Slot | None) -> None:
        """Let others act between two calls of managers by one thread."""
        if slot is not None and slot.multi is not None and self.depth < 2 and self.random.random() < 0.3:
            self.depth += 1
            for _ in range(self.random.randrange(4)):
                self.act()
            self.depth -= 1

    def act(self) -> bool:
        """Carry out one action; False if there is none."""
        self.time += 1
        actions: list[Action] = [action for slot in self.slots for action in slot.actions()]
        if self.later:
            actions += [self.arrive] * 2
        if self.unsent:
            actions.append(self.send)
        if self.changes:
            actions.append(self.change)
        if actions:
            self.random.choice(actions)()
        return bool(actions)

    def arrive(self) -> None:
        """Make one of the calls that are under way."""
        self.later.pop(self.random.randrange(len(self.later)))()

    def change(self) -> None:
        """Make one of the changes that happen rarely."""
        self.changes -= 1
        random, slot = self.random, self.random.choice(self.slots)
        kind = random.randrange(7)
        if kind == 0:
            self.add_slot()
        elif kind == 1:
            self.leave(slot)
        elif kind == 2 and slot.credit is not None:
            slot.credit.pause()
        elif kind in {3, 4} and slot.credit is not None:
            slot.credit.resume()
        elif kind == 5:
            self.take_out(random.choice(self.queues))
        else:
            queue = random.choice(self.queues)
            if queue.members:
                queue.set_priority(random.choice([*queue.members]), random.randrange(3))

    def leave(self, slot: Slot) -> None:
        """Remove the consumer of a slot, which finishes what it holds."""
        if slot.multi is not None:
            slot.multi.close()
        elif slot.queue is not None and slot.consumer is not None:
            slot.queue.remove_consumer(slot.consumer)

    def take_out(self, queue: Queue) -> None:
        """Remove a message that waits, or that a consumer holds."""
        held = [item for slot in self.slots for owner, _, item in slot.held if owner is queue]
        items = [*queue.present, *held]
        if items:
            item = self.random.choice(items)
            if item in queue.present:
                queue.present.remove(item)
            queue.remove(item)

    def play(self) -> None:
        """Carry out actions until none is left; raises Broken when a promise does not hold."""
        while self.act():
            if self.at_rest() and self.timed:
                for queue in self.queues:
                    queue.recheck()
            if self.at_rest():
                for queue in self.queues:
                    self.oracle.check_rest(queue)
        if self.plain:
            self.check_plain(self.queues[0])

    def at_rest(self) -> bool:
        """Whether all threads sleep or handle messages, and no wake-up or report is under way."""
        return not self.later and all(slot.phase not in {"pull", "inside"} for slot in self.slots)

    def check_plain(self, queue: Queue) -> None:
        """Equal consumers got all messages, for at most one wake-up each."""
        counters = queue.counters
        if len(self.done) != self.sent or counters.wakeups > counters.delivered:
            message = f"{len(self.done)} of {self.sent} handled: {counters}"
            raise Broken(message)


def play(seed: int) -> None:
    """Play the schedule of this seed; raises Broken, with the seed, when a promise does not hold."""
    try:
        World(seed).play()
    except Broken as broken:
        message = f"schedule {seed}: {broken}"
        raise Broken(message) from broken


def play_part(part: range) -> tuple[list[str], float]:
    """Play these schedules; returns what was broken, and the processor time in seconds."""
    began = time.process_time()
    found = []
    for seed in part:
        try:
            play(seed)
        except Broken as broken:
            found.append(str(broken))
    return found, time.process_time() - began
