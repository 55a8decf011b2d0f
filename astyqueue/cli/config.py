"""Options that are not on the command line: from the environment, and from a file in the current directory.

A variable such as `ASTYQUEUE_PEEK_JSON` sets `astyqueue peek --json`. click itself names variables after the parameters
of functions, which users do not see; these names work as well.

The file is `astyqueue.toml`, or `pyproject.toml` with a table `[tool.astyqueue]`. `url = "sqlite:///work.db"` at its
top sets the option of every command that has it. `concurrency = 16` under `[worker]` (in `pyproject.toml`:
`[tool.astyqueue.worker]`) sets it for one command, and `app = "shop.tasks:app"` there is the argument of `astyqueue
worker`. `json = true` under `[queues.list]` is for a command inside a group.

A file may have come with another person's project. So destructive options are never read from a file, and a file that
other users can write to must not set URLs to connect to, apps to run or paths to write.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

import click
from click.core import ParameterSource

from astyqueue.cli.errors import ExitCode, Failure

_OWN: Final = "astyqueue.toml"
_SHARED: Final = "pyproject.toml"
Table = Mapping[str, object]
#: Where to connect and what code to run: like paths to write, read only from files that no other user can write to.
_TRUSTED_ONLY: Final = frozenset({"url", "master", "app"})
PREFIX: Final = "ASTYQUEUE"
#: Similarity from which an unknown variable counts as a misspelled one; others may belong to another program.
_ALIKE: Final = 0.9


class Deliberate(click.Option):
    """An option that destroys, overwrites or overrides advice: never read from a file."""


class Defaults(NamedTuple):
    """Options from a file, as click's default map, and the file; None if there is no file."""

    options: dict[str, object]
    file: Path | None


class _Read(NamedTuple):
    """A table of a TOML file, and why another user may have written it; empty if no other user can."""

    table: Table
    untrusted: str


def here() -> Path:
    """The current directory; if it was removed, a path with no files, so that commands that need no file still run."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path()


def search_here() -> None:
    """Have imports search the current directory first."""
    folder = str(here())
    if folder not in sys.path:
        sys.path.insert(0, folder)


def defaults(group: click.Group, folder: Path) -> Defaults:
    """The options in the file of this folder. Raises Failure if one is unknown or not allowed in a file."""
    for file, path in ((folder / _OWN, ()), (folder / _SHARED, ("tool", "astyqueue"))):
        # Unlike that of a Path, it raises nothing in a directory that this user may not search.
        found = _read(file, path) if os.path.isfile(file) else None  # noqa: PTH113
        if found is not None:
            return Defaults(_Options(group, file, found.untrusted).all(found.table), file)
    return Defaults({}, None)


def _read(file: Path, path: tuple[str, ...]) -> _Read | None:
    """The table at a path in a TOML file, if there is one."""
    import tomllib

    try:
        with file.open("rb") as opened:
            untrusted = _untrusted(os.fstat(opened.fileno()))
            found: object = tomllib.load(opened)
    except (OSError, ValueError) as error:
        message = f"{file.name} cannot be read: {error}"
        raise Failure(message, ExitCode.BAD_INPUT) from error
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return _Read(found, untrusted) if isinstance(found, Mapping) else None


def _untrusted(facts: os.stat_result) -> str:
    """Why another user may have written a file. A group with the user's own number is trusted, and so is root."""
    me = os.geteuid()
    if facts.st_uid not in (me, 0):
        return f"it belongs to another user ({facts.st_uid})"
    by_group = facts.st_mode & stat.S_IWGRP and facts.st_gid not in (me, 0)
    return "other users can write to it" if by_group or facts.st_mode & stat.S_IWOTH else ""


