"""How a command ends that could not do what it was asked: one line on stderr, and an exit code that says of what kind."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

import click

from astyqueue.errors import AstyqueueError, BadInput, HandlersStuck, StoreUnavailable, WrongSchema
from astyqueue.printable import printable, printable_lines

#: Where `-v` is remembered: shared by a command and the groups it is in.
VERBOSE: Final = "astyqueue.verbose"


class ExitCode(IntEnum):
    """What the exit code of a command tells a script."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    STORE_UNAVAILABLE = 3
    STUCK = 4
    WRONG_SCHEMA = 5
    WARNING = 10
    PROBLEM = 20
    INTERRUPTED = 130
    TERMINATED = 143


class Failure(click.ClickException):
    """The end of a command, told in one line."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        """Say what happened, and of what kind it was."""
        super().__init__(printable(message))
        self.exit_code = int(code)  # type: ignore[misc]  # click's own subclasses do the same


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Turn the errors of astyqueue, and an interrupt, into the end of a command; with `-v` their traceback comes first."""
    try:
        yield
    except click.ClickException as error:  # of click's own some have several lines, such as a list of choices
        error.message = printable_lines(error.message)  # type: ignore[misc]  # final for those who subclass
        raise
    except AstyqueueError as error:
        trace_if_verbose()
        raise Failure(str(error) or type(error).__name__, code_of(type(error))) from error
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


def trace_if_verbose() -> None:
    """Print the traceback of the error at hand if somebody asked for it."""
    if is_verbose():
        click.echo(printable_lines(traceback.format_exc()), err=True, nl=False)


def is_verbose() -> bool:
    """Whether somebody asked for all there is to see."""
    return bool(click.get_current_context().meta.get(VERBOSE))


def code_of(kind: type[Exception] | None) -> ExitCode:
    """The exit code for an error of this kind."""
    if kind is not None and issubclass(kind, HandlersStuck):
        return ExitCode.STUCK
    if kind is None or not issubclass(kind, BadInput | StoreUnavailable):
        return ExitCode.FAILED
    if issubclass(kind, BadInput):
        return ExitCode.BAD_INPUT
    return ExitCode.WRONG_SCHEMA if issubclass(kind, WrongSchema) else ExitCode.STORE_UNAVAILABLE
