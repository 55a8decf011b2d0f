"""What a type checker says of moments and nonces. mypy reads this file with the project; nothing runs it.

Every `type: ignore` here mixes two kinds of numbers or bytes and must stay an error: mypy complains of an ignore that
nothing needs.
"""

from __future__ import annotations

from typing import assert_type

from astyqueue.clock import Clock
from astyqueue.protocol.layout.columns import Timer
from astyqueue.protocol.steps import Client
from astyqueue.store import Name
from astyqueue.units import BEGINNING, SECOND, MonotonicUs
from astyqueue.waiting import Wakeup


def right(clock: Clock, wakeup: Wakeup) -> None:
    began = clock.monotonic()
    assert_type(began + SECOND, MonotonicUs)
    assert_type(began - SECOND, MonotonicUs)
    assert_type(clock.monotonic() - began, int)
    assert_type(max(began, BEGINNING), MonotonicUs)
    assert_type(int(began), int)
    wakeup.wait(began + SECOND)


def wrong(clock: Clock, wakeup: Wakeup) -> None:
    wakeup.wait(clock.now() + SECOND)  # type: ignore[arg-type]  # a moment of the wall clock
    wakeup.wait(10 * SECOND)  # type: ignore[arg-type]  # a duration
    clock.blocking_seconds(0)  # type: ignore[arg-type]  # a bare number
    clock.now() - clock.monotonic()  # type: ignore[operator]  # two clocks
    clock.monotonic() + clock.monotonic()  # type: ignore[operator]  # a sum of moments means nothing
    assert clock.monotonic() < clock.now()  # type: ignore[operator]  # two clocks
    wall: int = clock.monotonic()  # type: ignore[assignment]  # a moment that is stored or sent is of the wall clock
    del wall


def nonces(process: Client, name: Name) -> None:
    Timer(name, (), process.nonce(), "", 0)
    Timer(name, (), name.id, "", 0)  # type: ignore[arg-type]  # an id
    Timer(name, (), b"a claim.", "", 0)  # type: ignore[arg-type]  # bare bytes
