"""A store that fails or answers late, and what is lost meanwhile: nothing, and no thread."""

from __future__ import annotations

import logging
import threading

import pytest

from astyqueue.clock import SystemClock
from astyqueue.dispatch import handler_monitor
from astyqueue.dispatch.claim_loop import ClaimLoop
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.protocol.steps import Commit, Read, Request
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.queue.hooks import Hook
from astyqueue.store import Store
from astyqueue.testing import Failing, Faulty, TimeMachine
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW, Place
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import DEADLINE, Breaking, Gate, Stage
from tests.unit.dispatch.test_stuck import Lines, lines

__all__ = ["lines"]


@pytest.mark.parametrize("kind", [Read, Commit])
@pytest.mark.parametrize("at", [8, 9, 10, 12, 15])
@pytest.mark.parametrize("applied", [True, False])
def test_after_an_error_of_the_store_it_goes_on(
    place: Place, stages: Stages, kind: type[Read | Commit], at: int, *, applied: bool
) -> None:
    clock = SystemClock()
    error = OutcomeUnknown("planted") if applied else StoreUnavailable("planted")
    stage = stages(clock, Failing(place.store(clock), error, at=at, of=(kind,), applied=applied), lease="1s")
    seen: set[object] = set()
    stage.start(lambda delivery: seen.add(delivery.body), threads=2, backlog=5)
    for number in range(60):
        stage.queue.send(number)
    stage.when(lambda: len({body for body, outcome in stage.heard.outcomes if outcome == "acked"}) == 60)
    assert seen == set(range(60))


