"""A keyspace: its replication, its durable writes, and the statements that create or change it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra.connection.settings import checked_keyspace
from astyqueue.stores.cassandra.schema.files import literal

#: The fewest copies of which a majority remains with one node down.
COPIES: Final = 3
#: How to change the number of copies of a keyspace in use. After a larger step a majority of the copies may be empty:
#: rows would read as never written, their versions would restart, and messages would be delivered twice.
ONE_AT_A_TIME: Final = (
    "ALTER KEYSPACE by one copy at a time (1 to 2, 2 to 3), each time followed by 'nodetool repair --full' on every "
    "node before the next; or stop all workers and senders first, and start them after the repair"
)
_OR_AT_ONCE: Final = (
    " (never several steps at once, unless all workers and senders are stopped until the last repair is done)"
)
_REPAIR: Final = "'nodetool repair --full' on every node"
_DC_AND_COPIES: Final = re.compile(r"([\w.-]+):([1-9]\d*)")
_STRATEGY: Final = "NetworkTopologyStrategy"

Replication = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Keyspace:
    """The wanted keyspace.

    Default replication: three copies in the data centre `dc`, or one if that has a single node.
    """

    name: str
    replication: Replication | None = None
    durable: bool = True
    dc: str = ""

    def statement(self, dc: str = "", nodes: int = COPIES) -> str:
        """The CQL that creates it; the default replication is for this data centre and its number of nodes."""
        copies = self.replication or {
            "class": _STRATEGY,
            self.dc or dc or "replication_factor": str(COPIES if nodes > 1 else 1),
        }
        return f'CREATE KEYSPACE IF NOT EXISTS "{checked_keyspace(self.name)}" WITH {self._options(copies)}'

    def differs(self, kept: StoredKeyspace, data_centres: set[str]) -> str:
        """The one statement that makes an existing keyspace as wanted; empty if it is."""
        copies = self.replication or kept.replication
        if (_written_out(copies, data_centres), self.durable) == (kept.replication, kept.durable):
            return ""
        return f'ALTER KEYSPACE "{self.name}" WITH {self._options(copies)}'

    def change(self, kept: StoredKeyspace, data_centres: set[str]) -> str:
        """The steps, in order, that make an existing keyspace as wanted; empty if it is.

        The number of copies changes by one at a time, with a repair after each step.
        """
        statement = self.differs(kept, data_centres)
        wanted = _written_out(self.replication or kept.replication, data_centres)
        if not statement or wanted == kept.replication:
            return statement
        if wanted["class"] != kept.replication["class"]:
            return (
                f"stop all workers and senders, because this may move every copy; then {statement}; "
                f"then {_REPAIR}; then restart them"
            )
        steps = [
            f'ALTER KEYSPACE "{self.name}" WITH {self._options(copies)}' for copies in _steps(kept.replication, wanted)
        ]
        return "".join(f"{step}; then {_REPAIR}; then " for step in steps).removesuffix("; then ") + _OR_AT_ONCE * (
            len(steps) > 1
        )

    def _options(self, copies: Replication) -> str:
        pairs = ", ".join(f"{literal(name)}: {literal(value)}" for name, value in copies.items())
        return f"replication = {{{pairs}}} AND durable_writes = {str(self.durable).lower()}"


class StoredKeyspace(NamedTuple):
    """The keyspace on the server, its replication class by its short name."""

    replication: dict[str, str]
    durable: bool

    def copies(self, dc: str) -> int:
        """The number of copies of each row in a data centre."""
        count = self.replication.get(dc) or self.replication.get("replication_factor", "0")
        return int(count.partition("/")[0])  # "3/1" is three copies, one of them transient

    def describe(self) -> str:
        """The replication as `verify` prints it."""
        copies = ", ".join(f"{where} {count}" for where, count in sorted(self.replication.items()) if where != "class")
        return f"copies: {copies or 'none'} ({self.replication['class']})"

    @property
    def data_centres(self) -> list[str]:
        """The data centres that the replication names."""
        return data_centres(self.replication)


def data_centres(copies: Replication) -> list[str]:
    """The data centres that a replication names, sorted; empty if it has one number for all."""
    return sorted(copies.keys() - {"class", "replication_factor"})


def replication(text: str) -> Replication:
    """`dc1:3,dc2:3`, or a number of copies in every data centre; anything else raises BadSetting."""
    if text.isdecimal() and int(text):
        return {"class": _STRATEGY, "replication_factor": text}
    pairs = [_DC_AND_COPIES.fullmatch(part.strip()) for part in text.split(",")]
    named = {pair[1]: pair[2] for pair in pairs if pair}
    if len(named) != len(pairs):
        message = (
            f"invalid replication {text!r}: write dc1:3, or dc1:3,dc2:3, or a number of copies in every data centre"
        )
        raise BadSetting(message)
    return {"class": _STRATEGY, **named}


def _steps(kept: Replication, wanted: Replication) -> Iterator[dict[str, str]]:
    """Replications from `kept` to `wanted`; each differs from the one before by one copy in one data centre."""
    now = {where: int(count.partition("/")[0]) for where, count in kept.items() if where != "class"}
    goal = {where: int(count) for where, count in wanted.items() if where != "class"}
    for where in sorted(now.keys() | goal.keys()):
        while (have := now.get(where, 0)) != (want := goal.get(where, 0)):
            now[where] = have + (1 if want > have else -1)
            yield {"class": wanted["class"], **{each: str(count) for each, count in sorted(now.items()) if count}}


def _written_out(wanted: Replication, data_centres: set[str]) -> dict[str, str]:
    """A replication as the server stores it: a number of copies everywhere becomes one number for each data centre."""
    kept = dict(wanted)
    if kept["class"] == _STRATEGY and (everywhere := kept.pop("replication_factor", None)):
        return dict.fromkeys(data_centres, everywhere) | kept
    return kept
