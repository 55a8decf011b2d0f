"""Options from a file: `astyqueue.toml`, or the table `[tool.astyqueue]` of `pyproject.toml`, in the current directory.

`url = "sqlite:///work.db"` at its top is the option of every command that has it. `concurrency = 16` under `[worker]` (in
`pyproject.toml`: `[tool.astyqueue.worker]`) is that of one command, `json = true` under `[queues.list]` that of a command
inside a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from astyqueue.cli.failures import ExitCode, Failure

_OWN: Final = "astyqueue.toml"
_SHARED: Final = "pyproject.toml"
Table = Mapping[str, object]


def defaults(group: click.Group, folder: Path) -> dict[str, object]:
    """What the file in this folder says, in click's form; an option that no command has is a Failure that names it."""
    for file, path in ((folder / _OWN, ()), (folder / _SHARED, ("tool", "astyqueue"))):
        table = _table(file, path) if file.is_file() else None
        if table is not None:
            return _Options(group, file).all(table)
    return {}


def _table(file: Path, path: tuple[str, ...]) -> Table | None:
    """The table at a path in a TOML file, if there is one."""
    import tomllib

    try:
        found: object = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{file.name} cannot be read: {error}"
        raise Failure(message, ExitCode.BAD_INPUT) from error
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


class _Options:
    """The options of all commands, and what a file says of them."""

    def __init__(self, group: click.Group, file: Path) -> None:
        self._group = group
        self._file = file
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
        return {str(options[key].name): value for key, value in (inherited | own).items() if key in options}

    def _refuse(self, unknown: set[str], whose: str) -> None:
        message = f"{self._file.name}: {', '.join(sorted(unknown))} is no option of {whose}"
        raise Failure(message, ExitCode.BAD_INPUT)


def _named(text: str) -> str:
    """An option as a key: `--drain-timeout`, `drain-timeout` and `drain_timeout` are one."""
    return text.removeprefix("--").replace("-", "_")


def _plain(table: Table) -> dict[str, object]:
    return {_named(key): value for key, value in table.items() if not isinstance(value, Mapping)}
