"""What the commands that look into a store have in common: its URL, `--json`, `-v`, and queues that must exist."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from astyqueue.cli.failures import VERBOSE
from astyqueue.cli.files import Deliberate
from astyqueue.cli.output import Output
from astyqueue.errors import BadInput, BadSetting, NotFound

if TYPE_CHECKING:
    from astyqueue.queue.connection import Connection
    from astyqueue.queue.queue import MessageQueue

F = TypeVar("F", bound=Callable[..., object])
URL: Final = "ASTYQUEUE_URL"
#: Where the file that options were read from is remembered: shared by a command and the groups it is in.
FILE: Final = "astyqueue.file"


class Session:
    """An open store, and where to print."""

    def __init__(self, connection: Connection, output: Output) -> None:
        """Commands are handed one."""
        self.connection = connection
        self.output = output

    def queue(self, name: str) -> MessageQueue:
        """A queue that exists; another raises NotFound with those that do."""
        self.check(name)
        return self.connection.queue(name)

    def check(self, name: str, hint: str = "") -> None:
        """Raise NotFound unless there is a queue of this name."""
        there = self.connection.queues()
        if name not in there:
            known = f"there are: {', '.join(there)}" if there else "it has none yet"
            message = f"this store has no queue {name!r}{hint}; {known}"
            raise NotFound(message)


def on_store(function: Callable[..., None]) -> Callable[..., None]:
    """A command on an open store: its first argument is a `Session`. Only one that is asked to `--create` makes a store."""

    @functools.wraps(function)
    def command(*, url: str | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - whatever options the command declares
        from astyqueue.clock import SystemClock, instant
        from astyqueue.queue.connection import connect

        clock = SystemClock()
        with connect(named(url), clock=clock, create=bool(options.get("create"))) as connection:
            function(Session(connection, Output(instant(clock.now()), as_json=as_json)), **options)

    return verbose_option(json_option(url_option(command)))


def named(url: str | None) -> str:
    """The store's URL; BadSetting if nobody said it."""
    if not url:
        message = f"no store was named: add --url sqlite:///work.db, or set {URL}"
        raise BadSetting(message)
    return url


def url_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--url`."""
    told = "Where the store is: sqlite:///work.db (in this directory), sqlite:////var/work.db, cassandra://host1,host2/keyspace."
    return click.option("--url", envvar=URL, metavar="URL", help=told, show_envvar=True)(function)


def json_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, one object on each line.")(function)


def verbose_option(function: F) -> F:
    """`-v`: tracebacks."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click calls it so
        context.meta[VERBOSE] = value or context.meta.get(VERBOSE, False)

    told = "Show the traceback of an error."
    return click.option("-v", "--verbose", is_flag=True, expose_value=False, is_eager=True, callback=remember, help=told)(function)


def yes_option(function: Callable[..., None]) -> Callable[..., None]:
    """`--yes`: what destroys must be meant."""
    return click.option("--yes", cls=Deliberate, is_flag=True, help="Do it; without this nothing is changed.")(function)


def must_be_meant(yes: bool, what: str) -> None:  # noqa: FBT001 - the value of a flag
    """Refuse what destroys unless somebody said `--yes`."""
    if not yes:
        message = f"{what} Nothing was changed: add --yes to do it."
        raise BadInput(message)
