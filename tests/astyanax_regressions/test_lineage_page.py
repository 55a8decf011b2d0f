"""The page on lineage is complete; the code that it names exists, and so do the tests, which name what they show."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs/reference/lineage.md").read_text()
LINES: Final = [
    [cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("|")
]
#: The rows below the heading of each table.
ROWS: Final = [
    cells
    for cells in LINES
    if not cells[0].startswith(("-", "what")) and cells[1] not in {"what", "what it did", "what it shows"}
]
#: A row whose feature, and what it lacks, another row tells of.
_SEE: Final = re.compile(r"\bsee (Q\d\d)\b")
_PLACE: Final = re.compile(r"`((?:astyqueue|tests)/[\w/.-]+)(?:::(\w+))?`")
_TEST: Final = re.compile(r"`(tests/[\w/.]+\.py)::(\w+)`")
_FAULT: Final = re.compile(r"[\d, and]+(?=: )")
FAULTS: Final = range(1, 30)
#: How many of each there are; F06 is not a feature.
FEATURES: Final = {"C": 22, "R": 26, "Q": 39, "F": 38}
#: How many tests of their own the ancestors had.
TESTS: Final = {"C-T": 7, "R-T": 11, "Q-T": 23, "F-T": 11}


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


@pytest.mark.parametrize("first", TESTS)
def test_every_test_of_an_ancestor_has_its_line(first: str) -> None:
    listed = [cells[0] for cells in LINES if cells[0].startswith(first)]
    assert listed == [f"{first}{number}" for number in range(1, TESTS[first] + 1)]


def test_every_feature_of_the_broker_has_one_line() -> None:
    first = [cells[0] for cells in ROWS if re.fullmatch(r"Q\d\d", cells[0])]
    assert first == [f"Q{number:02}" for number in range(1, FEATURES["Q"] + 1)]


def test_each_line_names_tests_that_show_it_or_says_that_it_is_not_built() -> None:
    assert len(ROWS) > 150
    names = {cells[0] for cells in ROWS}
    untold = [cells for cells in ROWS if not _TEST.search(cells[-1]) and not any("not built" in cell for cell in cells)]
    assert [cells for cells in untold if not {see for cell in cells for see in _SEE.findall(cell)} & names] == []


def test_each_line_names_single_tests_and_no_whole_file() -> None:
    assert [cells for cells in ROWS if _TEST.sub("", cells[-1]).strip(", ")] == []


def test_every_place_that_is_named_is_there() -> None:
    places = _PLACE.findall(PAGE)
    assert len(places) > 200
    assert [place for place, _ in places if not (ROOT / place).is_file()] == []


def test_every_test_that_is_named_is_one_that_the_suite_runs(request: pytest.FixtureRequest) -> None:
    """No mark of its own skips a test or leaves it to other runs; where its file was collected, so was the test."""
    tests = _TEST.findall(PAGE)
    assert len(tests) > 150
    assert [f"{file}::{name}" for file, name in tests if name not in _run(file)] == []
    collected = {tuple(item.nodeid.split("[")[0].split("::")[:2]) for item in request.session.items}
    files = {file for file, _ in collected} if _is_everything(request.config) else set()
    assert [f"{file}::{name}" for file, name in tests if file in files and (file, name) not in collected] == []


def test_each_fault_of_the_recipe_has_tests_whose_first_lines_name_it() -> None:
    files = sorted((ROOT / "tests/astyanax_regressions").glob("test_*.py"))
    shown = {
        (number, f"tests/astyanax_regressions/{file.name}", name)
        for file in files
        for name, numbers in _faults(file).items()
        for number in numbers
    }
    told = {
        (int(cells[0]), file, name) for cells in ROWS if cells[0].isdecimal() for file, name in _TEST.findall(cells[-1])
    }
    assert {number for number, _, _ in told} == set(FAULTS)
    assert shown == told


@cache
def _run(file: str) -> set[str]:
    """The tests, and classes of tests, of a file that every run of the suite contains."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, kinds)]
    tests = [node for node in found if node.name.startswith(("test_", "Test"))]
    marks = {node.name: {_last(decorator) for decorator in node.decorator_list} for node in tests}
    return {name for name, its in marks.items() if not its & {"skip", "skipif", "xfail", "full"}}


def _last(decorator: ast.expr) -> str:
    """The name at the end of `pytest.mark.skip(...)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else ""


def _is_everything(config: pytest.Config) -> bool:
    """Whether no test was chosen by name, so that each collected file was collected as a whole."""
    return not (
        config.option.keyword or config.getoption("--store") or any("::" in argument for argument in config.args)
    )


def _faults(file: Path) -> dict[str, set[int]]:
    """The tests of a file, and the faults that their docstrings name."""
    tests = [
        node
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    named = {test.name: match[0] for test in tests if (match := _FAULT.match(ast.get_docstring(test) or ""))}
    return {name: {int(number) for number in re.findall(r"\d+", numbers)} for name, numbers in named.items()}
