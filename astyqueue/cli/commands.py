"""The commands there are, each imported when it is asked for."""

from __future__ import annotations

import importlib
import io
import sys
from pathlib import Path
from typing import Any, Final

import click

from astyqueue.cli.environment import PREFIX, name_options
from astyqueue.cli.failures import told_in_one_line
from astyqueue.cli.files import defaults
from astyqueue.cli.logs import warn
from astyqueue.cli.session import FILE, verbose_option
from astyqueue.printable import printable

_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": PREFIX, "max_content_width": 100}
#: Command, and the module of `astyqueue.cli` it is in; in the order that help shows.
_MODULES: Final = {
    "worker": "worker",
    "send": "send",
    "peek": "messages",
    "get": "messages",
    "find": "messages",
    "explain": "explaining",
    "history": "history",
    "counts": "messages",
    "delete": "removal",
    "clear": "removal",
    "drop": "removal",
    "queues": "queues",
    "dead": "dead",
    "rescan": "rescan",
    "schedules": "schedules",
    "spark": "spark",
    "pipeline": "pipeline",
    "migrate": "schema",
    "verify": "schema",
    "doctor": "doctor",
}
#: The command that logs: what it has options from is a line of its log.
_LOGS: Final = "worker"


class Commands(click.Group):
    """All commands of astyqueue."""

    def __init__(self, *, name: str, help: str, epilog: str) -> None:  # noqa: A002 - click's own name
        """Commands need no registration: the list above is it."""
        super().__init__(name=name, help=help, epilog=epilog, context_settings=_CONTEXT)
        click.version_option(package_name="astyqueue")(self)
        verbose_option(self)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The commands in the order of help."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command."""
        if cmd_name not in _MODULES:
            return None
        command: click.Command = getattr(importlib.import_module(f"astyqueue.cli.{_MODULES[cmd_name]}"), cmd_name)
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        """Read the defaults of this directory before anything else."""
        found = defaults(self, Path.cwd())
        context = super().make_context(info_name, args, parent, default_map=found.options, **extra)
        context.meta[FILE] = found.file
        return context

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; say on stderr which file it has options from, for that may have come with somebody else's work."""
        name, command, rest = super().resolve_command(ctx, args)
        for slip in name_options(str(name), command) if command else ():
            click.echo(printable(f"astyqueue: {slip}"), err=True)
        if (file := ctx.meta.get(FILE)) and name != _LOGS:
            click.echo(printable(f"astyqueue: options of {file}"), err=True)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; what goes wrong is told in one line. What stdout has no letters for is written as Python writes it."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        warn()
        with told_in_one_line():
            result: object = super().invoke(ctx)
            return result
