"""The slots of a dispatcher: threads, each of which takes messages of all queues in turn and handles them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Container
from queue import SimpleQueue
from typing import Final, Protocol

from astyqueue.clock import Clock
from astyqueue.dispatch.consumers import ConsumerManager, MultiQueueConsumer, Pulled
from astyqueue.dispatch.slots.free_slots import ClaimCredit, FreeSlots
from astyqueue.dispatch.slots.ready_deliveries import ReadyDeliveries
from astyqueue.dispatch.worker_log import log_event, log_traceback
from astyqueue.errors import ThreadsDied
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.text import reason_of
from astyqueue.units import SECOND, MonotonicUs
from astyqueue.waiting import BargingLock

#: If more slots than this die within this time, the dispatcher stops: the process must be restarted.
_DEATHS: Final = 10
_WITHIN: Final = 60 * SECOND


class Executions(Protocol):
    """What handles the deliveries that slots take."""

    def carry_out(self, delivery: Delivery, /) -> None:
        """Handle a delivery; returns when it has an outcome."""


class ServedLine(Protocol):
    """A waiting line of a queue as slots see it."""

    @property
    def name(self) -> str:
        """The name of its queue."""

    @property
    def weight(self) -> int:
        """The turns of its queue under load."""

    @property
    def executions(self) -> Executions:
        """What handles its deliveries."""

    @property
    def ready(self) -> ReadyDeliveries:
        """Its deliveries that wait for a slot."""

    @property
    def credit(self) -> ClaimCredit:
        """What asks for more of them."""


class _Slot:
    """One thread: what wakes it, and the line whose message it handles (None while it looks for one)."""

    __slots__ = ("consumer", "line", "rests", "signals", "thread")

    def __init__(self) -> None:
        self.signals: SimpleQueue[None] = SimpleQueue()
        self.consumer: MultiQueueConsumer[Delivery] = MultiQueueConsumer(self.wake)
        self.line: ServedLine | None = None
        self.rests = False
        self.thread: threading.Thread | None = None

    def wake(self) -> None:
        """End its rest, or the next one."""
        self.signals.put(None)


class SlotPool:
    """The slots of one kind. Each takes a message of any queue; while several queues have some, they take turns.

    The threads are daemons: `shut` ends them, or the interpreter's exit. A slot whose thread dies of an error outside
    of handlers is replaced.
    """

    def __init__(self, size: int, free: FreeSlots, clock: Clock) -> None:
        """`size` slots; nothing runs yet."""
        self.size = size
        #: Called when a thread died, when no slot is busy any more with a line that leaves, and when a thread has left
        #: once the pool was shut.
        self.on_change: Callable[[], None] = lambda: None
        self.threads: list[threading.Thread] = []
        self.free = free
        self._clock = clock
        self._lock = BargingLock()
        self._lines: dict[ConsumerManager[Delivery], ServedLine] = {}
        self._slots: list[_Slot] = []
        #: For each line that leaves, the slots that may have a message of it.
        self._leaving: dict[ConsumerManager[Delivery], set[_Slot]] = {}
        self._resting = 0
        self._left = 0
        self._shut = False
        #: The slots that died, or could not be started, and that no other thread has taken the place of yet.
        self._missing = 0
        self._died: deque[tuple[_Slot, BaseException]] = deque()
        self._deaths: deque[MonotonicUs] = deque(maxlen=_DEATHS)

    def __repr__(self) -> str:
        """The numbers of slots and lines."""
        return f"<SlotPool: {self.size} slots, {len(self._lines)} lines>"

    def start(self) -> None:
        """Start the threads. If one cannot be started, that raises, and `replace_dead` starts what is missing."""
        for number in range(1, self.size + 1):
            try:
                self._start_slot(f"{number}")
            except BaseException:
                self._missing = self.size + 1 - number
                raise

    def _start_slot(self, name: str) -> None:
        slot = _Slot()
        slot.thread = threading.Thread(target=self._run, args=(slot,), name=f"astyqueue:handle:{name}", daemon=True)
        with self._lock:
            for manager, line in self._lines.items():
                if manager not in self._leaving:
                    self._serve(slot, line)
            try:
                slot.thread.start()  # with the lock, so that it knows of each line that is added or removed meanwhile
            except BaseException:
                slot.consumer.close()
                raise
            self._slots.append(slot)
            self.threads.append(slot.thread)

    def _serve(self, slot: _Slot, line: ServedLine) -> None:
        slot.consumer.add_queue(line.ready.manager, weight=line.weight)

    def add_line(self, line: ServedLine) -> None:
        """Take messages of this line too, from now on."""
        with self._lock:
            self._lines[line.ready.manager] = line
            for slot in self._slots:
                self._serve(slot, line)

    def remove_line(self, line: ServedLine) -> None:
        """Take no more messages of this line. Those that slots have go on; `forget_line` follows once they ended."""
        manager = line.ready.manager
        with self._lock:
            if manager in self._leaving:
                return
            for slot in self._slots:
                slot.consumer.remove_queue(manager)
            # All slots at first: one that goes on meanwhile is seen by the loop below, or removes itself in `_goes_on`.
            busy = self._leaving[manager] = {*self._slots}
            for slot in self._slots:
                if slot.rests or slot.line not in (None, line):
                    busy.discard(slot)

    def forget_line(self, line: ServedLine) -> None:
        """Forget a line that no slot is busy with any more; it may never have been added."""
        with self._lock:
            self._lines.pop(line.ready.manager, None)
            self._leaving.pop(line.ready.manager, None)

    def is_busy_with(self, line: ServedLine) -> bool:
        """Whether a slot may have a message of this line, which was removed."""
        return bool(self._leaving.get(line.ready.manager))

    def _goes_on(self, slot: _Slot, to: ConsumerManager[Delivery] | None) -> None:
        """A slot has begun a message of a line, or has nothing to do: it has none of the lines that leave."""
        with self._lock:
            left = [manager for manager, busy in self._leaving.items() if busy == {slot} and manager is not to]
            for manager, busy in self._leaving.items():
                if manager is not to:
                    busy.discard(slot)
        if left:
            self.on_change()

    def is_idle(self, held: int) -> bool:
        """Whether all slots rest or have left, except the `held` ones, whose handlers were given up."""
        return self._resting + self._missing >= self.size - held

    def is_beginning(self, begun: Container[int]) -> bool:
        """Whether a slot may have a delivery that has not begun: not those that rest, nor these threads."""
        with self._lock:
            busy = [slot.thread for slot in self._slots if not slot.rests]
        return any(one is not None and one.is_alive() and one.ident not in begun for one in busy)

    @property
    def ended(self) -> bool:
        """Whether all slots have left, so that no delivery will be taken."""
        return self._left + self._missing >= self.size

    def shut(self) -> None:
        """Have each slot end when it finds nothing to take."""
        with self._lock:
            self._shut = True
            slots = [*self._slots]
        for slot in slots:
            slot.wake()

    def _run(self, slot: _Slot) -> None:
        pull, lines = slot.consumer.pull, self._lines
        pulled: Pulled[Delivery] | None = None
        try:
            while (pulled := pull() or self._pull_when_woken(slot)) is not None:
                slot.line = line = lines[pulled.manager]
                if self._leaving:
                    self._goes_on(slot, pulled.manager)
                line.credit.taken()
                line.executions.carry_out(pulled.ready.message)
                slot.line = None
        except BaseException as error:  # noqa: BLE001 - as when memory runs out; another thread takes this one's place
            if pulled is not None:  # its lease runs out, and it is handed out again
                pulled.ready.message.renew_until = self._clock.now()
            self._died.append((slot, error))
            self.on_change()

    def _pull_when_woken(self, slot: _Slot) -> Pulled[Delivery] | None:
        """Rest until there is a message; None once the pool is shut."""
        while self._rest(slot):
            pulled = slot.consumer.pull()
            self.free.offer()  # until now the message waited, as if for one of the other free slots
            if pulled is not None:
                return pulled
        return None

    def _rest(self, slot: _Slot) -> bool:
        """Wait until a line has something; False once the pool is shut."""
        with self._lock:
            slot.rests = True
            self._resting += 1
            shut = self._shut
            self._left += shut
        if self._leaving:
            self._goes_on(slot, None)
        if shut:
            slot.consumer.close()
            self.on_change()
            return False
        self.free.add_free()
        slot.signals.get()
        self.free.take_free()
        with self._lock:
            self._resting -= 1
            slot.rests = False
        return True

    def replace_dead(self) -> ThreadsDied | None:
        """Start a thread for each that died; returns an error at the eleventh death within a minute.

        If a thread cannot be started, that raises, and the next call tries again.
        """
        while self._died:
            slot, error = self._died.popleft()
            now = self._clock.monotonic()
            again = len(self._deaths) == _DEATHS and now - self._deaths[0] < _WITHIN
            self._deaths.append(now)
            name = slot.line.name if slot.line else ""
            log_event(logging.CRITICAL, "thread_died", queue=name, error=reason_of(error), replaced=not again)
            log_traceback(error, queue=name)
            with self._lock:
                self._slots.remove(slot)
                self.threads = [one for one in self.threads if one is not slot.thread]
            slot.consumer.close()
            self._goes_on(slot, None)
            if again:
                return ThreadsDied(name, _DEATHS + 1, reason_of(error))
            self._missing += 1
        while self._missing:
            self._start_slot("again")
            self._missing -= 1
        return None
