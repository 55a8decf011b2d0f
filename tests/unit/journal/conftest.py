from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from astyqueue.journal import BYTES, Journal
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk

FOLDER: Final = Path("/journal")

Opening = Callable[..., Journal[bytes]]


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
