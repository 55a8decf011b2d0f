"""The home of a keyspace: the data centre whose majority decides its commits, and the levels at which all of its clients ask.

Commits at LOCAL_SERIAL are decided within one data centre. Clients that ask in two of them, or some at LOCAL_SERIAL and some
at SERIAL, do not see each other's commits in time: one message would be handed out twice. So the keyspace says where its home
is, and a client that would ask elsewhere or otherwise is not let in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from astyqueue.stores.cassandra.address import Levels

#: Its cell in the table of versions, which every keyspace has; releases that do not know of it leave it alone.
READ_HOME: Final = "SELECT file, owner FROM schema_versions WHERE part = 'home' AND version = 0"
KEEP_HOME: Final = "INSERT INTO schema_versions (part, version, file, owner) VALUES ('home', 0, %s, %s)"


@dataclass(frozen=True, slots=True)
class Home:
    """A data centre, empty where all of them decide together, and the levels of all clients."""

    dc: str
    consistency: str
    serial: str

    @classmethod
    def of(cls, dc: str, levels: Levels) -> Self:
        """The home of clients with these levels in this data centre."""
        return cls(dc if levels.is_local else "", levels.consistency, levels.serial)

    @classmethod
    def kept(cls, dc: str, levels: str) -> Self:
        """As it was stored."""
        consistency, _, serial = levels.partition("/")
        return cls(dc, consistency, serial)

    @property
    def levels(self) -> str:
        """The levels in one word, as they are stored."""
        return f"{self.consistency}/{self.serial}"

    def __str__(self) -> str:
        """As people read it."""
        return f"{f'data centre {self.dc}' if self.dc else 'all data centres'}, consistency={self.consistency}, serial={self.serial}"


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: in which data centre and with which levels; `chosen` tells that it is no chance in which."""

    dc: str
    levels: Levels
    chosen: bool = True


def has_copies(data_centres: Sequence[str], dc: str) -> bool:
    """Whether a keyspace copied to these data centres has copies in one of them; one that names none has them everywhere."""
    return not data_centres or dc in data_centres


class Objection(NamedTuple):
    """Why a client must not work in a keyspace, and what to do."""

    fact: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        """All of it in one sentence."""
        return f"{self.fact}: {self.reason}. {self.remedy[0].upper()}{self.remedy[1:]}"


def objection(keyspace: str, data_centres: Sequence[str], home: Home | None, client: Client) -> Objection | None:
    """What speaks against this client in a keyspace that is copied to these data centres; None if it may work there."""
    levels = client.levels
    if not has_copies(data_centres, client.dc):
        reason = f"its copies are in {', '.join(data_centres)}"
        return Objection(f"keyspace {keyspace} has no copies in data centre {client.dc}", reason, _name(home, data_centres[0]))
    if home and (levels.consistency, levels.serial) != (home.consistency, home.serial):
        return Objection(
            f"keyspace {keyspace} is used with consistency={home.consistency}&serial={home.serial}, and this client has "
            f"consistency={levels.consistency}&serial={levels.serial}",
            "clients with different levels may be handed the same message",
            "put the levels of the keyspace into the URL",
        )
    if home and home.dc and client.dc != home.dc:
        return Objection(
            f"the home of keyspace {keyspace} is data centre {home.dc}, and this client asks in {client.dc}",
            "clients in two data centres may be handed the same message, and what is sent in another than the home is seen late or never",
            _name(home, home.dc),
        )
    if len(data_centres) > 1 and levels.is_local and not client.chosen:
        return Objection(
            f"keyspace {keyspace} has copies in {', '.join(data_centres)}, and this client names none of them",
            "in which of them it asks is left to chance, and clients in two may be handed the same message",
            _name(home, "NAME") + ("" if home else " with the one in which all clients work, and run 'astyqueue migrate --home NAME'"),
        )
    return None


def _name(home: Home | None, other: str) -> str:
    return f"put dc={(home and home.dc) or other} into the URL"
