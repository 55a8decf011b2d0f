"""How many orders of commits were explored.

`python -m tests.unit.protocol.pair_coverage` writes the numbers into the guide, which takes a few minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.protocol.layout.columns import Type
from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import explore
from tests.unit.protocol.fault_budgets import CRASH, PAUSE, PLAIN, UNKNOWN, Faults
from tests.unit.protocol.operation_pairs import PAIRS, UNABLE, Pair, Unable, meeting
from tests.unit.protocol.test_interleavings import three_cold, three_warm

PAGE: Final = Path(__file__).parents[3] / "docs/explanation/interleavings.md"
#: The faults of the two of a pair, in the order of the table.
BEFALL: Final[tuple[Faults, ...]] = (CRASH, UNKNOWN, PAUSE)
#: What the tables stand below.
_PAIRS: Final = (
    "| the two | one may die | an answer may be lost | one may be late "
    "| orders that break a promise if nothing is expected |"
)
_THREE: Final = "| three claimers | nothing befalls them | one may die |"
_LINE: Final = re.compile(
    r"^\| ([a-z ]+) and ([a-z ]+) \| ([0-9 ]+) \| ([0-9 ]+) \| ([0-9 ]+) "
    r"\| (?:([0-9 ]+) of ([0-9 ]+)|cannot fail: ([a-z ]+)) \|$",
    re.MULTILINE,
)
#: How the line begins that says how many pairs are shown.
_SHOWN: Final = "**Shown able to fail: "


class Told(NamedTuple):
    """What the guide says of a pair: the orders that were explored, by fault.

    Without expectations there are `unguarded` orders, and `breaks` of them break a promise. `why`: none can break for
    this reason.
    """

    crashes: int
    unknowns: int
    pauses: int
    breaks: int
    unguarded: int
    why: str


def told() -> dict[Pair, Told]:
    """What the guide says."""
    lines: list[tuple[str, ...]] = _LINE.findall(PAGE.read_text())
    return {(first, second): Told._make([*map(_number, numbers), why]) for first, second, *numbers, why in lines}


def _number(written: str) -> int:
    return int(written.replace(" ", "") or 0)


def cannot_fail(unable: Unable) -> str:
    return f"cannot fail: {unable.why}"


def summary(told: Mapping[Pair, Told]) -> str:
    """How many pairs are shown, and orders of theirs; those of pairs that cannot fail are not among them."""
    orders = {pair: one.crashes + one.unknowns + one.pauses for pair, one in told.items()}
    shown = sum(number for pair, number in orders.items() if not told[pair].why)
    numbers = [
        _written(number) for number in (sum(not one.why for one in told.values()), shown, sum(orders.values()) - shown)
    ]
    counted = f"{_SHOWN}{numbers[0]} of {len(told)} pairs, {numbers[1]} orders."
    return f"{counted} Not counted: {numbers[2]} orders of pairs that cannot fail.**"


def schedules(make: Callable[[], Scenario], faults: Faults) -> int:
    """How many orders there are; all of them end well."""
    explored = explore(make, isolated=True, **faults).require_none()
    return explored.schedules


def _pairs() -> Iterator[str]:
    yield from (_PAIRS, "|---|--:|--:|--:|--:|")
    for first, second in PAIRS:
        numbers = [schedules(partial(meeting, first, second), faults) for faults in BEFALL]
        if unable := UNABLE.get((first, second)):
            last = cannot_fail(unable)
        else:
            broken = explore(partial(meeting, first, second, tuple(Type)), isolated=True)
            last = f"{_written(len(broken.violations))} of {_written(broken.schedules)}"
        cells = [*map(_written, numbers), last]
        yield f"| {first} and {second} | {' | '.join(cells)} |"


def _three() -> Iterator[str]:
    yield from (_THREE, "|---|--:|--:|")
    for what, make in (("who know the row", three_warm), ("who know nothing of it", three_cold)):
        yield f"| {what} | {' | '.join(_written(schedules(make, faults)) for faults in (PLAIN, CRASH))} |"


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
    PAGE.write_text(re.sub(re.escape(_SHOWN) + ".*", summary(told()), text))
