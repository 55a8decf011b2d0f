"""How processes send: plain messages, with unique keys, last values, repeatedly, and by schedules."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass
from typing import Final

from astyqueue.errors import KeyTaken, OutcomeUnknown, StoreError
from astyqueue.model.envelope import MessageId, encode_plain
from astyqueue.model.message import Message, Unique
from astyqueue.model.schedule import Policies
from astyqueue.protocol.sending.idempotent import idempotent_message, numbered_id, send_idempotent
from astyqueue.protocol.steps import Steps
from astyqueue.queue.admin import schedules
from astyqueue.queue.admin.schedules import ScheduleRequest
from astyqueue.queue.runtime import QueueRuntime
from astyqueue.text import duration_setting_text
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.simulation.engine.client import Agent, Pause, SimulatedProcess
from tests.simulation.engine.history import History, Result, Saved, Sent

_DELAYS: Final = (None, None, None, SECOND // 5, 5 * SECOND, 100 * SECOND)
#: Few, so that they are taken often.
_KEYS: Final = ("welcome", "welcome", "goodbye")
_VALUES: Final = ("ACME", "ACME", "INIT")
_GROUPS: Final = ("customer-7", "customer-7", "customer-8")
#: The key of messages that come again.
_NIGHTLY: Final = "nightly"
#: The policies of a message that a schedule repeats.
_FOR_REPEATING: Final = tuple(unique for unique in Unique if unique is not Unique.SUPERSEDE)
_INTERVALS: Final = (SECOND // 2, 2 * SECOND, 20 * SECOND)


@dataclass(eq=False)
class Producer:
    """What one process sends, through a `QueueRuntime` of its own."""

    client: SimulatedProcess
    runtime: QueueRuntime
    history: History
    rng: random.Random

    def send_plain(self, times: int) -> Agent:
        """Send one or a few messages, `times` times."""
        for _ in range(times):
            yield self._pause(3_000, 100_000)
            count, delay = self.rng.choice((1, 1, 1, 2, 4)), self._delay()
            yield from self._send(count, delay, self.rng.randrange(self.runtime.settings.layout.priorities))

    def send_together(self, count: int, priority: int) -> Agent:
        """Send `count` messages of one priority together, due now."""
        yield from self._send(count, None, priority)

    def _send(self, count: int, delay: float | None, priority: int) -> Steps[None]:
        self.history.begins("send")
        sent = [self.history.send(int(self.client.clock.monotonic())) for _ in range(count)]
        options = Message(None, delay=delay, priority=priority)
        try:
            report = yield from self.runtime.send_many([one.number for one in sent], options)
        except StoreError as error:
            self._failed(sent, error)
            return
        for one, id_ in zip(sent, report.ids, strict=True):
            self._done(one, id_)

    def send_to_groups(self, times: int) -> Agent:
        """Send messages of a few groups, each when the one before it was sent."""
        for _ in range(times):
            yield self._pause(2_000, 50_000, SECOND)
            one = self.history.send(int(self.client.clock.monotonic()), group=self.rng.choice(_GROUPS))
            self.history.begins("send to group")
            try:
                sent = yield from self.runtime.send(Message(one.number, group=one.group))
            except StoreError as error:
                self._failed([one], error)
            else:
                self._done(one, sent.id)

    def send_with_keys(self, times: int) -> Agent:
        """Send messages with unique keys, whatever is to become of those that have them already."""
        for _ in range(times):
            yield self._pause(2_000, 500_000)
            unique = self.rng.choice(tuple(Unique))
            one = self.history.send(int(self.client.clock.monotonic()), self.rng.choice(_KEYS), unique.value)
            self.history.begins(f"send {unique}")
            yield from self._send_unique(one, unique)

    def _send_unique(self, one: Sent, unique: Unique | None) -> Steps[None]:
        try:
            sent = yield from self.runtime.send(Message(one.number, key=one.key, unique=unique, delay=self._delay()))
        except KeyTaken as taken:
            self._taken(one, taken.id)
        except StoreError as error:
            self._failed([one], error)
        else:
            if sent.new:
                self._done(one, sent.id)
            else:
                self._taken(one, sent.id)

    def send_values(self, times: int) -> Agent:
        """Send values of a few keys, each in place of the one before it, also of one that a consumer has."""
        of_queue = self.runtime.settings.behaviour.last_value
        for _ in range(times):
            yield self._pause(5_000, 200_000, 2 * SECOND)
            one = self.history.send(int(self.client.clock.monotonic()), self.rng.choice(_VALUES), Unique.SUPERSEDE)
            self.history.begins("send value")
            yield from self._send_unique(one, None if of_queue else Unique.SUPERSEDE)

    def send_repeatedly(self, times: int) -> Agent:
        """Send the records of a source, and send them again, whatever the first send returned."""
        process, now = self.runtime.process, self.runtime.process.now()
        source, row = f"{self.rng.getrandbits(32)}", self.runtime.ring.row(now, 0)
        records = [self.history.send(int(self.client.clock.monotonic())) for _ in range(self.rng.randint(1, 2))]
        for one in records:
            one.repeats = True
        wanted = [
            idempotent_message(encode_plain(now, b"%d" % one.number), 0, numbered_id(source, one.number, now))
            for one in records
        ]
        for _ in range(times):
            yield self._pause(20_000, SECOND)
            self.history.begins("send repeatable")
            try:
                yield from send_idempotent(process, row, wanted)
            except StoreError:
                continue
            for one, each in zip(records, wanted, strict=True):
                self._done(one, MessageId(row, each.priority, each.id))

    def create_schedule(self) -> Agent:
        """Make a schedule of a few occurrences that all are fired, or skipped if the run before has not ended."""
        yield self._pause(20_000, 200_000)
        occurrences, interval = self.rng.randint(2, 4), duration_setting_text(self.rng.choice(_INTERVALS))
        name = f"schedule {len(self.history.saved)}"
        saved = Saved(
            name, schedules.handle_of(self.runtime, name).row, occurrences, int(self.client.clock.monotonic())
        )
        self.history.saved.append(saved)
        self.history.begins("schedule")
        policies = Policies.read("all", self.rng.choice(("allow", "allow", "skip")), "go on")
        planned = ScheduleRequest(Every(interval, delay=interval, count=occurrences), Message(name), policies)
        try:
            yield from schedules.save(self.runtime, name, planned, replaces=True)
        except StoreError:
            return
        saved.result = Result.DONE

    def send_recurring(self, times: int) -> Agent:
        """Send recurring messages with one unique key, or single ones with it, whichever message has it already.

        The history has no entry for them; the reference model checks each commit of their row.
        """
        for _ in range(times):
            yield self._pause(20_000, SECOND)
            single, name = self.rng.random() < 0.3, f"nightly {self.rng.getrandbits(32)}"
            unique = self.rng.choice(tuple(Unique) if single else _FOR_REPEATING)
            message = Message(name, key=_NIGHTLY, unique=unique.value)
            interval = duration_setting_text(self.rng.choice(_INTERVALS))
            trigger = Every(interval, count=self.rng.randint(1, 3), delay=self.rng.choice((0, interval)))
            self.history.begins(f"{'send once' if single else 'repeat'} {unique}")
            with contextlib.suppress(KeyTaken, StoreError):
                yield from (
                    self.runtime.send(message) if single else schedules.send_recurring(self.runtime, message, trigger)
                )

    def _pause(self, *usual: int) -> Pause:
        return Pause(int(self.rng.expovariate(1 / self.rng.choice(usual))))

    def _delay(self) -> float | None:
        delay = self.rng.choice(_DELAYS)
        return None if delay is None else delay / SECOND

    def _done(self, one: Sent, id_: MessageId | None) -> None:
        one.result, one.message, one.clock_error = Result.DONE, id_, self._error_of(id_)
        one.answered = int(self.client.clock.monotonic())

    def _error_of(self, id_: MessageId | None) -> int:
        """The error of the clock of this send: as it is answered, or as the id was drawn if it was set right since."""
        clock = self.client.clock
        behind = 0 if id_ is None else min(0, id_.moment - (clock.now() - clock.error))
        return max(clock.error, behind, key=abs)

    def _taken(self, one: Sent, holder: MessageId) -> None:
        one.result, one.holder, one.answered = Result.REFUSED, holder.id, int(self.client.clock.monotonic())

    def _failed(self, sent: list[Sent], error: StoreError) -> None:
        for one in sent:
            one.result, one.answered = (
                Result.UNKNOWN if isinstance(error, OutcomeUnknown) else Result.REFUSED,
                int(self.client.clock.monotonic()),
            )
