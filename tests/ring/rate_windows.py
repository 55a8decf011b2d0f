"""The rate of a run and the work of its nodes, in windows of equal length."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from astyqueue.units import SECOND
from benchmarks.cassandra import cpu_s
from benchmarks.server_load import ServerLoad
from tests.ring.journal import CLOCK
from tests.ring.nemesis import Environment

Window = dict[str, float]
_WORDS: Final = ("sent", "delivered", "failed")


class Windows:
    """Measures while the run goes on; a thread of its own queries the nodes, because that takes seconds."""

    def __init__(self, environment: Environment, length: int) -> None:
        """Windows of `length` microseconds; none if that is zero."""
        self._processes = environment.processes
        self._ring = environment.ring
        self._length = length
        self._server = ServerLoad(environment.ring, f"{environment.keyspace}.entries")
        self._asking = ThreadPoolExecutor(1, thread_name_prefix="windows")
        self._began = self._last = CLOCK.monotonic()
        self._before = self._totals()
        self._cpu: dict[int, float] = {}
        self._windows: list[Future[Window]] = []

    def end_if_due(self) -> None:
        """End the current window if its time is over."""
        if self._length and CLOCK.monotonic() >= self._last + self._length:
            self._end()

    def finish(self) -> list[Window]:
        """All windows that were completed."""
        self._asking.shutdown()
        return [window.result() for window in self._windows]

    def _end(self) -> None:
        now, totals = CLOCK.monotonic(), self._totals()
        seconds = (now - self._last) / SECOND
        window = {"until": (now - self._began) / SECOND}
        window |= {f"{word}_per_s": (totals[word] - self._before[word]) / seconds for word in _WORDS}
        processes = {process_of.process.pid for process_of in (*self._processes.workers, *self._processes.producers)}
        nodes = {pid for number, _ in enumerate(self._ring.contact_points, 1) if (pid := self._ring.pid(number))}
        window |= {"client_cpu": self._spent(processes) / seconds, "store_cpu": self._spent(nodes) / seconds}
        self._last, self._before = now, totals
        self._windows.append(self._asking.submit(lambda: window | self._server.since_last()))

    def _totals(self) -> dict[str, int]:
        return {word: self._processes.count(word) for word in _WORDS}

    def _spent(self, processes: set[int]) -> float:
        """Seconds of processor time since the last window.

        A new process counts from its start; one that is gone does not count.
        """
        spent = 0.0
        for pid in processes:
            try:
                total = cpu_s(pid)
            except FileNotFoundError:
                continue
            spent += total - self._cpu.get(pid, 0.0)
            self._cpu[pid] = total
        return spent
