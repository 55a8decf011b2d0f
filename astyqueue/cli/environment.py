"""Options from the environment, such as `ASTYQUEUE_PEEK_JSON` for `astyqueue peek --json`.

click itself names variables after the parameters of functions, which users do not see; these names work as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import click

PREFIX: Final = "ASTYQUEUE"
#: Similarity from which an unknown variable counts as a misspelled one; others may belong to another program.
_ALIKE: Final = 0.9


def name_options(name: str, command: click.Command) -> list[str]:
    """Name the variables of all options of a command or group. Returns a warning for each misspelled variable."""
    prefix = f"{PREFIX}_{_variable_part(name)}"
    known = set(_named(prefix, command))
    unknown = sorted(variable for variable in os.environ if variable.startswith(f"{prefix}_") and variable not in known)
    meant = {variable: get_close_matches(variable, known, n=1, cutoff=_ALIKE) for variable in unknown}
    return [f"unknown variable {variable}; did you mean {close[0]}?" for variable, close in meant.items() if close]


def _named(prefix: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (inner := command.get_command(click.Context(command), name)) is not None:
                yield from _named(f"{prefix}_{_variable_part(name)}", inner)
        return
    for option in command.params:
        if isinstance(option, click.Option):
            usual = f"{prefix}_{_variable_part(str(option.name))}"
            typed = [f"{prefix}_{_variable_part(text)}" for text in option.opts if text.startswith("--")]
            if option.envvar is None and usual not in typed:
                option.envvar = typed
            yield from (usual, *typed, *([option.envvar] if isinstance(option.envvar, str) else option.envvar or ()))


def _variable_part(text: str) -> str:
    return text.removeprefix("--").replace("-", "_").upper()
