"""Cassandra in a container; needs a Docker engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from astyqueue.testing.cassandra.contact_points import Contacts
from astyqueue.testing.cassandra.errors import NoContainer

if TYPE_CHECKING:
    from testcontainers.community.cassandra import CassandraContainer

IMAGE: Final = "cassandra:5.0"
#: The image has no variable for this setting, and takes it from this file only.
_SETTINGS: Final = "/etc/cassandra/cassandra.yaml"
_START: Final = (
    f"sed -i '/^paxos_variant:/d' {_SETTINGS} && printf '\\npaxos_variant: v2\\n' >> {_SETTINGS} "
    "&& exec docker-entrypoint.sh cassandra -f"
)


@contextmanager
def contained() -> Iterator[Contacts]:
    """One node in a container, for the duration of the block; NoContainer if it does not start."""
    container = _started()
    try:
        (host, port), *_ = container.get_contact_points()
        yield Contacts((host,), port)
    finally:
        container.stop()


def _started() -> CassandraContainer:
    try:
        from testcontainers.community.cassandra import CassandraContainer  # noqa: PLC0415 - an extra, needed for containers only
    except ImportError as error:
        raise NoContainer(str(error)) from error
    try:
        return CassandraContainer(IMAGE).with_command(["bash", "-c", _START]).start()
    except Exception as error:
        reason = f"{error} ({type(error).__name__})"
        raise NoContainer(reason) from error
