"""Whatever lies in a store, no thread ends, what is sound is handled, and commands show what is damaged.

No row stops unless its header or a timer is damaged. `ASTYQUEUE_DAMAGES=500` tries that number of examples of each
kind, instead of those that take a few seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as some

from astyqueue.cli import main
from astyqueue.clock import Clock, SystemClock
from astyqueue.dispatch import Dispatcher
from astyqueue.errors import AlreadySettled, LeaseLost, NotFound, StoreCorrupt, StoreUnavailable, Undecodable
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.layout.columns import Type
from astyqueue.queue.connection import connect
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Schedules
from astyqueue.store import HISTORY, Batch, Put, Store
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Every
from tests.support.places import ONE_ROW, Place
from tests.unit.damage.damaged_columns import HINTED, KEY, QUEUE, SCHEDULE, Damage, Damages

pytestmark = pytest.mark.stores("memory", "sqlite")

DEADLINE = 20
EXAMPLES = int(os.environ.get("ASTYQUEUE_DAMAGES", "0"))


def examples(usual: int) -> settings:
    """As many examples as usual; or as are asked for, and then what fails is made smaller, which takes its time."""
    # A store of each example's own, which the fixture only names; and a shared machine takes its time.
    checks = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    phases = [phase for phase in Phase if EXAMPLES or phase is not Phase.shrink]
    return settings(max_examples=EXAMPLES or usual, deadline=None, suppress_health_check=checks, phases=phases)


@pytest.fixture
def urls(place: Place, tmp_path: Path) -> Callable[[], str]:
    """Makes the URL of a store that is empty."""
    names = (f"{tmp_path.name}-{number}" for number in itertools.count())
    return lambda: (
        f"memory://{next(names)}"
        if place.kind == "memory"
        else f"sqlite:///{tmp_path}/{next(names)}.db?synchronous=normal"
    )


def inflict(store: Store, damages: Sequence[Damage]) -> None:
    for damage in damages:
        batch = Batch(damage.row, (Put(damage.name, damage.value),), table=damage.table)
        if damage.table == HISTORY:
            store.send(batch)
        else:
            store.commit(batch, ())


class Patient:
    """A queue with sound messages, and then damage beside them."""

    def __init__(self, url: str, clock: Clock, data: some.DataObject) -> None:
        self.url = url
        self.clock = clock
        self._held = contextlib.ExitStack()
        self.queue = self._open()
        self.sound = Counter(["plain", "plain", "headers", "keyed", "scheduled", "later"])
        self.damages: list[Damage] = []
        self._data = data

    def _open(self) -> MessageQueue:
        connection = self._held.enter_context(
            connect(self.url, clock=self.clock if isinstance(self.clock, TimeMachine) else None)
        )
        return connection.queue(QUEUE, **ONE_ROW, history="all", backoff="1s")

    def __enter__(self) -> Self:
        self.queue.send("plain")
        self.queue.send("headers", headers={"task": "headers"}, expires="1h", lease="1m", max_attempts=3)
        self.queue.send("keyed", key="a sound key", unique="reject")
        Schedules(self.queue).add("a sound schedule", Every("1h"), "scheduled")
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def suffer(self, draw: Callable[[Damages], some.SearchStrategy[list[Damage]]]) -> None:
        self.damages = self._data.draw(draw(Damages(self.clock.now())))
        inflict(self.queue.store, self.damages)
        self.queue.send("plain")
        self.queue.send("later", delay=0.01)

    @property
    def damaged(self) -> list[MessageId]:
        return [
            MessageId(one.row, one.name.priority, one.name.id)
            for one in self.damages
            if one.name.type == Type.MESSAGE and one.name.state
        ]

    def looks(self) -> Iterator[Callable[[], object]]:
        """All that there is to look at a queue, and that changes nothing."""
        queue, schedules = self.queue, Schedules(self.queue)
        yield from (lambda: [found.as_json() for found in queue.peek(100, "all")], lambda: queue.counts().as_json())
        yield from (
            lambda: [found.as_json() for found in queue.find(KEY)],
            lambda: [queue.find("a sound key"), queue.find(HINTED)],
        )
        yield from (
            lambda: [letter.as_json() for letter in queue.dead_letters()],
            lambda: [one.as_json() for one in schedules.all()],
        )
        yield from (
            lambda: [event.as_json() for event in queue.history()],
            lambda: [one.as_json() for one in queue.history(key=KEY)],
        )
        for id_ in self.damaged:
            yield partial(self._look_at, id_)

    def _look_at(self, id_: MessageId) -> object:
        shown = [self.queue.explain(id_).as_json(), *(event.as_json() for event in self.queue.history(id_))]
        return [*shown, self.queue.get(id_).as_json()]


def touch(delivery: Delivery) -> None:
    """Use all that a handler can ask of a delivery."""
    told = (
        delivery.id,
        delivery.key,
        delivery.body,
        delivery.headers,
        delivery.attempt,
        delivery.sent,
        delivery.due,
        delivery.expires,
    )
    assert repr(
        (told, delivery.lease_until, delivery.receipt, delivery.message_id, delivery.attempts_allowed, delivery)
    )


def received(patient: Patient, clock: TimeMachine) -> Counter[object]:
    """Receive once, and ack; what came."""
    clock.advance("1s")
    handled: Counter[object] = Counter()
    for delivery in patient.queue.receive(100):
        touch(delivery)
        handled.update([delivery.body] if isinstance(delivery.body, str) else [])
        with contextlib.suppress(LeaseLost, AlreadySettled):  # what is handed out at most once was settled with that
            delivery.ack()
    return handled


@given(data=some.data())
@examples(15)
def test_what_is_sound_is_received_beside_whatever_is_not(urls: Callable[[], str], data: some.DataObject) -> None:
    clock = TimeMachine().advance("12h")
    with Patient(urls(), clock, data) as patient:
        patient.suffer(lambda damages: damages.harmless)
        for look in patient.looks():
            # Some looks are for the one key, and for messages that are no longer there.
            with contextlib.suppress(StoreCorrupt, NotFound):
                look()
        handled = sum((received(patient, clock) for _ in range(8)), Counter())
        assert patient.sound <= handled
        for look in patient.looks():
            with contextlib.suppress(StoreCorrupt, NotFound):
                look()


@given(data=some.data())
@examples(15)
def test_a_header_or_a_timer_stops_its_row_at_most_and_is_named(urls: Callable[[], str], data: some.DataObject) -> None:
    clock = TimeMachine().advance("12h")
    with Patient(urls(), clock, data) as patient:
        patient.suffer(lambda damages: damages.anything)
        for look in patient.looks():
            with contextlib.suppress(Undecodable, StoreCorrupt, NotFound):
                look()
        for _ in range(8):
            with contextlib.suppress(Undecodable):
                received(patient, clock)
        for id_ in patient.damaged:
            with contextlib.suppress(Undecodable, StoreUnavailable):
                patient.queue.delete(id_)
        with contextlib.suppress(Undecodable, StoreCorrupt):
            patient.queue.redrive(force=True)
        for _ in range(3):
            with contextlib.suppress(Undecodable):
                received(patient, clock)


@given(data=some.data())
@examples(5)
def test_every_thread_of_a_dispatcher_goes_on(urls: Callable[[], str], data: some.DataObject) -> None:
    with Patient(urls(), SystemClock(), data) as patient:
        handled: Counter[object] = Counter()
        changed = threading.Condition()

        def handle(delivery: Delivery) -> None:
            touch(delivery)
            with changed:
                handled.update([delivery.body] if isinstance(delivery.body, str) else [])
                changed.notify_all()

        patient.suffer(lambda damages: damages.harmless)
        dispatcher = Dispatcher.builder().queue(patient.queue).handler(handle, threads=2).build().start()
        threads = [thread for thread in threading.enumerate() if thread.name.startswith(f"astyqueue:{QUEUE}")]
        try:
            with changed:
                assert changed.wait_for(lambda: patient.sound <= handled, DEADLINE), (handled, patient.damages)
            assert [thread.name for thread in threads if not thread.is_alive()] == []
        finally:
            dispatcher.drain(5)


COMMANDS = [
    *(
        ["peek", QUEUE, "--include", "all"],
        ["counts"],
        ["counts", QUEUE],
        ["find", QUEUE, KEY],
        ["dead", "list", QUEUE],
        ["doctor"],
    ),
    *(["history", QUEUE], ["history", QUEUE, "--key", KEY], ["queues", "list"], ["queues", "show", QUEUE]),
    *(["schedules", "list", QUEUE], ["schedules", "show", QUEUE, SCHEDULE], ["schedules", "next", QUEUE, SCHEDULE]),
]


@given(data=some.data())
@examples(5)
def test_no_command_ends_in_a_traceback(urls: Callable[[], str], data: some.DataObject) -> None:
    with Patient(urls(), SystemClock(), data) as patient:
        patient.suffer(lambda damages: damages.anything)
        of_messages = [[command, str(id_)] for id_ in patient.damaged[:2] for command in ("get", "explain", "history")]
        for words in [*COMMANDS, *of_messages]:
            for form in ([], ["--json"]):
                result = CliRunner().invoke(main, [*words, *form, "--url", patient.url])
                assert result.exception is None or isinstance(result.exception, SystemExit), (
                    words,
                    result.exc_info,
                    patient.damages,
                )
                assert len(result.stderr.splitlines()) <= 1 + len(patient.damages)
