"""A Cassandra for a run of tests: one that is named, one started here, or one in a container."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from astyqueue.clock import SECOND, SystemClock
from astyqueue.testing.cassandra.cluster import LocalCassandra
from astyqueue.testing.cassandra.contacts import Contacts
from astyqueue.testing.cassandra.container import contained
from astyqueue.testing.cassandra.errors import CannotRunHere, NothingProvided

CONTACT_POINTS: Final = "ASTYQUEUE_CASSANDRA"


class Provided(NamedTuple):
    """Where it is, and what to tell people."""

    contacts: Contacts
    told: str


@contextmanager
def provided(where: str = "") -> Iterator[Provided]:
    """A Cassandra as long as the block: "local", "container", contact points, or the first of the two that this machine can run.

    What was started is ended and deleted on leaving; where nothing can be, CannotRunHere says what is lacking.
    """
    if where not in ("", "local", "container"):
        yield Provided(Contacts.parse(where), f"{where}, which was named")
        return
    clock = SystemClock()
    began = clock.monotonic()
    with ExitStack() as held:
        kind, contacts = _started(held, where)
        took = (clock.monotonic() - began) / SECOND
        yield Provided(contacts, f"{kind}: {', '.join(contacts.contact_points)} port {contacts.port}, up after {took:.1f} s")


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
