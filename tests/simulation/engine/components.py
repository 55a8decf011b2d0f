"""The components of a simulation, by name, so that it can be played again with fewer of them."""

from __future__ import annotations

from collections.abc import Set as AbstractSet


class Components:
    """The kinds of fault of a simulation, and in each burst what each process does and which faults happen.

    A part draws from a source of its own, so that it stays as it is when others are left out.
    """

    def __init__(self, only: AbstractSet[str] | None = None) -> None:
        """All there are, or `only` these."""
        self.only = only
        self.played: list[str] = []

    def includes(self, part: str) -> bool:
        """Whether this part is played; it is noted then."""
        if self.only is not None and part not in self.only:
            return False
        self.played.append(part)
        return True

    @property
    def last_burst(self) -> int:
        """The last burst in which anything is played."""
        numbers = [part.partition(":")[0] for part in self.only or ()]
        return max((int(number) for number in numbers if number.isdecimal()), default=-1)
