"""A Cassandra for a test run: a given one, a local node, or a container."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from astyqueue.clock import SystemClock
from astyqueue.testing.cassandra.cluster import LocalCassandra
from astyqueue.testing.cassandra.errors import CannotRunHere, NoContainer, NothingProvided
from astyqueue.testing.cassandra.network import Contacts
from astyqueue.units import SECOND

if TYPE_CHECKING:
    from testcontainers.community.cassandra import CassandraContainer


CONTACT_POINTS: Final = "ASTYQUEUE_CASSANDRA"
IMAGE: Final = "cassandra:5.0"
#: The image has no variable for this setting, and takes it from this file only.
_SETTINGS: Final = "/etc/cassandra/cassandra.yaml"
_START: Final = (
    f"sed -i '/^paxos_variant:/d' {_SETTINGS} && printf '\\npaxos_variant: v2\\n' >> {_SETTINGS} "
    "&& exec docker-entrypoint.sh cassandra -f"
)


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


@contextmanager
def provided_to_all(where: str, folder: Path) -> Iterator[Provided]:
    """As `provided`, and the same for all processes that name this folder at one time.

    The first process starts it. On leaving, that process waits until no other one uses it, and then stops it.
    """
    with ExitStack() as held:
        users = held.enter_context((folder / "cassandra.users").open("a"))
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "cassandra.lock").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            found = _found_or_started(held, where, folder, users)
        yield found


def _found_or_started(held: ExitStack, where: str, folder: Path, users: IO[str]) -> Provided:
    owner = held.enter_context((folder / "cassandra.owner").open("a+"))
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner.seek(0)
        contact_points, port, description = json.load(owner)
        return Provided(Contacts(tuple(contact_points), port), description)
    found = held.enter_context(provided(where))
    held.callback(fcntl.flock, users, fcntl.LOCK_EX)
    owner.truncate(0)
    json.dump((found.contacts.contact_points, found.contacts.port, found.description), owner)
    owner.flush()
    return found


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


@contextmanager
def contained() -> Iterator[Contacts]:
    """One node in a container, for the duration of the block; NoContainer if it does not start."""
    container = _started_container()
    try:
        (host, port), *_ = container.get_contact_points()
        yield Contacts((host,), port)
    finally:
        container.stop()


def _started_container() -> CassandraContainer:
    try:
        from testcontainers.community.cassandra import CassandraContainer  # noqa: PLC0415 - an extra, needed for containers only
    except ImportError as error:
        raise NoContainer(str(error)) from error
    try:
        return CassandraContainer(IMAGE).with_command(["bash", "-c", _START]).start()
    except Exception as error:
        reason = f"{error} ({type(error).__name__})"
        raise NoContainer(reason) from error
