"""A Cassandra for a test run: a given one, a local node, or a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from astyqueue.clock import SystemClock
from astyqueue.testing.cassandra.cluster import LocalCassandra
from astyqueue.testing.cassandra.contact_points import Contacts
from astyqueue.testing.cassandra.container import contained
from astyqueue.testing.cassandra.errors import CannotRunHere, NothingProvided
from astyqueue.units import SECOND

CONTACT_POINTS: Final = "ASTYQUEUE_CASSANDRA"


class Provided(NamedTuple):
    """The contact points, and a description for the summary of a test run."""

    contacts: Contacts
    description: str


@contextmanager
def provided(where: str = "") -> Iterator[Provided]:
    """A Cassandra for the duration of the block.

    `where` is "local", "container" or contact points. Default: the first of the first two that this machine can run. On
    leaving, what was started is stopped and deleted. CannotRunHere names what the machine lacks.
    """
    if where not in ("", "local", "container"):
        yield Provided(Contacts.parse(where), f"{where}, as configured")
        return
    clock = SystemClock()
    began = clock.monotonic()
    with ExitStack() as held:
        kind, contacts = _started(held, where)
        took = (clock.monotonic() - began) / SECOND
        yield Provided(
            contacts, f"{kind}: {', '.join(contacts.contact_points)} port {contacts.port}, up after {took:.1f} s"
        )


def _started(held: ExitStack, where: str) -> tuple[str, Contacts]:
    if where == "container":
        return "a container", held.enter_context(contained())
    try:
        return "1 local node", held.enter_context(LocalCassandra()).contacts
    except CannotRunHere as error:
        if where:
            raise
        lacking = error
    try:
        return "a container", held.enter_context(contained())
    except CannotRunHere as error:
        raise NothingProvided(lacking, error) from error
