from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.stdlib_index.facts import LIBRARY, Facts, facts_of, package_of, sources
from examples.stdlib_index.findings import Balance
from examples.stdlib_index.index import Index
from examples.stdlib_index.jobs import reason_of

SOURCE = b'''"""A module."""

class Shop:
    def open(self):
        """Open it."""

    async def close(self):
        if self:
            def inside(): pass
        return None
'''


def test_the_facts_of_a_file_are_those_of_all_that_is_defined_in_it() -> None:
    expected = Facts(
        lines=10, functions=3, classes=1, documentable=5, documented=2, longest="Shop.close", longest_lines=4
    )
    assert facts_of(SOURCE) == expected


def test_a_file_without_functions_has_no_longest_one() -> None:
    assert facts_of(b"") == Facts(
        lines=0, functions=0, classes=0, documentable=1, documented=0, longest="", longest_lines=0
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"print 1", "line 1: Missing parentheses"),
        (b"# coding: uft-8", "unknown encoding: uft-8"),
        (b"\0", "null bytes"),
    ],
)
def test_what_is_no_python_has_a_plain_reason(source: bytes, reason: str) -> None:
    with pytest.raises((SyntaxError, ValueError)) as caught:
        facts_of(source)
    assert reason in reason_of(caught.value)


def test_the_library_is_found_without_what_was_installed_beside_it() -> None:
    found = sources()
    assert {"ast.py", "json/decoder.py"} <= set(found)
    assert not any("site-packages" in path for path in found)
    assert all((LIBRARY / path).is_file() for path in found)


@pytest.mark.parametrize(("path", "package"), [("ast.py", "ast"), ("json/decoder.py", "json")])
def test_a_file_belongs_to_what_is_at_the_top_of_the_library(path: str, package: str) -> None:
    assert package_of(path) == package


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    index = Index(tmp_path / "index.db")
    index.create()
    yield index
    index.close()


def test_finishing_a_file_twice_leaves_one_row(index: Index) -> None:
    for _ in range(2):
        index.begin("shop.py")
        index.finish("shop.py", facts_of(SOURCE))
    assert (index.files(), index.started_twice()) == (1, {"shop.py": os.getpid()})


@pytest.mark.parametrize(
    ("done", "twice", "lost", "good"), [(8, 1, 0, True), (7, 1, 1, False), (8, 0, 0, False), (9, 1, -1, False)]
)
def test_the_balance_is_good_only_if_nothing_was_lost_and_the_kill_caught_something(
    done: int,
    twice: int,
    lost: int,
    good: bool,  # noqa: FBT001 - a column of the table
) -> None:
    balance = Balance(sent=10, on_disk=10, done=done, dead=2, twice=twice)
    assert (balance.lost, balance.good) == (lost, good)
    assert str(balance) == f"sent 10, done {done}, dead 2, lost {lost}, delivered twice {twice}"
