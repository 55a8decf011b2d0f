"""A health check of a store and of all its queues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from astyqueue.clock import Clock
from astyqueue.errors import StoreError, Undecodable
from astyqueue.findings import Finding, Severity, note, worst
from astyqueue.model.health import findings_of, findings_of_workers, rest_of
from astyqueue.model.presence import Presence
from astyqueue.observe.observers import Observers
from astyqueue.protocol.admin.health import read_health
from astyqueue.protocol.admin.settings import load_settings, read_queue_list
from astyqueue.protocol.coordination.permits import show_permits
from astyqueue.protocol.coordination.presence import read_presences
from astyqueue.protocol.steps import Client, Steps, run
from astyqueue.queue.runtime import new_client
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer


def examine(url: str, *, clock: Clock) -> list[Finding]:
    """The findings for the store at a URL, then for its queues. Changes nothing.

    StoreUnavailable if no server answers at all; partial failures are findings.
    """
    with administer(url, clock=clock) as administration:
        queues = _Queues(new_client(clock), Observers.of_debug_log(clock.monotonic))
        ready = administration.ready()
        of_queues = queues.examined(partial(open_store, url, clock=clock)) if ready else []
        of_store = administration.examine(queues.rests)
        if not ready and worst(of_store) is Severity.PROBLEM:
            reason = "a store with such a problem is not opened"
            of_queues = [note("queues", "were not examined", reason, remedy="solve it first, and check again")]
        return [*of_store, *of_queues]


class _Queues:
    """The queues of a store; `rests` is how long the rows of each queue rest, for those that could be read."""

    def __init__(self, process: Client, observers: Observers) -> None:
        self.rests: dict[str, int] = {}
        self._process = process
        self._observers = observers

    def examined(self, opened: Callable[[], Store]) -> list[Finding]:
        """The findings of each queue, or one that they could not be read."""
        try:
            with contextlib.closing(opened()) as store:
                return run(self._all(), store, self._observers)
        except (StoreError, Undecodable) as error:
            reason, remedy = "no process can use them", "fix the findings of the store first, and check again"
            return [Finding("queues", Severity.PROBLEM, f"could not be read: {error}", reason, remedy)]

    def _all(self) -> Steps[list[Finding]]:
        found: list[Finding] = []
        listed = yield from read_queue_list()
        workers = yield from read_presences()
        for name in listed.names:
            try:
                found += yield from self._one(name, workers)
            except Undecodable as error:
                reason = "a process that cannot read it cannot open the queue"
                remedy = "upgrade this program if a newer astyqueue wrote it; restore it from a backup if it is damaged"
                found.append(Finding(f"queue {name}", Severity.PROBLEM, str(error), reason, remedy))
        ill = findings_of_workers(workers, self._process.now())
        return [*found, *ill, *map(_unreadable, listed.unreadable)]

    def _one(self, name: str, workers: list[Presence]) -> Steps[list[Finding]]:
        settings = yield from load_settings(name)
        if settings is None:  # dropped since the queues were listed
            return []
        self.rests[name] = rest_of(settings)
        health = yield from read_health(self._process, settings, workers)
        limit = settings.behaviour.max_active_processes
        try:
            permits = (yield from show_permits(name, limit, self._process.now)) if limit else None
        except Undecodable as error:
            return [*findings_of(health), _unreadable_permit(name, error)]
        return findings_of(health._replace(permits=permits))


def _unreadable_permit(queue: str, error: Undecodable) -> Finding:
    fact = f"{error.column} cannot be read ({error.why})"
    reason = "no process begins to claim from the queue until it can be read or expires"
    remedy = "upgrade this program and the workers if a newer astyqueue wrote it; if it is damaged, delete its column"
    return Finding(f"permits of queue {queue}", Severity.PROBLEM, fact, reason, remedy)


def _unreadable(error: Undecodable) -> Finding:
    fact = f"{error.column} cannot be read ({error.why})"
    reason = "the queue of this entry is missing from the list; it still works and can be opened by its name"
    remedy = "upgrade this program if a newer astyqueue wrote it; restore row :queues from a backup if damaged"
    return Finding("list of queues", Severity.WARNING, fact, reason, remedy)
