"""Options from a file: `astyqueue.toml`, or the table `[tool.astyqueue]` of `pyproject.toml`, in the current directory.

`url = "sqlite:///work.db"` at its top is the option of every command that has it. `concurrency = 16` under `[worker]` (in
`pyproject.toml`: `[tool.astyqueue.worker]`) is that of one command, `json = true` under `[queues.list]` that of a command
inside a group.

A file may have come with somebody else's work. So what destroys is never asked for in one, and one that others can write to says
nothing of where to connect to or what to write.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import click

from astyqueue.cli.failures import ExitCode, Failure

_OWN: Final = "astyqueue.toml"
_SHARED: Final = "pyproject.toml"
Table = Mapping[str, object]
#: Where a command connects to; with the paths that it writes to, what only a file of one's own says.
_PLACES: Final = frozenset({"url", "master"})


class Deliberate(click.Option):
    """An option by which something is destroyed, overwritten or done against advice: no file says it."""


class Defaults(NamedTuple):
    """What a file says, in click's form, and which file that is; None if there is none."""

    options: dict[str, object]
    file: Path | None


class _Read(NamedTuple):
    """A table of a TOML file, and why somebody else may have written it; empty if nobody else can."""

    table: Table
    strange: str


def defaults(group: click.Group, folder: Path) -> Defaults:
    """What the file in this folder says; an option that no command has, or that no file may say, is a Failure that names it."""
    for file, path in ((folder / _OWN, ()), (folder / _SHARED, ("tool", "astyqueue"))):
        found = _read(file, path) if file.is_file() else None
        if found is not None:
            return Defaults(_Options(group, file, found.strange).all(found.table), file)
    return Defaults({}, None)


def _read(file: Path, path: tuple[str, ...]) -> _Read | None:
    """The table at a path in a TOML file, if there is one."""
    import tomllib

    try:
        with file.open("rb") as opened:
            strange = _strange(os.fstat(opened.fileno()))
            found: object = tomllib.load(opened)
    except (OSError, ValueError) as error:
        message = f"{file.name} cannot be read: {error}"
        raise Failure(message, ExitCode.BAD_INPUT) from error
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return _Read(found, strange) if isinstance(found, Mapping) else None


def _strange(facts: os.stat_result) -> str:
    """Why a file may be somebody else's doing. A group of the user's number is the user's own; root may do anything anyway."""
    me = os.geteuid()
    if facts.st_uid not in (me, 0):
        return f"it belongs to another user ({facts.st_uid})"
    by_group = facts.st_mode & stat.S_IWGRP and facts.st_gid not in (me, 0)
    return "others may write to it" if by_group or facts.st_mode & stat.S_IWOTH else ""


class _Options:
    """The options of all commands, and what a file says of them."""

    def __init__(self, group: click.Group, file: Path, strange: str) -> None:
        self._group = group
        self._file = file
        self._strange = strange
        self._used: set[str] = set()

    def all(self, table: Table) -> dict[str, object]:
        found = self._of_group(self._group, table, {})
        plain = {_named(key) for key, value in table.items() if not isinstance(value, Mapping)}
        if unknown := plain - self._used:
            self._refuse(unknown, "any command")
        return found

    def _of_group(self, group: click.Group, table: Table, inherited: dict[str, object]) -> dict[str, object]:
        common = inherited | _plain(table)
        context = click.Context(group)
        names = group.list_commands(context)
        if unknown := {key for key, value in table.items() if isinstance(value, Mapping)} - set(names):
            self._refuse(unknown, f"{group.name}: it is no command of it")
        found: dict[str, object] = {}
        for name in names:
            command = group.get_command(context, name)
            below = table.get(name, {})
            if isinstance(command, click.Group) and isinstance(below, Mapping):
                found[name] = self._of_group(command, below, common)
            elif command is not None and isinstance(below, Mapping):
                found[name] = self._of_command(command, below, common)
        return found

    def _of_command(self, command: click.Command, table: Table, inherited: dict[str, object]) -> dict[str, object]:
        options = {_named(text): option for option in command.params for text in option.opts if text.startswith("--")}
        own = _plain(table)
        if unknown := set(own) - set(options):
            self._refuse(unknown, str(command.name))
        self._used |= set(inherited) & set(options)
        said = {key: value for key, value in (inherited | own).items() if key in options}
        for key in said:
            self._check(key, options[key])
        return {str(options[key].name): value for key, value in said.items()}

    def _check(self, key: str, option: click.Parameter) -> None:
        """Refuse what this file may not say."""
        if isinstance(option, Deliberate):
            message = f"{self._file.name}: {key} is taken from the command line only, not from a file: leave it out"
            raise Failure(message, ExitCode.BAD_INPUT)
        if self._strange and (key in _PLACES or isinstance(option.type, click.Path)):
            message = (
                f"{self._file}: {key} is taken from a file only if nobody else can write to it, and {self._strange}. Make it your own "
                "(chown, chmod go-w), remove it, or run this in another directory"
            )
            raise Failure(message, ExitCode.BAD_INPUT)

    def _refuse(self, unknown: set[str], whose: str) -> None:
        message = f"{self._file.name}: {', '.join(sorted(unknown))} is no option of {whose}"
        raise Failure(message, ExitCode.BAD_INPUT)


def _named(text: str) -> str:
    """An option as a key: `--drain-timeout`, `drain-timeout` and `drain_timeout` are one."""
    return text.removeprefix("--").replace("-", "_")


def _plain(table: Table) -> dict[str, object]:
    return {_named(key): value for key, value in table.items() if not isinstance(value, Mapping)}
