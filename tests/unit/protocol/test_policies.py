"""The guide's tables of policies are what the policies do."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.protocol.policy_model import PAGE, TABLES


@pytest.mark.parametrize("table", TABLES, ids=[table.__name__ for table in TABLES])
def test_the_guide_tells_what_each_policy_comes_to(table: Callable[[], list[str]]) -> None:
    """`python -m tests.unit.protocol.policy_model` writes them anew."""
    assert "\n".join(table()) in PAGE.read_text()