def test_it_rests_longer_after_each_error_and_a_stop_need_not_wait_for_that(
    place: Place, stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Breaking(place.store(clock))
    stage = stages(clock, broken)
    broken.broken = True
    dispatcher = stage.start(lambda _: None, threads=1)
    claiming = next(thread for thread in dispatcher.threads if thread.name.startswith("astyqueue:claim:"))
    pauses = ["100ms", "200ms", "400ms", "800ms", "1.6s", "3.2s", "5s", "5s"]
    for pause in pauses:
        broken.when_refused()
        clock.when_waiting(3)
        clock.advance(pause)
    broken.when_refused()
    broken.broken = False
    dispatcher.stop()
    claiming.join(DEADLINE)
    assert not claiming.is_alive()
    told = [vars(record)["facts"]["again_in"] for record in caplog.records if record.levelno == logging.ERROR]
    assert told[: len(pauses)] == pauses


def test_acks_that_the_store_would_not_take_are_taken_later(place: Place, stages: Stages) -> None:
    clock = SystemClock()
    broken = Breaking(place.store(clock))
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


def test_a_drain_ends_while_the_store_is_away_and_what_it_could_not_record_is_handed_out_again(
    place: Place, stages: Stages, clock: TimeMachine, lines: Lines
) -> None:
    broken, gate, ended = Breaking(place.store(clock)), Gate(), threading.Event()
    stage = stages(clock, broken, lease="1h", **ONE_ROW)
    stage.queue.send_many(["handled", "waits"])
    dispatcher = stage.start(gate, threads=1, backlog=1)
    gate.when_entered()
    stage.when(lambda: stage.stats.received == 2)
    broken.broken = True
    dispatcher.when_finished(ended.set)
    dispatcher.drain(None, wait=False)
    lines.first("outcomes_not_recorded")
    gate.open.set()
    while not ended.wait(0.02):
        clock.advance("1s")
    first, last = (vars(line)["facts"] for line in lines.of("outcomes_not_recorded"))
    assert (first["messages"], first["effect"]) == (1, "they are tried again with the next commit")
    assert last["error"] == "StoreUnavailable: the store is broken on purpose"
    assert last["effect"] == "messages whose outcome is not recorded are handed out again when their leases run out"
    broken.broken = False
    clock.advance("1h")
    another, again = Stage(clock, broken).queue, list[str]()
    for _ in range(2):  # one after the other: each may have ended its process
        with another.receive() as deliveries:
            again += [str(delivery.body) for delivery in deliveries]
    assert sorted(again) == ["handled", "waits"]


class Recovering(Faulty):
    """A store that takes no outcomes while it is broken, until a drain tries for the second time."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.broken, self.tries = False, 0

    def perform(self, request: Request) -> object:
        if self.broken and isinstance(request, Commit):
            self.tries += threading.current_thread().name == "astyqueue:monitor"
            if self.tries <= 1:
                message = "the store is broken on purpose"
                raise StoreUnavailable(message)
        return super().perform(request)


def test_a_drain_tries_again_to_record_the_last_outcomes(
    place: Place, stages: Stages, clock: TimeMachine, lines: Lines
) -> None:
    store, gate, ended = Recovering(place.store(clock)), Gate(), threading.Event()
    stage = stages(clock, store, lease="1h")
    stage.queue.send("one")
    dispatcher = stage.start(gate, threads=1)
    gate.when_entered()
    store.broken = True
    gate.open.set()
    lines.first("claim_failed")
    dispatcher.when_finished(ended.set)
    dispatcher.drain(None, wait=False)
    while not ended.wait(0.02):
        clock.advance("100ms")
    assert (stage.heard.outcomes, store.tries) == ([("one", "acked")], 2)
    assert lines.of("outcomes_not_recorded") == []


def test_a_lost_lease_is_counted_and_told(stages: Stages, clock: TimeMachine, caplog: pytest.LogCaptureFixture) -> None:
    stage = stages(clock)
    gate = Gate()
    sent = stage.queue.send("one")
    dispatcher = stage.start(gate, threads=1)
    gate.when_entered()
    Stage(clock, stage.store).queue.clear()
    gate.open.set()
    dispatcher.drain(None)
    assert stage.queue.stats.lost == 1
    assert f"lost queue=emails leases=1 ids={sent.id} effect=" in caplog.text


def test_a_broken_hook_costs_no_thread(stages: Stages) -> None:
    class Broken(Hook):
        def before_settle(self, *_: object) -> None:
            raise ZeroDivisionError

    stage = stages(hooks=[Broken()])
    everything = threading.Semaphore(0)
    stage.queue.send_many(range(10))
    stage.start(lambda _: everything.release(), threads=1)
    for _ in range(10):
        assert everything.acquire(timeout=DEADLINE)


def test_what_a_dispatcher_gives_back_because_nobody_has_time_for_it_is_no_hooks_business(
    stages: Stages, clock: TimeMachine
) -> None:
    class NoReleases(Hook):
        def before_settle(self, delivery: BaseDelivery, outcome: str) -> None:
            assert outcome != "released", delivery

    stage = stages(clock, hooks=[NoReleases()])
    gate = Gate()
    stage.queue.send("slow")
    stage.start(gate, threads=1)
    gate.when_entered()
    subscription = stage.started[0]._subscriptions[0]  # noqa: SLF001 - it comes too late
    subscription.waiting.shut()
    stage.queue.send("too late")
    [late] = stage.queue.receive(1)
    subscription._accept([late])  # noqa: SLF001 - as the leader would
    stage.queue.run(stage.queue.core.claimer.flush())
    stage.when(lambda: ("too late", "released") in stage.heard.outcomes)
    gate.open.set()


class HoldingClaims(Faulty):
    """A store whose answer to a claim comes once `go_on` is set."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.claimed, self.go_on = threading.Event(), threading.Event()

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Commit) and request.batch.row == "emails:0:0":
            self.claimed.set()
            assert self.go_on.wait(DEADLINE)
        return answer


def test_a_stop_gives_back_what_a_claim_brings_that_was_under_way(
    stages: Stages, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = HoldingClaims(place.store(SystemClock()))
    original = ClaimLoop.end

    def end(claims: ClaimLoop) -> None:
        original(claims)
        store.go_on.set()

    monkeypatch.setattr(ClaimLoop, "end", end)
    stage = stages(store=store)
    stage.queue.send("one")
    dispatcher = stage.start(print)
    assert store.claimed.wait(DEADLINE)
    dispatcher.stop()
    assert (stage.stats.received, stage.stats.released) == (1, 1)


def test_a_drain_ends_although_the_store_does_not_answer_a_claim(
    stages: Stages, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler_monitor, "_CLAIMS_ENDED_WITHIN", SECOND // 100)
    store = HoldingClaims(place.store(SystemClock()))
    stage = stages(store=store)
    stage.queue.send("one")
    dispatcher = stage.start(print)
    assert store.claimed.wait(DEADLINE)
    dispatcher.drain(None)
    assert stage.stats.released == 0
    store.go_on.set()