class _Options:
    """The options of all commands, checked against those in a file."""

    def __init__(self, group: click.Group, file: Path, untrusted: str) -> None:
        self._group = group
        self._file = file
        self._untrusted = untrusted
        self._known: set[str] = set()

    def all(self, table: Table) -> dict[str, object]:
        return self._of_group(self._group, table, {})

    def _of_group(self, group: click.Group, table: Table, inherited: dict[str, object]) -> dict[str, object]:
        own, context = _plain(table), click.Context(group)
        common, above, self._known = inherited | own, self._known, set()
        names = group.list_commands(context)
        if unknown := {key for key, value in table.items() if isinstance(value, Mapping)} - set(names):
            self._refuse("command", unknown, f" of {group.name}", names)
        found: dict[str, object] = {}
        for name in names:
            command = group.get_command(context, name)
            below = table.get(name, {})
            if isinstance(command, click.Group) and isinstance(below, Mapping):
                found[name] = self._of_group(command, below, common)
            elif command is not None and isinstance(below, Mapping):
                found[name] = self._of_command(command, below, common)
        if unknown := set(own) - self._known:
            self._refuse("option", unknown, "" if group is self._group else f" of {group.name}", self._known)
        self._known |= above
        return found

    def _of_command(self, command: click.Command, table: Table, inherited: dict[str, object]) -> dict[str, object]:
        options = {_named(text): option for option in command.params for text in option.opts if text.startswith("--")}
        # An argument that a variable can set, such as the app of a worker, can be set by a file too.
        options |= {str(one.name): one for one in command.params if isinstance(one, click.Argument) and one.envvar}
        own = {_named(key): value for key, value in table.items()}
        if unknown := set(own) - set(options):
            self._refuse("option", unknown, f" of {command.name}", options)
        self._known |= set(options)
        said = {key: value for key, value in (inherited | own).items() if key in options}
        for key in said:
            self._check(key, options[key])
        return {str(options[key].name): self._value(key, options[key], value) for key, value in said.items()}

    def _value(self, key: str, option: click.Parameter, value: object) -> object:
        """The value as click reads it, which expects text: an option that can be repeated has a list of values."""
        several = option.multiple or option.nargs != 1
        if isinstance(value, list) and several:
            return [_as_typed(one) for one in value]
        if isinstance(value, list | Mapping):
            what = "list" if isinstance(value, list) else "table"
            message = f"{self._file.name}: {key} is a {what}: give one value, written as on the command line"
            raise Failure(message, ExitCode.BAD_INPUT)
        return [_as_typed(value)] if several else _as_typed(value)

    def _check(self, key: str, option: click.Parameter) -> None:
        """Raise Failure if this file must not set the option."""
        if isinstance(option, Deliberate):
            message = f"{self._file.name}: {key} is read from the command line only: remove it from the file"
            raise Failure(message, ExitCode.BAD_INPUT)
        if self._untrusted and (key in _TRUSTED_ONLY or isinstance(option.type, click.Path)):
            message = (
                f"{self._file}: {key} is read from a file only if no other user can write to it, but "
                f"{self._untrusted}. Restrict it (chown, chmod go-w), remove it, or run this in another directory"
            )
            raise Failure(message, ExitCode.BAD_INPUT)

    def _refuse(self, what: str, unknown: set[str], owner: str, known: Iterable[str]) -> None:
        names = sorted(unknown)
        close = get_close_matches(names[0], known, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        message = f"{self._file.name}: unknown {what} {', '.join(names)}{owner}{meant}"
        raise Failure(message, ExitCode.BAD_INPUT)


def _named(text: str) -> str:
    """The key of an option: `--drain-timeout`, `drain-timeout` and `drain_timeout` have the same."""
    return text.removeprefix("--").replace("-", "_")


def _plain(table: Table) -> dict[str, object]:
    return {_named(key): value for key, value in table.items() if not isinstance(value, Mapping)}


def _as_typed(value: object) -> object:
    """A value of a TOML file as text, as it is typed on a command line. Moments are left as they are."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, datetime) else str(value)


def name_source(error: click.BadParameter, file: Path | None) -> None:
    """Have an error of usage name the file or the variable that has the value, if it was not typed."""
    context, option = error.ctx, error.param
    if context is None or option is None or option.name is None or error.param_hint is not None:
        return
    source = context.get_parameter_source(option.name)
    place: object = file if source is ParameterSource.DEFAULT_MAP else None
    if source is ParameterSource.ENVIRONMENT:
        place = next((one for one in _variables_of(option, context) if one in os.environ), None)
    if place is not None:
        error.param_hint = f"{' / '.join(map(repr, option.opts))} (from {place})"


def _variables_of(option: click.Parameter, context: click.Context) -> list[str]:
    """The variables that set this option, as click looks for them."""
    own = option.envvar or ()
    return [*([own] if isinstance(own, str) else own), f"{context.auto_envvar_prefix}_{str(option.name).upper()}"]


def name_options(name: str, command: click.Command) -> list[str]:
    """Name the variables of all options of a command or group. Returns a warning for each misspelled variable."""
    prefix = f"{PREFIX}_{_variable_part(name)}"
    known = set(_variables(prefix, command))
    unknown = sorted(variable for variable in os.environ if variable.startswith(f"{prefix}_") and variable not in known)
    meant = {variable: get_close_matches(variable, known, n=1, cutoff=_ALIKE) for variable in unknown}
    return [f"unknown variable {variable}; did you mean {close[0]}?" for variable, close in meant.items() if close]


def _variables(prefix: str, command: click.Command) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            if (inner := command.get_command(click.Context(command), name)) is not None:
                yield from _variables(f"{prefix}_{_variable_part(name)}", inner)
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
