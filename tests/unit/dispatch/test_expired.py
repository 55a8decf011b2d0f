"""Messages that expire in a worker, before a handler is free for them."""

from __future__ import annotations

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Gate
from tests.unit.dispatch.test_outcomes import reasons


@pytest.mark.every_store
def test_a_message_that_expires_while_it_waits_for_a_slot_is_not_handled(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="10m", expires_cap="1h")
    gate = Gate()
    stage.queue.send("first")
    stage.queue.send("short", expires="1m")
    stage.queue.send("at most once", expires="1m", lease=0)
    stage.queue.send("long", expires="30m")
    dispatcher = stage.start(gate, threads=1, backlog=10)
    gate.when_entered()
    stage.when(lambda: stage.stats.received == 4)
    clock.advance("2m")
    gate.open.set()
    gate.when_entered()
    dispatcher.drain(None)
    assert sorted(map(str, gate.bodies)) == ["first", "long"]
    assert reasons(stage) == [("expired", "it was not handed out before the moment it expires", 0)]


def test_a_message_that_outlives_the_cap_while_it_waits_for_a_slot_is_not_handled(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="10m", expires_cap="1m")
    gate = Gate()
    stage.queue.send_many(["first", "second"])
    dispatcher = stage.start(gate, threads=1, backlog=10)
    gate.when_entered()
    stage.when(lambda: stage.stats.received == 2)
    clock.advance("2m")
    gate.open.set()
    stage.when(lambda: ("second", "rejected") in stage.heard.asked)
    dispatcher.drain(None)
    assert len(gate.bodies) == 1
    assert [kind for kind, *_ in reasons(stage)] == ["expired"]


def test_what_expires_while_a_batch_is_gathered_is_not_handled(stages: Stages, clock: TimeMachine) -> None:
    stage = stages(clock, lease="2h")
    seen: list[object] = []
    stage.queue.send("short", expires="1m")
    stage.queue.send("long")

    def handle(deliveries: list[Delivery]) -> None:
        seen.extend(delivery.body for delivery in deliveries)

    dispatcher = stage.begin(Dispatcher.builder().queue(stage.queue).handler(handle, batch=(100, "1h")).build())
    stage.when(lambda: stage.stats.received == 2)
    clock.when_waiting(4).advance("61m")  # the slot that collects, and the threads that claim, monitor and report
    stage.when(lambda: stage.heard.asked[-2:] == [("short", "rejected"), ("long", "acked")])
    dispatcher.drain(None)
    assert seen == ["long"]
