"""Counting the messages of a queue that has a bound, while others work in its rows."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.bounded_queue import measure
from astyqueue.protocol.row import snapshot
from astyqueue.protocol.settling.outcomes import Release
from astyqueue.protocol.steps import run
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW, Meanwhile
from tests.unit.protocol.stage import ROW as STAGE_ROW
from tests.unit.protocol.stage import Stage
from tests.unit.protocol.worlds import Scene


def test_a_message_that_is_released_again_while_timers_are_read_is_the_oldest_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first timer is read, then the one to which it has moved."""
    monkeypatch.setattr(snapshot, "_TIMERS_A_PAGE", 1)
    for at in range(1, 20):
        scene = Scene(messages=1)
        give_back(scene, pause=SECOND)
        scene.clock.advance("2s")
        store = Meanwhile(scene.store, partial(give_back, scene, pause=60 * SECOND), at=at)
        depth = run(measure(scene.process("ann"), [ROW], 1, most=10, oldest=10), store)
        assert (depth.messages, list(depth.oldest)) == (1, [MessageId(ROW, 0, scene.sent[0])])
        if len(store.requests) < at:
            return
    pytest.fail("it never came to an end")


def test_a_message_that_was_given_back_is_not_among_the_first_to_delete_while_one_of_a_lower_priority_waits() -> None:
    stage = Stage(levels=2)
    for number in range(2):
        stage.send(f"high {number}", priority=1)
    for taken in stage.claim(2):
        stage.settle(taken, Release(stage.clock.now() + 60 * SECOND, 1))
    low = stage.send("low")
    assert stage.run(measure(stage.ann, [STAGE_ROW], 2, most=10, oldest=1)).oldest == [low]


def give_back(scene: Scene, *, pause: int) -> None:
    """A process claims the message and gives it back, to be delivered after this pause."""
    [taken] = scene.do("eve").claims
    scene.settle(taken, {held.entry.id: Release(scene.now + pause, 0) for held in taken.held})
