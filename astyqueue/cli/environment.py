"""Options from the environment: each is named as it is typed, `ASTYQUEUE_PEEK_JSON` for `astyqueue peek --json`.

click itself names them after the parameters of functions, which people do not see; those names hold as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import click

PREFIX: Final = "ASTYQUEUE"
#: A variable that is so much like a known one is taken for a slip; what is less like one may be somebody else's.
_ALIKE: Final = 0.9


def name_options(name: str, command: click.Command) -> list[str]:
    """Let the options of a command, and of those in it, be given by the environment; what looks like a slip, told in a line each."""
    known = set(_named(f"{PREFIX}_{_spelled(name)}", command))
    unknown = sorted(variable for variable in os.environ if variable.startswith(f"{PREFIX}_{_spelled(name)}_") and variable not in known)
    meant = {variable: get_close_matches(variable, known, n=1, cutoff=_ALIKE) for variable in unknown}
    return [f"the variable {variable} is of no option; did you mean {close[0]}?" for variable, close in meant.items() if close]


def _named(prefix: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (inner := command.get_command(click.Context(command), name)) is not None:
                yield from _named(f"{prefix}_{_spelled(name)}", inner)
        return
    for option in command.params:
        if isinstance(option, click.Option):
            usual = f"{prefix}_{_spelled(str(option.name))}"
            typed = [f"{prefix}_{_spelled(text)}" for text in option.opts if text.startswith("--")]
            if option.envvar is None and usual not in typed:
                option.envvar = typed
            yield from (usual, *typed, *([option.envvar] if isinstance(option.envvar, str) else option.envvar or ()))


def _spelled(text: str) -> str:
    return text.removeprefix("--").replace("-", "_").upper()
