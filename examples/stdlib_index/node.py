"""A Cassandra node for the demo, which is there as long as the demo runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.stores.administration import administer
from astyqueue.testing import LocalCassandra
from examples.stdlib_index.screen import Screen

KEYSPACE: Final = "stdlib_index"


@contextmanager
def local_node(screen: Screen) -> Iterator[str]:
    """The URL of an empty store on a node of its own; node and data are gone on leaving the block, however that comes about."""
    screen.event("a Cassandra node starts on this machine (the first time, Maven fetches 70 MB)")
    with LocalCassandra() as node:
        with administer(node.url(KEYSPACE), clock=SystemClock()) as administration:
            administration.migrate()
        screen.event(f"it takes requests at {', '.join(node.contact_points)}, and has the table of the queue in keyspace {KEYSPACE}")
        yield node.url(KEYSPACE)
    screen.event("the node was ended, and its data deleted")
