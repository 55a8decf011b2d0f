"""Operations on a whole store: preparing, verifying and examining it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from astyqueue.clock import Clock
from astyqueue.errors import BadSetting
from astyqueue.findings import Finding
from astyqueue.stores import located


class Administration(Protocol):
    """The administration of one store, also of one in which no queue can be opened. It knows nothing of messages."""

    def statements(self) -> list[str]:
        """The statements that `migrate` would run on an empty server; sends no request."""
        ...

    def migrate(self) -> list[str]:
        """Create what a store needs and lacks; returns a sentence for each change, or one that nothing was to do."""
        ...

    def verify(self) -> list[Finding]:
        """Compare what exists with what `migrate` makes. Changes nothing."""
        ...

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:
        """The findings on the health of the store, with those of `verify`.

        `rests`: how long the rows of each queue rest, in µs.
        """
        ...

    def ready(self) -> bool:
        """Whether a store can be opened here without creating or changing anything."""
        ...

    def close(self) -> None:
        """Close all connections."""
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
    """The administration of the store at a URL; it opens nothing yet.

    These options are for Cassandra, and raise BadSetting with another store: `replication` ("dc1:3", or a number of
    copies in every data centre) and `durable`, with which the keyspace is created; `home`, the data centre in which all
    of its clients work, and `move_home`, to replace the stored home. An unknown kind of store raises BadSetting too.
    """
    location = located(url)
    if location.scheme == "cassandra":
        from astyqueue.stores.cassandra.admin import administered as on_cassandra  # noqa: PLC0415 - on demand

        return on_cassandra(location, clock=clock, copies=replication, durable=durable, home=home, move_home=move_home)
    if replication or home or move_home or not durable:
        message = f"a {location.scheme} store has no replication, home or durable writes; omit these options"
        raise BadSetting(message)
    if location.scheme == "sqlite":
        from astyqueue.stores.sqlite.admin import administered as on_sqlite  # noqa: PLC0415 - on demand

        return on_sqlite(location)
    from astyqueue.stores.memory import administered as in_memory  # noqa: PLC0415 - on demand

    return in_memory(location)
