"""An examination of a store and of all its queues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial

from astyqueue.clock import Clock
from astyqueue.errors import StoreError, Undecodable
from astyqueue.findings import Finding, Severity
from astyqueue.protocol import health
from astyqueue.protocol.process import Process
from astyqueue.protocol.settings import load_settings, read_queue_list
from astyqueue.protocol.steps import Steps, run
from astyqueue.queue.core import process_of
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.stores.administration import administer


def examine(url: str, *, clock: Clock) -> list[Finding]:
    """What there is to say of the store at a URL and of its queues, the store first. Changes nothing.

    A server that does not answer at all raises StoreUnavailable; what answers half is told.
    """
    with administer(url, clock=clock) as administration:
        queues = _Queues(process_of(clock))
        of_queues = queues.examined(partial(open_store, url, clock=clock)) if administration.ready() else []
        return [*administration.examine(queues.rests), *of_queues]


class _Queues:
    """The queues of a store; `rests` says how long the rows of each rest, as far as they could be read."""

    def __init__(self, process: Process) -> None:
        self.rests: dict[str, int] = {}
        self._process = process

    def examined(self, opened: Callable[[], Store]) -> list[Finding]:
        """What there is to say of each queue, or that they could not be read."""
        try:
            with contextlib.closing(opened()) as store:
                return run(self._all(), store)
        except (StoreError, Undecodable) as error:
            remedy = "mend what is told of the store first, and ask again"
            return [Finding("queues", Severity.PROBLEM, f"could not be read: {error}", "without that nobody can work on them", remedy)]

    def _all(self) -> Steps[list[Finding]]:
        found: list[Finding] = []
        listed = yield from read_queue_list()
        for name in listed.names:
            try:
                found += yield from self._one(name)
            except Undecodable as error:
                remedy = "upgrade what runs here if a newer astyqueue wrote it; restore it from a backup if it is damaged"
                found.append(Finding(f"queue {name}", Severity.PROBLEM, str(error), "nobody who cannot read it can open the queue", remedy))
        return [*found, *map(_unreadable, listed.unreadable)]

    def _one(self, name: str) -> Steps[list[Finding]]:
        settings = yield from load_settings(name)
        if settings is None:  # dropped since the queues were listed
            return []
        self.rests[name] = health.rest(settings)
        return (yield from health.examine(self._process, settings))


def _unreadable(error: Undecodable) -> Finding:
    fact = f"{error.column} cannot be read ({error.why})"
    reason = "the queue of this entry is missing from the list; it works, and can be opened by its name, all the same"
    remedy = "upgrade what runs here if a newer astyqueue wrote it; restore the row :queues from a backup if it is damaged"
    return Finding("list of queues", Severity.WARNING, fact, reason, remedy)
