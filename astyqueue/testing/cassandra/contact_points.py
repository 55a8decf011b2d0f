"""The contact points of a Cassandra cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from astyqueue.stores.cassandra.connection.settings import PORT, parsed_contact_points


@dataclass(frozen=True, slots=True)
class Contacts:
    """The addresses of a cluster, and their common port."""

    contact_points: tuple[str, ...]
    port: int = PORT

    @classmethod
    def parse(cls, written: str) -> Self:
        """The contact points in `host,host` or `host:port,host:port`; several ports or other text raise BadSetting."""
        return cls(*parsed_contact_points(written))

    def url(self, keyspace: str) -> str:
        """The URL of a store in this keyspace."""
        port = "" if self.port == PORT else f":{self.port}"
        return f"cassandra://{','.join(address + port for address in self.contact_points)}/{keyspace}"
