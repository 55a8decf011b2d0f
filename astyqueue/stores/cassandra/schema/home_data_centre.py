"""The home of a keyspace: the data centre whose majority decides its commits, and the levels of all clients.

Commits at LOCAL_SERIAL are decided within one data centre. Clients that work in two of them, or some at LOCAL_SERIAL
and some at SERIAL, do not see each other's commits in time, and one message would be delivered twice. So the keyspace
stores its home, and a client in another data centre or with other levels is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from astyqueue.stores.cassandra.connection.settings import Levels

#: The home is stored in the table of versions, which every keyspace has; releases without homes ignore the row.
READ_HOME: Final = "SELECT file, owner FROM schema_versions WHERE part = 'home' AND version = 0"
KEEP_HOME: Final = "INSERT INTO schema_versions (part, version, file, owner) VALUES ('home', 0, %s, %s)"


@dataclass(frozen=True, slots=True)
class HomeDataCentre:
    """The data centre, empty where all of them decide together, and the levels of all clients."""

    dc: str
    consistency: str
    serial: str

    @classmethod
    def of(cls, dc: str, levels: Levels) -> Self:
        """The home of clients with these levels in this data centre."""
        return cls(dc if levels.is_local else "", levels.consistency, levels.serial)

    @classmethod
    def parse(cls, dc: str, levels: str) -> Self:
        """The home as read from the table of versions."""
        consistency, _, serial = levels.partition("/")
        return cls(dc, consistency, serial)

    @property
    def levels(self) -> str:
        """The levels in one word, as they are stored."""
        return f"{self.consistency}/{self.serial}"

    def __str__(self) -> str:
        """The home as `verify` and errors print it."""
        place = f"data centre {self.dc}" if self.dc else "all data centres"
        return f"{place}, consistency={self.consistency}, serial={self.serial}"


@dataclass(frozen=True, slots=True)
class Client:
    """The data centre and the levels of a client; `chosen`: its URL names the data centre."""

    dc: str
    levels: Levels
    chosen: bool = True


def has_copies(data_centres: Sequence[str], dc: str) -> bool:
    """Whether a keyspace has copies in `dc`; one whose replication names no data centres has copies in all."""
    return not data_centres or dc in data_centres


class Objection(NamedTuple):
    """Why a client must not work in a keyspace, and the remedy."""

    fact: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        """The text of an error."""
        return f"{self.fact}: {self.reason}. {self.remedy[0].upper()}{self.remedy[1:]}"


def objection(
    keyspace: str, data_centres: Sequence[str], home: HomeDataCentre | None, client: Client
) -> Objection | None:
    """Why this client must not work in a keyspace with copies in these data centres; None if it may."""
    levels = client.levels
    if not has_copies(data_centres, client.dc):
        reason = f"its copies are in {', '.join(data_centres)}"
        return Objection(
            f"keyspace {keyspace} has no copies in data centre {client.dc}", reason, _name(home, data_centres[0])
        )
    if home and (levels.consistency, levels.serial) != (home.consistency, home.serial):
        return Objection(
            f"keyspace {keyspace} is used with consistency={home.consistency}&serial={home.serial}, "
            f"and this client has consistency={levels.consistency}&serial={levels.serial}",
            "clients with different levels may receive the same message",
            "put the levels of the keyspace into the URL",
        )
    if home and home.dc and client.dc != home.dc:
        return Objection(
            f"the home of keyspace {keyspace} is data centre {home.dc}, and this client works in {client.dc}",
            "clients in two data centres may receive the same message, "
            "and messages sent outside the home are found late or never",
            _name(home, home.dc),
        )
    if len(data_centres) > 1 and levels.is_local and not client.chosen:
        return Objection(
            f"keyspace {keyspace} has copies in {', '.join(data_centres)}, and this client names none of them",
            "chance decides in which of them it works, and clients in two of them may receive the same message",
            _name(home, "NAME")
            + ("" if home else ", the data centre of all clients, and run 'astyqueue migrate --home NAME'"),
        )
    return None


def _name(home: HomeDataCentre | None, other: str) -> str:
    return f"put dc={(home and home.dc) or other} into the URL"
