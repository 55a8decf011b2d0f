"""The contact points of a Cassandra cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from astyqueue.errors import BadSetting

PORT: Final = 9042


@dataclass(frozen=True, slots=True)
class Contacts:
    """The addresses of a cluster, and their common port."""

    contact_points: tuple[str, ...]
    port: int = PORT

    @classmethod
    def parse(cls, written: str) -> Self:
        """The contact points in `host,host` or `host:port,host:port`; several ports or other text raise BadSetting."""
        pairs = [part.strip().partition(":") for part in written.split(",") if part.strip()]
        ports = {port or str(PORT) for _, _, port in pairs}
        if len(ports) != 1 or not (port := ports.pop()).isdecimal():
            message = (
                f"invalid contact points {written!r}: write host1,host2 or host1:9043,host2:9043, with one port for all"
            )
            raise BadSetting(message)
        return cls(tuple(host for host, _, _ in pairs), int(port))

    def url(self, keyspace: str) -> str:
        """The URL of a store in this keyspace."""
        port = "" if self.port == PORT else f":{self.port}"
        return f"cassandra://{','.join(address + port for address in self.contact_points)}/{keyspace}"
