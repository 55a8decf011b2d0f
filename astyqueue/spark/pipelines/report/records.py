"""What stands in a row of facts, failures or schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

Record = Mapping[str, object]
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


def number(record: Record, name: str) -> int:
    """A count; nothing counts as 0."""
    value = record[name]
    return int(value) if isinstance(value, int | float) else 0


def measured(record: Record, name: str) -> float | None:
    """A length of time in microseconds; None where nothing was measured."""
    value = record[name]
    return float(value) if isinstance(value, int | float) else None


def moment(record: Record, name: str) -> datetime:
    """When; what never was is before everything."""
    value = record[name]
    return value if isinstance(value, datetime) else _NEVER


def total(records: Sequence[Record], name: str) -> int:
    """A count of several together."""
    return sum(number(record, name) for record in records)


def by_member(records: Sequence[Record], name: str) -> dict[str, int]:
    """A count of each member, over all days."""
    found: dict[str, int] = {}
    for record in records:
        member = str(record["member"])
        found[member] = found.get(member, 0) + number(record, name)
    return found
