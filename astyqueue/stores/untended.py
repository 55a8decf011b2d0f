"""A store in memory needs nobody to look after it; this says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from astyqueue.errors import BadSetting
from astyqueue.findings import Finding, note
from astyqueue.stores.location import Location

_NOTHING: Final = "a store in memory makes itself when it is opened"


class Untended:
    """As `Administration` says: nothing to do, and nothing to find but that it ends with its process."""

    def statements(self) -> list[str]:
        """None."""
        return []

    def migrate(self) -> list[str]:
        """Nothing is done."""
        return [f"nothing to do: {_NOTHING}"]

    def verify(self) -> list[Finding]:
        """That it is in memory."""
        return [note("store", "in memory", "its messages end with their process, and no other process sees them")]

    def examine(self, rests: Mapping[str, int]) -> list[Finding]:  # noqa: ARG002 - a row here needs no rest
        """As `verify`."""
        return self.verify()

    def ready(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> Self:
        """Close on leaving the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """As `close`."""


def administered(location: Location) -> Untended:
    """A `memory://` URL; another kind raises BadSetting."""
    if location.scheme != "memory":
        message = f"there is no store of kind {location.scheme!r}; there are: memory, sqlite, cassandra"
        raise BadSetting(message)
    location.only(())
    return Untended()
