"""What the commands share: `--url`, `--json`, `-v`, `--yes`, queues that must exist, and Ctrl-C."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from astyqueue.cli.config import Deliberate
from astyqueue.cli.errors import VERBOSE, errors_with_progress
from astyqueue.cli.output import Output
from astyqueue.errors import BadInput, BadSetting, NotFound, Undecodable
from astyqueue.printable import printable_message
from astyqueue.stores.url import URL_VARIABLE
from astyqueue.text import counted

if TYPE_CHECKING:
    from astyqueue.model.envelope import MessageId
    from astyqueue.queue.connection import Connection
    from astyqueue.queue.queue import MessageQueue

F = TypeVar("F", bound=Callable[..., object])
T = TypeVar("T")
#: Key in click's `meta` of the file that options were read from.
FILE: Final = "astyqueue.file"


class HowMany(click.IntRange):
    """A number of things, from 1. Numbers greater than the longest container are cut to its length."""

    def __init__(self) -> None:
        """Set no upper limit: help shows none."""
        super().__init__(1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - click's signature
        """The number, at most `sys.maxsize - 1`."""
        return min(int(super().convert(value, param, ctx)), sys.maxsize - 1)


class Deletion:
    """Counts what a command deletes, commit by commit, so that an error half-way says how far it came."""

    def __init__(self, connection: Connection, queue: str) -> None:
        """Delete from this queue, which exists."""
        from astyqueue.queue.hooks import Hook

        deletion = self

        class Counting(Hook):
            def after_delete(self, message: MessageId, why: str) -> None:  # noqa: ARG002 - each counts
                deletion.count += 1

        self.count = 0
        counting = type(connection)(connection.store, connection.clock, hooks=(Counting(),))
        self.queue = counting.existing_queue(queue)

    def run(self, delete: Callable[[MessageQueue], T], what: str) -> T:
        """What `delete` returns; `what` it deletes, in the singular."""
        with errors_with_progress(lambda: self._so_far(what)):
            return delete(self.queue)

    def _so_far(self, what: str) -> str:
        return f"{counted(self.count, what)} of queue {self.queue.name} had been deleted before" if self.count else ""


class Session:
    """An open store, and the output to print to."""

    def __init__(self, connection: Connection, output: Output) -> None:
        """Commands get one from `on_store`."""
        self.connection = connection
        self.output = output

    def queue(self, name: str) -> MessageQueue:
        """An existing queue; if there is none of this name, NotFound lists those there are."""
        self.check(name)
        return self.connection.existing_queue(name)

    def of_each_queue(self, read: Callable[[MessageQueue], T], problem: str = "") -> tuple[list[T], bool]:
        """What `read` returns for each queue of the store, and whether one cannot be read.

        A warning on stderr names that one, with the `problem`.
        """
        found: list[T] = []
        unread = False
        for name in self.connection.queues():
            try:
                found.append(read(self.connection.existing_queue(name)))
            except NotFound:  # dropped since the queues were listed
                continue
            except Undecodable as error:
                which = f"queue {name} {problem}: " if problem else ""
                click.echo(printable_message(f"astyqueue: {which}{error}"), err=True)
                unread = True
        return found, unread

    def deletion(self, name: str) -> Deletion:
        """A deletion from an existing queue; NotFound as `queue`."""
        self.check(name)
        return Deletion(self.connection, name)

    def check(self, name: str, hint: str = "") -> None:
        """Raise NotFound unless there is a queue of this name."""
        check_queues(self.connection, name, hint=hint)


def check_queues(connection: Connection, *names: str, hint: str = "") -> None:
    """Raise NotFound, with those there are, for the first of these queues that the store does not have."""
    there = connection.queues() if names else []
    if (name := next((name for name in names if name not in there), None)) is not None:
        known = f"there are: {', '.join(there)}" if there else "it has none yet"
        message = f"this store has no queue {name!r}{hint}; {known}"
        raise NotFound(message)


def on_store(function: Callable[..., None]) -> Callable[..., None]:
    """A command on an open store: its first argument is a `Session`. Creates a SQLite file only with `--create`."""

    @functools.wraps(function)
    def command(*, url: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - whatever options the command declares
        from astyqueue.clock import SystemClock, instant
        from astyqueue.queue.connection import connect

        clock = SystemClock()
        with connect(named(url), clock=clock, create=bool(options.get("create"))) as connection:
            function(Session(connection, Output(instant(clock.now()), as_json=as_json)), **options)

    return verbose_option(json_option(url_option(command)))


def named(url: str | None) -> str:
    """The store's URL; BadSetting if none was given."""
    if not url:
        message = f"no store given: add --url sqlite:///work.db, or set {URL_VARIABLE}"
        raise BadSetting(message)
    return url


def url_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--url`."""
    text = "The store: sqlite:///work.db (in this directory), sqlite:////var/work.db, cassandra://host1,host2/keyspace."
    return click.option("--url", envvar=URL_VARIABLE, metavar="URL", help=text, show_envvar=True)(function)


def json_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object on each line.")(function)


def verbose_option(function: F) -> F:
    """`-v`: tracebacks."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click calls it so
        context.meta[VERBOSE] = value or context.meta.get(VERBOSE, False)

    option = click.option(
        "-v",
        "--verbose",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=remember,
        help="Show the traceback of an error.",
    )
    return option(function)


def yes_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--yes`: confirms a destructive command."""
    return click.option("--yes", cls=Deliberate, is_flag=True, help="Confirm; without it, nothing changes.")(function)


def refuse_without_yes(what: str) -> NoReturn:
    """Raise the BadInput of a destructive command without `--yes`; the sentence `what` says what it would do."""
    message = f"{what} Nothing was changed: add --yes to confirm."
    raise BadInput(message)


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """A function that returns whether Ctrl-C was pressed inside the block, where it raises no KeyboardInterrupt.

    It is for commands that stop between two commits.
    """
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
