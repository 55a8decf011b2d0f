"""The group of all commands; each is imported when it is used."""

from __future__ import annotations

import importlib
import io
import sys
from typing import Any, Final

import click

from astyqueue.cli.config import PREFIX, defaults, here, name_options, name_source
from astyqueue.cli.context import FILE, verbose_option
from astyqueue.cli.errors import ExitCode, Failure, errors_in_one_line, warn
from astyqueue.cli.streams import drop_unread, drop_unwritten, open_closed_streams
from astyqueue.printable import printable

_CONTEXT: Final = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": PREFIX, "max_content_width": 100}
#: Command -> module of `astyqueue.cli.commands`, in the order of help.
_MODULES: Final = {
    "worker": "worker",
    "workers": "workers",
    "send": "send",
    "peek": "messages",
    "browse": "messages",
    "get": "messages",
    "find": "messages",
    "explain": "messages",
    "history": "history",
    "counts": "messages",
    "delete": "messages",
    "clear": "messages",
    "drop": "messages",
    "queues": "queues",
    "dead": "dead",
    "rescan": "rescan",
    "schedules": "schedules",
    "spark": "spark",
    "pipeline": "pipeline",
    "journal": "journal",
    "spool": "spool",
    "migrate": "admin",
    "verify": "admin",
    "doctor": "admin",
}
#: This command logs the file of its options instead of printing it.
_LOGS: Final = "worker"


class Commands(click.Group):
    """All commands of astyqueue."""

    def __init__(self, *, name: str, help: str, epilog: str) -> None:  # noqa: A002 - click's own name
        """Takes the commands from the table above."""
        super().__init__(name=name, help=help, epilog=epilog, context_settings=_CONTEXT)
        click.version_option(package_name="astyqueue")(self)
        verbose_option(self)

    def __call__(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401 - click's signature
        """Run as the command of this process, whatever its standard streams are."""
        open_closed_streams()
        drop_unread("stderr")
        try:
            return super().__call__(*args, **extra)
        except OSError as error:  # help, which is printed before a command runs, could not be written
            Failure(str(error)).show()
            sys.exit(ExitCode.FAILED)
        finally:
            drop_unwritten()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names, in the order of help."""
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Import a command."""
        if cmd_name not in _MODULES:
            return None
        command: click.Command = getattr(
            importlib.import_module(f"astyqueue.cli.commands.{_MODULES[cmd_name]}"), cmd_name
        )
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> click.Context:
        """Read the options file of the current directory first, as click's default map."""
        found = defaults(self, here())
        context = super().make_context(info_name, args, parent, default_map=found.options, **extra)
        context.meta[FILE] = found.file
        return context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Print the file of its options on stderr: it may have come with another person's project."""
        name, command, rest = super().resolve_command(ctx, args)
        for warning in name_options(str(name), command) if command else ():
            click.echo(printable(f"astyqueue: {warning}"), err=True)
        if (file := ctx.meta.get(FILE)) and name != _LOGS:
            click.echo(printable(f"astyqueue: options from {file}"), err=True)
        return name, command, rest

    def invoke(self, ctx: click.Context) -> object:
        """Run a command; errors are printed in one line. Characters that stdout cannot encode become Python escapes."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        warn()
        with errors_in_one_line():
            try:
                result: object = super().invoke(ctx)
            except click.BadParameter as error:
                name_source(error, ctx.meta.get(FILE))
                raise
            return result
