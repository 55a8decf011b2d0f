"""A keyspace: where it is copied to, and whether its commit log is kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra.schema import checked_keyspace

#: As many copies as let one node be away while two agree.
COPIES: Final = 3
_DC_AND_COPIES: Final = re.compile(r"([\w.-]+):([1-9]\d*)")
_STRATEGY: Final = "NetworkTopologyStrategy"

Replication = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Keyspace:
    """What a keyspace is to be. Without a replication it has three copies in the data centre `dc`, or one on a single node."""

    name: str
    replication: Replication | None = None
    durable: bool = True
    dc: str = ""

    def statement(self, dc: str = "", nodes: int = COPIES) -> str:
        """The CQL that makes it, in this data centre of so many nodes unless others were asked for."""
        copies = self.replication or {"class": _STRATEGY, self.dc or dc or "replication_factor": str(COPIES if nodes > 1 else 1)}
        return f'CREATE KEYSPACE IF NOT EXISTS "{checked_keyspace(self.name)}" WITH {self._options(copies)}'

    def differs(self, kept: Kept, data_centres: set[str]) -> str:
        """The CQL that gives a keyspace that is there what was asked for; empty if it has it."""
        copies = self.replication or kept.replication
        if (_written_out(copies, data_centres), self.durable) == (kept.replication, kept.durable):
            return ""
        return f'ALTER KEYSPACE "{self.name}" WITH {self._options(copies)}'

    def _options(self, copies: Replication) -> str:
        pairs = ", ".join(f"'{name}': '{value}'" for name, value in copies.items())
        return f"replication = {{{pairs}}} AND durable_writes = {str(self.durable).lower()}"


class Kept(NamedTuple):
    """A keyspace as the server has it, its replication class by its short name."""

    replication: dict[str, str]
    durable: bool

    def copies(self, dc: str) -> int:
        """How many copies of each row there are in a data centre."""
        told = self.replication.get(dc) or self.replication.get("replication_factor", "0")
        return int(told.partition("/")[0])

    def told(self) -> str:
        """The replication in words."""
        copies = ", ".join(f"{where} {count}" for where, count in sorted(self.replication.items()) if where != "class")
        return f"copies: {copies or 'none'} ({self.replication['class']})"

    @property
    def data_centres(self) -> list[str]:
        """Those that the replication names."""
        return sorted(self.replication.keys() - {"class", "replication_factor"})


def replication(text: str) -> Replication:
    """`dc1:3,dc2:3`, or a number of copies in every data centre; anything else raises BadSetting."""
    if text.isdecimal() and int(text):
        return {"class": _STRATEGY, "replication_factor": text}
    pairs = [_DC_AND_COPIES.fullmatch(part.strip()) for part in text.split(",")]
    named = {pair[1]: pair[2] for pair in pairs if pair}
    if len(named) != len(pairs):
        message = f"a replication is written dc1:3, or dc1:3,dc2:3, or a number of copies in every data centre, not {text!r}"
        raise BadSetting(message)
    return {"class": _STRATEGY, **named}


def _written_out(asked: Replication, data_centres: set[str]) -> dict[str, str]:
    """A replication as the server keeps it: a number of copies everywhere is one for each data centre."""
    kept = dict(asked)
    if kept["class"] == _STRATEGY and (everywhere := kept.pop("replication_factor", None)):
        return dict.fromkeys(data_centres, everywhere) | kept
    return kept
