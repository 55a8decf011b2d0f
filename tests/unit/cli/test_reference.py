"""The page on the command line says what the commands are."""

from __future__ import annotations

import re

from astyqueue.cli.errors import ExitCode
from tests.unit.cli.reference import MARK, PAGE, listed


def test_the_page_lists_every_command_and_option_as_it_is() -> None:
    head, mark, _ = PAGE.read_text().partition(MARK)
    assert PAGE.read_text() == head + listed(), "write it anew: python -m tests.unit.cli.reference"
    assert mark


def test_the_page_lists_every_exit_code() -> None:
    told = [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)]
    assert told == sorted(ExitCode)
