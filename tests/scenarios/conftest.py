"""What scenarios have in common."""

from __future__ import annotations

import pytest

from astyqueue.testing import TimeMachine


@pytest.fixture
def clock() -> TimeMachine:
    return TimeMachine()
