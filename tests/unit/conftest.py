"""What unit tests have in common: time stands still until a test moves it."""

from __future__ import annotations

import pytest

from astyqueue.testing import TimeMachine


@pytest.fixture
def clock() -> TimeMachine:
    return TimeMachine()
