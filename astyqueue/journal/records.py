"""What readers and writers of a journal hold: positions, records, and what could not be read."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from astyqueue.clock import instant

T = TypeVar("T")


class Place(Protocol):
    """A place in a journal: a `Position` or a `Record`."""

    @property
    def sequence(self) -> int:
        """The number of the record; later ones have greater numbers."""
        ...

    @property
    def arrived_us(self) -> int:
        """When it was appended, in microseconds since 1970; never less than that of the record before."""
        ...


class Position(NamedTuple):
    """The place of a record that was appended."""

    sequence: int
    arrived_us: int

    @property
    def arrived(self) -> datetime:
        """When the record was appended, as an aware UTC datetime."""
        return instant(self.arrived_us)


class Record(NamedTuple, Generic[T]):
    """One entry of a journal, decoded."""

    sequence: int
    arrived_us: int
    value: T

    @property
    def arrived(self) -> datetime:
        """When the record was appended, as an aware UTC datetime."""
        return instant(self.arrived_us)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a journal that a reader passed by because they are not a readable record.

    `after` and `before` are the sequences of the readable records around it; 0 where there is none.
    """

    page: int
    offset: int
    size: int
    after: int
    before: int
    reason: str

    def facts(self) -> dict[str, object]:
        """The fields by name, for a log line."""
        return asdict(self)

    def __str__(self) -> str:
        between = f"after record {self.after}" if self.after else "before all readable records"
        upto = f" and before record {self.before}" if self.before else ""
        return f"page {self.page}, {self.size} bytes at offset {self.offset}, {between}{upto}: {self.reason}"
