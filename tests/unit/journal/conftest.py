from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from astyqueue.clock import SystemClock
from astyqueue.journal import BYTES, Journal
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.simulated_disk import SimulatedDisk

FOLDER: Final = Path("/journal")

Opening = Callable[..., Journal[bytes]]


def until_true(condition: Callable[[], bool]) -> None:
    """Return once the condition holds, which is looked at every 10 ms; fail after the deadline."""
    real = SystemClock()
    deadline, wakeup = real.monotonic() + 20 * SECOND, Wakeup(real)
    while not condition():
        assert real.monotonic() < deadline
        wakeup.wait(real.monotonic() + SECOND // 100)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def opened(disk: SimulatedDisk, clock: TimeMachine) -> Iterator[Opening]:
    """Opens journals on the simulated disk, by default with small pages and synced at each append."""
    with ExitStack() as stack:

        def open_journal(**options: Any) -> Journal[bytes]:  # noqa: ANN401 - the options of Journal.open
            defaults: dict[str, Any] = {"disk": disk, "clock": clock, "page_size": 256, "durability": "each"}
            return stack.enter_context(Journal.open(FOLDER, codec=BYTES, **(defaults | options)))

        yield open_journal
