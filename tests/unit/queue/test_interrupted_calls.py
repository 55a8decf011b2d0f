"""Ctrl-C in the calls of one thread: the other threads of the process go on."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from threading import Thread
from typing import Final

import pytest

from astyqueue import Delivery, MessageQueue
from tests.support.interrupting import Interrupting

DEADLINE: Final = 10


def left_block(delivery: Delivery) -> None:
    with delivery:
        pass


@pytest.mark.parametrize(
    "settle", [Delivery.ack, Delivery.fail, Delivery.release, Delivery.reject, left_block], ids=lambda one: one.__name__
)
def test_a_settle_that_is_interrupted_at_any_point_of_a_lock_or_wait_keeps_no_other_thread_from_settling(
    queue: MessageQueue, settle: Callable[[Delivery], None]
) -> None:
    for at in itertools.count(1):
        queue.send_many(["one", "two"])
        [one], [two] = queue.receive(), queue.receive()
        interrupting = Interrupting(at, package="astyqueue.waiting")
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            settle(one)
        other = Thread(target=two.ack, daemon=True)
        other.start()
        other.join(DEADLINE)
        assert two.settled == "acked"
        if interrupting.points < at:
            return
        queue.clear()
