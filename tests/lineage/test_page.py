"""The page on lineage leaves nothing out, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/reference/lineage.md").read_text()
LINES: Final = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("|")]
_PLACE: Final = re.compile(r"`((?:astyqueue|tests)/[\w/.-]+)`")
_FAULT: Final = re.compile(r"[\d, and]+(?=: )")
FAULTS: Final = range(1, 30)
#: How many of each there are; F06 is no feature.
FEATURES: Final = {"C": 22, "R": 26, "Q": 39, "F": 38}


def named(first: str) -> set[int]:
    """The features whose names begin with this letter, alone or as in "R01 to R15"."""
    found: set[int] = set()
    for cells in LINES:
        if match := re.fullmatch(rf"{first}(\d\d)(?: to {first}(\d\d))?", cells[0].strip()):
            found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


@pytest.mark.parametrize("first", FEATURES)
def test_every_feature_of_an_ancestor_has_its_line(first: str) -> None:
    assert named(first) == set(range(1, FEATURES[first] + 1)) - ({6} if first == "F" else set())


def test_each_line_says_where_and_by_what_or_that_it_is_not_so_here() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|--", "| what", "| |"))]
    assert len(lines) > 150
    told = [line for line in lines if "`tests/lineage/" in line or ("`astyqueue/" in line and "`tests/" in line)]
    assert [line for line in lines if line not in told and "not built" not in line] == []


def test_every_place_that_is_named_is_there() -> None:
    places = _PLACE.findall(PAGE)
    assert len(places) > 200
    assert [place for place in places if not (ROOT / place).is_file()] == []


def test_each_fault_of_the_recipe_has_a_test_whose_first_line_names_it() -> None:
    files = sorted((ROOT / "tests/lineage").glob("test_recipe_*.py"))
    shown = {number: f"tests/lineage/{file.name}" for file in files for number in _faults(file)}
    told = {int(cells[0]): cells[3].strip("` |") for cells in LINES if cells[0].strip().isdecimal()}
    assert set(told) == set(FAULTS)
    assert shown == told


def _faults(file: Path) -> set[int]:
    """The faults that the tests of a file say they are about."""
    tests = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    named = [match[0] for test in tests if (match := _FAULT.match(ast.get_docstring(test) or ""))]
    return {int(number) for numbers in named for number in re.findall(r"\d+", numbers)}
