"""What is done to a store as a whole, beside the port: making it ready, and seeing whether it is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting
from astyqueue.findings import Finding
from astyqueue.stores.location import locate


class Administration(Protocol):
    """Looks after one store, whether a queue can be opened in it or not. Nothing of it knows of messages."""

    def statements(self) -> list[str]:
        """What `migrate` would run on a server where nothing is; asks nobody."""
        ...

    def migrate(self) -> list[str]:
        """Make what a store needs and is not there; a sentence for each thing that was done, or that nothing was to be done."""
        ...

    def verify(self) -> list[Finding]:
        """Whether what was made is as it should be. Changes nothing."""
        ...

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:
        """Whether the store is well, `verify` included; `rests` says how long the rows of each queue rest, in microseconds."""
        ...

    def ready(self) -> bool:
        """Whether a store can be opened here without making or changing anything."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        ...

    def __exit__(self, *_: object) -> None:
        """As `close`."""
        ...


def administer(
    url: str, *, clock: Clock, replication: str = "", durable: bool = True, home: str = "", move_home: bool = False
) -> Administration:
    """Look after the store at a URL; nothing is opened or asked yet.

    These are for a keyspace of Cassandra, and with another store raise BadSetting: `replication` ("dc1:3", or a number of copies
    in every data centre) and `durable`, with which it is made; `home`, the data centre in which all of its clients ask, and
    `move_home`, to put that in the place of the home it has.
    """
    location = locate(url)
    if location.scheme == "cassandra":
        from astyqueue.stores.cassandra import administration  # noqa: PLC0415 - on demand, as the stores themselves

        return administration.administered(location, clock=clock, copies=replication, durable=durable, home=home, move_home=move_home)
    if replication or home or move_home or not durable:
        message = f"a {location.scheme} store has no replication, no home and no durable writes to choose; leave these options out"
        raise BadSetting(message)
    if location.scheme == "sqlite":
        from astyqueue.stores.sqlite import health  # noqa: PLC0415 - on demand

        return health.administered(location)
    from astyqueue.stores import untended  # noqa: PLC0415 - on demand

    return untended.administered(location)
