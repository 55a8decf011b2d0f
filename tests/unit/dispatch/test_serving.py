"""A store that fails, and what is lost meanwhile: nothing, and no thread."""

from __future__ import annotations

import logging
import threading

import pytest

from astyqueue.clock import SystemClock
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.steps import Commit, Read
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Failing, TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Breaking, Gate, Stage


@pytest.mark.parametrize("kind", [Read, Commit])
@pytest.mark.parametrize("at", [8, 9, 10, 12, 15])
@pytest.mark.parametrize("applied", [True, False])
def test_after_an_error_of_the_store_it_goes_on(stages: Stages, kind: type[Read | Commit], at: int, *, applied: bool) -> None:
    clock = SystemClock()
    error = OutcomeUnknown("planted") if applied else StoreUnavailable("planted")
    stage = stages(clock, Failing(MemoryStore(clock), error, at=at, of=(kind,), applied=applied), lease="1s")
    seen: set[object] = set()
    stage.start(lambda delivery: seen.add(delivery.body), threads=2, backlog=5)
    for number in range(60):
        stage.queue.send(number)
    stage.when(lambda: len({body for body, outcome in stage.heard.outcomes if outcome == "acked"}) == 60)
    assert seen == set(range(60))


def test_it_rests_longer_after_each_error_and_a_stop_need_not_wait_for_that(
    stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Breaking(MemoryStore(clock))
    stage = stages(clock, broken)
    broken.broken = True
    dispatcher = stage.start(lambda _: None, threads=1)
    claiming = next(thread for thread in dispatcher.threads if thread.name.endswith(":claim"))
    pauses = ["0.1s", "0.2s", "0.4s", "0.8s", "1.6s", "3.2s", "5s", "5s"]
    for pause in pauses:
        broken.when_refused()
        clock.when_waiting(2)
        clock.advance(pause)
    broken.when_refused()
    broken.broken = False
    dispatcher.stop()
    claiming.join(DEADLINE)
    assert not claiming.is_alive()
    told = [vars(record)["facts"]["again_in"] for record in caplog.records if record.levelno == logging.ERROR]
    assert told[: len(pauses)] == pauses


def test_acks_that_the_store_would_not_take_are_taken_later(stages: Stages) -> None:
    clock = SystemClock()
    broken = Breaking(MemoryStore(clock))
    stage = stages(clock, broken)
    gate = Gate()
    stage.queue.send("one")
    stage.start(gate, threads=1)
    gate.when_entered()
    broken.broken = True
    gate.open.set()
    broken.when_refused()
    broken.broken = False
    assert stage.when_settled(1) == {"acked": 1}


def test_a_lost_lease_is_counted_and_told(stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture) -> None:
    stage = stages(clock)
    gate = Gate()
    stage.queue.send("one")
    dispatcher = stage.start(gate, threads=1)
    gate.when_entered()
    Stage(clock, stage.store).queue.clear()
    gate.open.set()
    dispatcher.drain(None)
    assert stage.queue.stats.lost == 1
    assert "lost queue=emails leases=1" in caplog.text


def test_a_broken_hook_costs_no_thread(stages: Stages) -> None:
    from astyqueue.queue.hooks import Hook  # noqa: PLC0415 - only here

    class Broken(Hook):
        def before_settle(self, *_: object) -> None:
            raise ZeroDivisionError

    stage = stages(hooks=[Broken()])
    everything = threading.Semaphore(0)
    stage.queue.send_many(range(10))
    stage.start(lambda _: everything.release(), threads=1)
    for _ in range(10):
        assert everything.acquire(timeout=DEADLINE)
