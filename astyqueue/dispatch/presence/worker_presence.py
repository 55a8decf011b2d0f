"""A dispatcher's presence in the store: what it reports at each heartbeat, and the commands to it that it finds there.

One thread writes the report, reads the commands, and looks for a stall. It takes no part in claiming, so it can report
that the claims have stopped.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from importlib import metadata
from typing import Final

from astyqueue.clock import Clock
from astyqueue.dispatch.presence.stall_watch import Stall, StallWatch
from astyqueue.dispatch.stacks import stacks_of
from astyqueue.dispatch.worker_log import REMIND, log_event, log_stacks, log_unexpected_error
from astyqueue.dispatch.workload import DispatcherWorkload
from astyqueue.errors import AstyqueueError
from astyqueue.model.presence import HEARTBEAT, Presence, WorkerCommand, WorkerState, loads_text
from astyqueue.protocol.coordination import presence as protocol
from astyqueue.queue.queue import MessageQueue
from astyqueue.queue.runtime import new_client
from astyqueue.text import instant_text, length_text, reason_of
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup

#: A presence whose thread did not come round for this long after its time is not alive: it waits inside the store.
_LIVE_WITHIN: Final = 60 * SECOND
#: Heartbeats that the store may leave unanswered before the process is not ready.
_READY_WITHIN: Final = 3
#: Seconds that the end of a dispatcher waits for the report to be deleted; else it expires.
_WITHDRAWN_WITHIN: Final = 2.0


class WorkerPresence:
    """Reports on one dispatcher, and follows commands to it. All methods may be called from any thread.

    A heartbeat costs one write and one read in each store that the dispatcher has queues in. A store that does not
    answer is asked again with the next one; the work does not depend on it.
    """

    def __init__(self, workload: DispatcherWorkload, clock: Clock) -> None:
        """Nothing runs yet. `every`, `on_drain`, `on_stall` and `watch.after` may be set before `start`."""
        self.name = new_client(clock).name
        self.every = HEARTBEAT
        self.stall: Stall | None = None
        #: Called when a command asks for a drain.
        self.on_drain = workload.drain
        #: Called once with each stall, when it begins.
        self.on_stall: Callable[[Stall], None] = lambda _: None
        self.watch = StallWatch(clock, workload)
        self._workload = workload
        self._clock = clock
        self._wakeup = Wakeup(clock)
        self._thread: threading.Thread | None = None
        self._started = 0
        #: When the thread came round last; None before it is started.
        self._turned: MonotonicUs | None = None
        self._answered = BEGINNING
        self._logged: MonotonicUs | None = None
        self._beat_now = self._quiet = self._draining = self._over = False
        #: The nonces of the commands that the last heartbeat found in each store.
        self._seen: dict[int, set[str]] = {}
        #: A queue of each store that has a report, also once it has left.
        self._reported: dict[int, MessageQueue] = {}
        self._hold_lock = threading.RLock()  # a signal handler may come in the middle of a call of its own thread

    def start(self) -> threading.Thread:
        """Start the thread."""
        self._started = self._clock.now()
        self._turned = self._clock.monotonic()
        self.watch.begin()
        thread = threading.Thread(target=self._run, name="astyqueue:presence", daemon=True)
        thread.start()
        self._thread = thread  # only now: `end` may be called meanwhile, and joins no thread that was not started
        return thread

    @property
    def state(self) -> WorkerState:
        """What the dispatcher does now."""
        if self._draining:
            return WorkerState.DRAINING
        if self.stall is not None:
            return WorkerState.STALLED
        return WorkerState.QUIET if self._quiet else WorkerState.RUNNING

    @property
    def live(self) -> bool:
        """Whether the process does its work, or could: it has not stalled, and this thread comes round once started."""
        if self._turned is None:
            return True
        late = self._clock.monotonic() - self._turned - min(self.every, self.watch.every)
        return self.stall is None and late < _LIVE_WITHIN

    @property
    def ready(self) -> bool:
        """Whether it claims: it runs, and all its stores answered one of the last three heartbeats."""
        unanswered = self._clock.monotonic() - self._answered
        return self.live and self.state == WorkerState.RUNNING and unanswered < _READY_WITHIN * self.every

    def quiet(self) -> None:
        """Claim no more; what is claimed is handled, and the process runs on."""
        self._hold(held=True)

    def resume(self) -> None:
        """Claim again."""
        self._hold(held=False)

    def _hold(self, *, held: bool) -> None:
        with self._hold_lock:
            if self._quiet == held:
                return
            self._quiet = held
            self._workload.hold(self._quiet)
        self.watch.begin()
        self.report_soon()
        log_event(logging.INFO, "quiet" if held else "resumed")

    def log_stacks(self) -> None:
        """Log the stacks of all threads."""
        log_stacks(logging.WARNING, "stacks", stacks_of(), state=self.state, **self._busy())

    def report_draining(self) -> None:
        """Report from now on that the dispatcher ends."""
        self._draining = True
        self.report_soon()

    def report_soon(self) -> None:
        """Write a report now instead of with the next heartbeat."""
        self._beat_now = True
        self._wakeup.set()

    def end(self) -> None:
        """Delete the report, and end the thread."""
        self._over = True
        self._wakeup.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_WITHDRAWN_WITHIN)

    def _run(self) -> None:
        beat = self._clock.monotonic()
        look = beat + self.watch.every
        while not self._over:
            now = self._turned = self._clock.monotonic()
            if now >= look:
                look = now + self.watch.every
                self._safely(self._look)
            if now >= beat or self._beat_now:
                beat = now + self.every
                self._beat_now = False
                self._safely(self._beat)
            if not self._beat_now:
                self._wakeup.wait(min(beat, look))
        self._withdraw_from(self._reported)

    def _safely(self, work: Callable[[], None]) -> bool:
        """Do this; returns False after an error: the next heartbeat tries again."""
        try:
            work()
        except AstyqueueError as error:
            log_event(logging.DEBUG, "heartbeat_failed", error=reason_of(error))
            return False
        except BaseException as error:  # noqa: BLE001 - the reports must go on
            log_unexpected_error(error)
            return False
        return True

    def _beat(self) -> None:
        """Report to each store and look for commands there, whether the others answer or not."""
        by_store = self._by_store()
        self._withdraw_from(self._reported.keys() - by_store.keys())
        answered = [self._safely(partial(self._beat_in, store, queues)) for store, queues in by_store.items()]
        if all(answered):
            self._answered = self._clock.monotonic()

    def _beat_in(self, store: int, queues: Sequence[MessageQueue]) -> None:
        queues[0].run(protocol.report(self._presence(queues)))
        self._reported[store] = queues[0]
        commands = queues[0].run(protocol.read_commands(self.name))
        seen = self._seen.get(store, set())
        self._seen[store] = {nonce for _, nonce in commands}
        for command, nonce in commands:
            if nonce not in seen:
                self._follow(command)

    def _by_store(self) -> dict[int, list[MessageQueue]]:
        """The queues, those of one store together, by the `id` of the store."""
        stores: dict[int, list[MessageQueue]] = {}
        for queue in self._workload.queues():
            stores.setdefault(id(queue.store), []).append(queue)
        return stores

    def _presence(self, queues: Sequence[MessageQueue]) -> Presence:
        running, limits, kinds = self._workload.running(), self._workload.limits(), self._workload.loads()
        return Presence(
            name=self.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=_version(),
            started=self._started,
            state=self.state,
            queues=[queue.name for queue in queues],
            queue_count=len(queues),
            slots=sum(load.slots for load in kinds.values()),
            busy=len(running),
            running=running,
            every=self.every,
            standby=[queue.name for queue in queues if queue.core.claimer.permit.stands_by],
            limits={queue.name: limits[queue.name] for queue in queues if queue.name in limits},
            kinds=kinds,
        )

    def _follow(self, command: WorkerCommand) -> None:
        log_event(logging.INFO, "command", command=command)
        match command:
            case WorkerCommand.DRAIN:
                self.on_drain()
            case WorkerCommand.QUIET:
                self.quiet()
            case WorkerCommand.RESUME:
                self.resume()
            case WorkerCommand.STACKS:
                self.log_stacks()

    def _look(self) -> None:
        if self._draining or self._quiet:
            self.stall = None
            return
        before, self.stall = self.stall, self.watch.look()
        if self.stall is not None:
            self._log_stall(self.stall)
        if (before is None) != (self.stall is None):
            self.report_soon()
            if self.stall is not None:
                self.on_stall(self.stall)
            else:
                log_event(logging.INFO, "recovered")

    def _log_stall(self, stall: Stall) -> None:
        """Log a stall once a minute while it lasts."""
        now = self._clock.monotonic()
        if self._logged is not None and now - self._logged < REMIND:
            return
        self._logged = now
        facts: dict[str, object] = {"for": length_text(stall.idle)}
        if stall.waiting_since is not None:
            waiting = instant_text(stall.waiting_since, self._clock.now())
            facts |= {"queue": stall.queue, "waiting_since": waiting}
        facts |= {"held": f"{stall.threads.held} of {stall.threads.slots}", **self._busy()}
        log_stacks(logging.ERROR, "stall", stacks_of(), **facts)

    def _busy(self) -> dict[str, object]:
        running = self._workload.running()
        facts: dict[str, object] = {"busy": loads_text(self._workload.loads(), " of ")}
        if running:
            oldest = running[0]
            lasts = length_text(max(0, self._clock.now() - oldest.since))
            facts["oldest"] = f"{oldest.task} {oldest.id} for {lasts}"
        return facts

    def _withdraw_from(self, stores: Iterable[int]) -> None:
        """Delete the reports in these stores; the next heartbeat tries again where a store does not answer."""
        for store in tuple(stores):
            self._safely(partial(self._withdraw, store))

    def _withdraw(self, store: int) -> None:
        self._reported[store].run(protocol.withdraw(self.name))
        del self._reported[store]
        self._seen.pop(store, None)


@cache
def _version() -> str:
    try:
        return metadata.version("astyqueue")
    except metadata.PackageNotFoundError:
        return "unknown"
