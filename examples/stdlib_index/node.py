"""A Cassandra node that runs as long as the demo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from astyqueue.clock import SystemClock
from astyqueue.stores.admin import administer
from astyqueue.testing import LocalCassandra
from examples.stdlib_index.screen import Screen

KEYSPACE: Final = "stdlib_index"


@contextmanager
def local_node(screen: Screen) -> Iterator[str]:
    """The URL of an empty store on a new node; leaving the block, also by an error, ends it and deletes its data."""
    screen.event("a Cassandra node starts on this machine (the first time, Maven fetches 70 MB)")
    with LocalCassandra() as node:
        with administer(node.url(KEYSPACE), clock=SystemClock()) as administration:
            administration.migrate()
        points = ", ".join(node.contact_points)
        screen.event(f"it takes requests at {points}, and has the table of the queue in keyspace {KEYSPACE}")
        yield node.url(KEYSPACE)
    screen.event("the node has ended, and its data is deleted")
