"""A spool in front of a real node that cannot be reached for a while."""

from __future__ import annotations

from pathlib import Path

import pytest

from astyqueue.testing.cassandra import Contacts
from tests.unit.spool.killed_producers import on_cassandra


@pytest.mark.timeout(900)
@pytest.mark.parametrize("messages", [1_500, pytest.param(20_000, marks=pytest.mark.full)])
def test_a_producer_killed_twice_loses_and_doubles_nothing_while_a_node_cannot_be_reached(
    messages: int, cassandra: Contacts, url: str, tmp_path: Path
) -> None:
    on_cassandra(url, (cassandra.contact_points[0], cassandra.port), tmp_path, messages).check()
