"""A spool in front of a real node that cannot be reached for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from astyqueue.testing.cassandra import Contacts
from tests.support.proxy import Proxy
from tests.unit.spool.killed_producers import KilledProducers


@pytest.mark.timeout(900)
@pytest.mark.parametrize("messages", [1_500, pytest.param(200_000, marks=pytest.mark.full)])
def test_a_producer_killed_twice_loses_and_doubles_nothing_while_a_node_cannot_be_reached(
    messages: int, cassandra: Contacts, url: str, tmp_path: Path
) -> None:
    with Proxy(cassandra.contact_points[0], cassandra.port) as proxy:

        @contextmanager
        def outage() -> Iterator[None]:
            proxy.hold_questions()
            yield
            proxy.cut()
            proxy.pass_on()

        through = f"cassandra://{proxy.host}:{proxy.port}/{url.rpartition('/')[2]}"
        KilledProducers(through, url, tmp_path / "spool").check(messages, outage())
