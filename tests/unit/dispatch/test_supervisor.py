"""Who looks after handlers, while one after the other is given up and things go wrong."""

from __future__ import annotations

import pytest

from astyqueue.dispatch.dispatcher import Dispatcher
from astyqueue.testing import TimeMachine
from tests.unit.dispatch.conftest import Stages
from tests.unit.dispatch.stage import Gate
from tests.unit.dispatch.test_draining import ended, in_a_thread


def test_a_drain_whose_last_handler_is_given_up_ends_then_and_not_when_its_own_time_is_over(
    stages: Stages, clock: TimeMachine
) -> None:
    stage = stages(clock, lease="10s")
    gate = Gate()
    stage.queue.send("stuck")
    dispatcher = stage.start(gate, threads=1, timeout="5s")
    gate.when_entered()
    draining = in_a_thread(lambda: dispatcher.drain("1h"))
    clock.advance("6s")
    assert ended(draining)
    assert stage.heard.outcomes == [("stuck", "released")]
    gate.open.set()


@pytest.mark.parametrize("part", ["give_up", "shut", "abandon", "leave"])
def test_what_goes_wrong_with_one_queue_stops_neither_the_others_nor_the_drain(
    stages: Stages, clock: TimeMachine, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = stages(clock), stages(clock)
    gate = Gate()
    sound.queue.send("stuck")
    builder = Dispatcher.builder().queue(broken.queue).handler(gate, threads=1)
    dispatcher = builder.queue(sound.queue).handler(gate, threads=1, timeout="5s").build()

    def fail() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(dispatcher._subscriptions[0], part, fail)  # noqa: SLF001 - nothing that goes wrong there is known
    sound.begin(dispatcher)
    gate.when_entered()
    clock.advance("6s")
    sound.when(lambda: sound.heard.outcomes == [("stuck", "released")])
    dispatcher.drain("1h")
    assert not dispatcher.running
    gate.open.set()
