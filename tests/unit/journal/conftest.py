from __future__ import annotations

import pytest

from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()
