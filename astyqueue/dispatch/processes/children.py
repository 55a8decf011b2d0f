"""The child processes of a dispatcher, each of which runs one handler at a time."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from astyqueue.clock import Clock, SystemClock
from astyqueue.dispatch.processes.child_process import CHILD_OF, ChildProcess, ProcessOptions
from astyqueue.dispatch.running_executions import Interrupted
from astyqueue.dispatch.worker_log import log_event
from astyqueue.errors import BadSetting, ChildDied, Closed
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.text import length_text, reason_of
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: A child that dies sooner than this after its start makes the next one start later: after the first pause, doubled
#: each time up to the longest.
_SETTLED: Final = 5 * SECOND
_FIRST_PAUSE: Final = SECOND // 10
_LONGEST_PAUSE: Final = 5 * SECOND


class ChildSlot:
    """The place of one child: the child that runs, or the moment at which the next one may start.

    One thread uses it at a time; any thread may close it.
    """

    def __init__(self, options: ProcessOptions, addresses: list[str]) -> None:
        """No child runs yet; each will import at once what is at these addresses then."""
        self._options = options
        self._addresses = addresses
        self._clock = SystemClock()
        self._wakeup = Wakeup(self._clock)
        self._child: ChildProcess | None = None
        #: Those that were asked to exit and may not have: the next delivery does not wait for them.
        self._leaving: list[ChildProcess] = []
        self._started: MonotonicUs = BEGINNING
        self._pause = 0
        self._handled = 0
        self._closed = False

    def start(self) -> None:
        """Start a child, without waiting until it is ready. If that fails, `child` tries again after a pause."""
        self._started = self._clock.monotonic()
        self._handled = 0
        try:
            self._child = ChildProcess(self._options, self._addresses)
        except OSError as error:  # the system has too many processes, say: no message is to blame
            self._lengthen_pause()
            again_in = length_text(self._pause)
            log_event(logging.WARNING, "child_not_started", error=reason_of(error), again_in=again_in)

    def child(self, wanted: Callable[[], bool]) -> ChildProcess:
        """The child, ready for a delivery; one that died without a delivery is replaced.

        Closed after `close`, Interrupted if it is not `wanted` any more.
        """
        self._reap()
        while True:
            self._wait()
            if not wanted():
                raise Interrupted
            if self._closed:
                message = "the dispatcher was stopped: no child is started any more"
                raise Closed(message)
            if self._child is None:
                self.start()
            if self._child is not None:
                if self._child.wait_until_ready():
                    return self._child
                if not self._closed:
                    self.replace_dead("without a message")

    def _reap(self) -> None:
        """Kill children that do not exit in time, and forget those that have ended."""
        self._leaving = [child for child in self._leaving if not child.has_ended()]

    def _lengthen_pause(self) -> None:
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause) if self._pause else _FIRST_PAUSE

    def _wait(self) -> None:
        """Wait until the next child may start."""
        until = self._started + self._pause
        while self._child is None and self._clock.monotonic() < until and not self._closed:
            self._wakeup.wait(until)

    def replace_dead(self, when: str) -> None:
        """Plan the start of the next child, after one that died by itself: the sooner it did, the later."""
        pid = self._child.pid if self._child else None
        how = self._end()
        now = self._clock.monotonic()
        if now - self._started > _SETTLED:
            self._pause = 0
        else:
            self._lengthen_pause()
        self._started = now
        log_event(logging.WARNING, "child_died", pid=pid, when=when, how=how, again_in=length_text(self._pause))

    def replace(self) -> None:
        """Start the next child at once, after one that was killed on purpose or has handled enough.

        It does not wait for that one: the handler has ended, and its outcome is to be handed in.
        """
        child, self._child = self._child, None
        if child is not None:
            child.ask_to_end()
            self._leaving.append(child)
        if not self._closed:
            self.start()

    def handled(self) -> None:
        """Count a delivery; replace a child that has handled enough, or that takes too much memory."""
        self._handled += 1
        self._pause = 0
        child, most, memory = self._child, self._options.max_tasks, self._options.max_rss
        used_up = most is not None and self._handled >= most
        large = memory is not None and child is not None and child.memory > memory
        if used_up or large:
            self.replace()

    def close(self) -> None:
        """Start no more children, and have an idle one end. Any thread may call this."""
        self._closed = True
        self._wakeup.set()

    def kill_unready(self) -> None:
        """Kill a child that a delivery waits for: no handler runs in it. Any thread may call this, after `close`."""
        if (child := self._child) is not None and not child.ready:
            child.kill()

    def ask_to_end(self) -> None:
        """Have an idle child exit, without waiting for that; one that is still starting would take as long as that."""
        if self._child is not None:
            if self._child.is_starting:
                self._child.kill()
            self._child.ask_to_end()

    def end(self) -> None:
        """End the child, and those before it; a `replace` after it starts no other."""
        self.close()
        self._end()
        for child in self._leaving:
            child.end()
        self._leaving = []

    def _end(self) -> str:
        child, self._child = self._child, None
        return "" if child is None else child.end()


class ProcessChildren:
    """As many children as handlers for processes run at a time. A child that dies fails its own delivery only."""

    def __init__(self, clock: Clock, options: ProcessOptions) -> None:
        """Nothing is started. `clock` is that of the queues. BadSetting in a process that is such a child itself."""
        if os.environ.get(CHILD_OF) == str(os.getppid()):
            message = (
                "this process handles messages for its parent, and imported a module that starts a dispatcher with "
                'processes of its own: have that module start it under `if __name__ == "__main__":`'
            )
            raise BadSetting(message)
        self.count = options.count
        self._clock = clock
        self._addresses: list[str] = []
        self._slots = [ChildSlot(options, self._addresses) for _ in range(options.count)]
        self._idle: SimpleQueue[ChildSlot] = SimpleQueue()
        for slot in self._slots:
            self._idle.put(slot)
        self._lock = threading.Lock()
        self._handling: dict[Delivery, ChildProcess | None] = {}
        self._killed: set[Delivery] = set()
        self._closed = False

    def expect(self, address: str) -> None:
        """Have children that start from now on import the function at this address at once."""
        self._addresses.append(address)

    def start(self) -> None:
        """Start all children if there are handlers for them, without waiting until they are ready.

        None is left if `close` was called before, or meanwhile.
        """
        for slot in self._slots if self._addresses else []:
            if not self._closed:
                slot.start()
        if self._closed:
            _end_all(self._slots)

    def call(self, address: str, delivery: Delivery) -> None:
        """Have a child call the function at this address, and wait for the end; see `ChildProcess.call`.

        `Interrupted` if the delivery was given up before the end.
        """
        with self._lock:
            self._handling[delivery] = None
        slot = self._idle.get()
        try:
            self._call(slot, address, delivery)
        finally:
            with self._lock:
                del self._handling[delivery]
                self._killed.discard(delivery)
                ended = self._closed
                if not ended:  # before the lock is free: `close` ends the slots that it finds here
                    self._idle.put(slot)
            if ended:
                slot.end()
                self._idle.put(slot)

    def _call(self, slot: ChildSlot, address: str, delivery: Delivery) -> None:
        def wanted() -> bool:
            return self._is_wanted(delivery)

        child = slot.child(wanted)
        while not self._begin(child, address, delivery):
            slot.replace_dead("without a message")
            child = slot.child(wanted)
        try:
            child.finish(delivery)
        except ChildDied:
            if self._forget(delivery):
                slot.replace()
                raise Interrupted from None
            slot.replace_dead(f"with message {delivery.message_id}")
            raise
        except BaseException:
            self._end(slot, delivery)
            raise
        self._end(slot, delivery)

    def _end(self, slot: ChildSlot, delivery: Delivery) -> None:
        """A child has answered. If it was killed at that moment, another takes its place."""
        if self._forget(delivery):
            slot.replace()
        else:
            slot.handled()

    def _begin(self, child: ChildProcess, address: str, delivery: Delivery) -> bool:
        """Give a delivery to a child; False if that child is dead."""
        with self._lock:
            if not self._is_wanted(delivery):
                raise Interrupted
            self._handling[delivery] = child
        return child.begin(address, delivery)

    def _is_wanted(self, delivery: Delivery) -> bool:
        """Whether a delivery was not given up: its lease is still to be renewed."""
        until = delivery.renew_until
        return delivery not in self._killed and (until is None or until > self._clock.now())

    def _forget(self, delivery: Delivery) -> bool:
        """Kill this child for this delivery no more; returns whether it was killed for it."""
        with self._lock:
            self._handling[delivery] = None
            return delivery in self._killed

    def interrupt(self, delivery: Delivery) -> None:
        """Kill the child that handles a delivery, which was given up; no other delivery is touched.

        One that middleware is still to pass on is then refused.
        """
        with self._lock:
            delivery.renew_until = 0
            if delivery in self._handling:
                self._killed.add(delivery)
                if (child := self._handling[delivery]) is not None:
                    child.kill()

    def close(self) -> None:
        """End all children: idle ones now, each other one when its handler has ended."""
        with self._lock:
            self._closed = True
        for slot in self._slots:
            slot.close()
        idle = [self._idle.get() for _ in range(self._idle.qsize())]
        for slot in self._slots:
            if slot not in idle:
                slot.kill_unready()
        _end_all(idle)
        for slot in idle:
            self._idle.put(slot)


def _end_all(idle: list[ChildSlot]) -> None:
    """End children that handle nothing: all are asked to before the first is waited for."""
    for slot in idle:
        slot.ask_to_end()
    for slot in idle:
        slot.end()


def available_processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
