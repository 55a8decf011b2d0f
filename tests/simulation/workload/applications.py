"""Applications: processes that receive through a whole `QueueRuntime`, and administer the queue."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from astyqueue.errors import StoreError
from astyqueue.ids import Id
from astyqueue.protocol.admin import dead_letters, delete
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.steps import Steps
from astyqueue.queue.delivery.base_delivery import BaseDelivery, new_deliveries
from astyqueue.queue.runtime import QueueRuntime, ReceiveRequest
from astyqueue.units import SECOND
from tests.simulation.checkers.polls import Polls
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.history import History, Removed, Result
from tests.simulation.workload.consumer import delivery_record, outcome_for, settle_record


@dataclass(eq=False)
class Application:
    """One process with a `QueueRuntime` of its own, and what is done in it."""

    client: SimulatedProcess
    runtime: QueueRuntime
    history: History
    rng: random.Random
    polls: Polls

    def receive(self, times: int) -> Agent:
        """Receive and settle, `times` times, through the claimer that all consumers of this process share."""
        for _ in range(times):
            yield Pause(int(self.rng.expovariate(1 / self.rng.choice((5_000, 200_000)))))
            taking = ReceiveRequest(self.rng.randint(1, 4), self.rng.choice((0, 0, SECOND // 50)), new_deliveries)
            self.history.begins("receive")
            self.history.claims(int(self.client.clock.monotonic()), self.client.clock.error)
            snapshots = self._snapshots()
            self.polls.begin(snapshots)
            try:
                taken = yield from self.runtime.take(taking)
            except StoreError:
                continue
            if not taken:
                self.polls.found_nothing(snapshots)
            self.history.delivered += [delivery_record(delivery, self.client) for delivery in taken]
            yield Pause(int(self.rng.expovariate(1 / 20_000)))
            if taken and self.rng.random() < 0.9:
                yield from self._settle(taken)

    def _snapshots(self) -> list[RowSnapshot]:
        """What the claimer of this process knows of each row."""
        return [row.snapshot for row in self.runtime.scheduler.rows.values()]

    def _settle(self, taken: list[BaseDelivery]) -> Steps[None]:
        now, behaviour = self.runtime.process.now(), self.runtime.settings.behaviour
        outcomes = [(delivery, outcome_for(delivery, now, behaviour, rng=self.rng)) for delivery in taken]
        notes = [settle_record(delivery, outcome, self.client) for delivery, outcome in outcomes]
        self.history.settled += notes
        self.history.begins(*[f"{note.kind} by claimer" for note in notes])
        try:
            lost = yield from self.runtime.claimer.settle(outcomes)
        except StoreError:
            return
        gone = {delivery.id for delivery in lost}
        for note in notes:
            note.answer(int(self.client.clock.monotonic()), unknowns=self.client.unknowns, lost=note.id in gone)

    def administer(self, times: int, rows: list[str]) -> Agent:
        """Delete, clear, redrive and purge, `times` times."""
        for _ in range(times):
            yield Pause(int(self.rng.expovariate(1 / 150_000)))
            doing = self.rng.choices((self._delete, self._clear, self._redrive, self._purge), (4, 1, 4, 1))[0]
            yield from doing(self.rng.choice(rows))

    def _delete(self, _: str) -> Steps[None]:
        known = [one for one in self.history.sent if one.message is not None]
        keyed = [one for one in known if one.key]
        chosen = keyed if keyed and self.rng.random() < 0.5 else known
        if chosen and (message := self.rng.choice(chosen).message):
            yield from self._run_command(
                "delete", message.row, [message.id], act=lambda: delete.delete(self.runtime.process, message)
            )

    def _clear(self, row: str) -> Steps[None]:
        levels = self.runtime.settings.layout.priorities
        yield from self._run_command("clear", row, None, act=lambda: delete.clear(self.runtime.process, row, levels))

    def _redrive(self, row: str) -> Steps[None]:
        yield from self._with_letters("redrive", row)

    def _purge(self, row: str) -> Steps[None]:
        yield from self._with_letters("purge", row)

    def _with_letters(self, what: str, row: str) -> Steps[None]:
        try:
            page = yield from dead_letters.matching_page([row], self.runtime.settings.layout.priorities)
        except StoreError:
            return
        if page.ids:
            act = dead_letters.redrive if what == "redrive" else dead_letters.purge
            yield from self._run_command(
                what, row, [one.id for one in page.ids], act=lambda: act(self.runtime.process, page.ids)
            )

    def _run_command(
        self, what: str, row: str, ids: list[Id] | None, *, act: Callable[[], Steps[object]]
    ) -> Steps[None]:
        note = Removed(what, row, int(self.client.clock.monotonic()), ids)
        self.history.removed.append(note)
        self.history.begins(what)
        try:
            note.found = bool((yield from act()))
        except StoreError:
            return
        note.answered, note.result = int(self.client.clock.monotonic()), Result.DONE
