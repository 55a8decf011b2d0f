"""The commands there are, each imported when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, Final

import click

from astyqueue.cli.failures import told_in_one_line
from astyqueue.cli.files import defaults
from astyqueue.cli.session import verbose_option

_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "ASTYQUEUE", "max_content_width": 100}
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
        return super().make_context(info_name, args, parent, default_map=defaults(self, Path.cwd()), **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; what goes wrong is told in one line."""
        with told_in_one_line():
            result: object = super().invoke(ctx)
            return result
