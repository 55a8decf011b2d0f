"""How many orders of commits were explored, written into the guide by `python -m tests.unit.protocol.explored`: a few minutes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.protocol.columns import Type
from astyqueue.testing import World, explore
from tests.unit.protocol.befalling import CRASH, PAUSE, PLAIN, UNKNOWN, Befalls
from tests.unit.protocol.meetings import PAIRS, meeting
from tests.unit.protocol.test_interleavings import three_cold, three_warm

PAGE: Final = Path(__file__).parents[3] / "docs/explanation/interleavings.md"
#: What befalls the two of a pair, in the order of the table.
BEFALL: Final[tuple[Befalls, ...]] = (CRASH, UNKNOWN, PAUSE)
#: What the tables stand below.
_PAIRS: Final = "| the two | one may die | an answer may be lost | one may be late | orders that break a promise if nothing is expected |"
_THREE: Final = "| three claimers | nothing befalls them | one may die |"
_LINE: Final = re.compile(r"^\| ([a-z ]+) and ([a-z ]+) \| ([0-9 ]+) \| ([0-9 ]+) \| ([0-9 ]+) \| ([0-9 ]+) of ([0-9 ]+) \|$", re.MULTILINE)


class Told(NamedTuple):
    """What the guide says of a pair: orders by what befalls them, and how many there are, and break, without expectations."""

    crashes: int
    unknowns: int
    pauses: int
    breaks: int
    unguarded: int


def told() -> dict[tuple[str, str], Told]:
    """What the guide says."""
    lines: list[tuple[str, ...]] = _LINE.findall(PAGE.read_text())
    return {(first, second): Told(*(int(number.replace(" ", "")) for number in numbers)) for first, second, *numbers in lines}


def schedules(make: Callable[[], World], befalls: Befalls) -> int:
    """How many orders there are; all of them end well."""
    explored = explore(make, isolated=True, **befalls).require_none()
    return explored.schedules


def _pairs() -> Iterator[str]:
    yield from (_PAIRS, "|---|--:|--:|--:|--:|")
    for first, second in PAIRS:
        numbers = [schedules(partial(meeting, first, second), befalls) for befalls in BEFALL]
        broken = explore(partial(meeting, first, second, tuple(Type)), isolated=True)
        cells = [*map(_written, numbers), f"{_written(len(broken.violations))} of {_written(broken.schedules)}"]
        yield f"| {first} and {second} | {' | '.join(cells)} |"


def _three() -> Iterator[str]:
    yield from (_THREE, "|---|--:|--:|")
    for what, make in (("who know the row", three_warm), ("who know nothing of it", three_cold)):
        yield f"| {what} | {' | '.join(_written(schedules(make, befalls)) for befalls in (PLAIN, CRASH))} |"


def _written(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def written(page: str, table: list[str]) -> str:
    """The page with this table in the place of the one that has the same head."""
    before, _, behind = page.partition(table[0])
    _, _, rest = behind.partition("\n\n")
    return before + "\n".join([*table, "", rest])


if __name__ == "__main__":
    text = PAGE.read_text()
    for lines in (_pairs(), _three()):
        text = written(text, list(lines))
    PAGE.write_text(text)
