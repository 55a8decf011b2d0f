"""How a command fails: one line on stderr, and an exit code for the kind of error. Warnings are lines there too."""

from __future__ import annotations

import errno
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Final

import click

from astyqueue.errors import AstyqueueError, BadInput, HandlersStuck, StoreUnavailable, WrongSchema, saying_how_far
from astyqueue.printable import printable_lines, printable_message

#: Key in click's `meta` of `-v`.
VERBOSE: Final = "astyqueue.verbose"


class ExitCode(IntEnum):
    """Exit codes of commands."""

    DONE = 0
    FAILED = 1
    BAD_INPUT = 2
    STORE_UNAVAILABLE = 3
    STUCK = 4
    WRONG_SCHEMA = 5
    STALLED = 6
    CHILDREN_DIED = 7
    WARNING = 10
    PROBLEM = 20
    AGAIN = 75
    HUNG_UP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class Failure(click.ClickException):
    """A command failed; click prints the message in one line and exits with the code."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        """Unprintable characters of the message are escaped."""
        super().__init__(printable_message(message))
        self.exit_code = int(code)  # type: ignore[misc]  # click's own subclasses do the same


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn astyqueue's errors, OSError and Ctrl-C into an exit with one line; with `-v`, print the traceback first."""
    try:
        yield
    except click.ClickException as error:  # some of click's messages have several lines, such as a list of choices
        error.message = "\n".join(map(printable_message, error.message.split("\n")))  # type: ignore[misc]  # final for those who subclass
        raise
    except AstyqueueError as error:
        trace_if_verbose()
        raise Failure(str(error) or type(error).__name__, code_of(type(error))) from error
    except OSError as error:
        if error.errno == errno.EPIPE:  # the reader closed the pipe: click exits without a message
            raise
        trace_if_verbose()
        raise Failure(str(error)) from error
    except KeyboardInterrupt:
        click.echo("Interrupted.", err=True)
        raise click.exceptions.Exit(ExitCode.INTERRUPTED) from None


@contextmanager
def errors_with_progress(done: Callable[[], str]) -> Iterator[None]:
    """Have an error or Ctrl-C in the block say what was `done` before it; empty: nothing was."""
    try:
        with saying_how_far(done):
            yield
    except KeyboardInterrupt:
        if before := done():
            click.echo(printable_message(before), err=True)
        raise


def trace_if_verbose() -> None:
    """Print the traceback of the current error if `-v` was given."""
    if is_verbose():
        click.echo(printable_lines(traceback.format_exc()), err=True, nl=False)


def is_verbose() -> bool:
    """Whether `-v` was given."""
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


class _Warnings(logging.Handler):
    """Prints each record in one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message, with unprintable characters escaped."""
        click.echo(printable_message(f"astyqueue: {record.getMessage()}"), err=True)


def warn() -> None:
    """Print warnings of a command on stderr, unless logging is configured already."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Warnings()])
