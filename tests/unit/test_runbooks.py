"""What docs/how-to/production.md has operators type: a test carries it out, or the page says that none does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

from astyqueue.cli import main
from tests.cassandra.runbooks import ANYWHERE, PAGE, section, steps

TESTS: Final = Path(__file__).parents[1] / "cassandra"
HEADINGS: Final = re.findall(r"^#{2,} .+$", PAGE.read_text(), re.MULTILINE)
_FOLLOWED: Final = re.compile(r"\"(#{2,} [^\"]+)\"")


@pytest.mark.parametrize("heading", [heading for heading in HEADINGS if steps(section(heading))])
def test_the_commands_below_a_heading_are_carried_out_by_a_test_or_it_says_that_none_does(heading: str) -> None:
    followed = {found for source in TESTS.glob("test_*.py") for found in _FOLLOWED.findall(source.read_text())}
    assert heading in followed or "no test runs" in section(heading).lower()


def test_every_command_of_astyqueue_on_the_page_has_the_options_that_it_is_given() -> None:
    typed = [
        shlex.split(step.command) for heading in HEADINGS for step in steps(section(heading)) if step.where == ANYWHERE
    ]
    own = [words[1:] for words in typed if words[0] == "astyqueue"]
    assert len(own) > 0
    for words in own:
        name, command, rest = main.resolve_command(click.Context(main), words)
        assert command is not None, words
        command.make_context(name, list(rest), resilient_parsing=False)
