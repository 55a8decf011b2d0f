"""`astyqueue queues`: which queues there are, and how they behave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from astyqueue.cli.session import Session, on_store
from astyqueue.errors import BadInput, Undecodable
from astyqueue.printable import printable

if TYPE_CHECKING:
    from astyqueue.cli.output import Record
    from astyqueue.model.settings import Settings


@click.group(short_help="List queues, show and change their settings.")
def queues() -> None:
    """Which queues there are, how they are laid out, and how they behave."""


@queues.command(name="list", short_help="List the queues of the store.")
@on_store
def list_queues(session: Session) -> None:
    """List the queues of the store."""
    found = [settings for name in session.connection.queues() if (settings := _settings_of(session, name))]
    session.output.listing(found, shown=_spelled, as_json=_spelled, none="this store has no queue yet", titled=str)


def _settings_of(session: Session, name: str) -> Settings | None:
    """The settings of a queue; if they cannot be read, that is told beside the list of the others."""
    try:
        return session.connection.queue(name).settings
    except Undecodable as error:
        click.echo(printable(f"astyqueue: {error}"), err=True)
        return None


@queues.command(short_help="Show the settings of a queue.")
@click.argument("name")
@on_store
def show(session: Session, *, name: str) -> None:
    """Show the settings of the queue NAME."""
    _print(session, session.queue(name).settings)


@queues.command(
    name="set",
    short_help="Change how a queue behaves.",
    help="""Change how the queue NAME behaves; every process follows within ten seconds.

    \b
    lease=5m             how long a delivery is its taker's ...
    lease_cap=1h         ... the longest lease that a message may ask for
    max_attempts=7       attempts before a message is a dead letter ...
    max_attempts_cap=20  ... the most that a message may ask for
    backoff=2s           the pause after a failed attempt, doubled each time ...
    backoff_cap=10m      ... up to this
    paused=yes           hand out nothing; sending goes on
    body_bytes=65536     the longest body, as JSON
    history=all          which events are kept: none, failures or all ...
    history_kept=30d     ... and for how long
    deduplication=7d     rows that Spark sent are not sent again so long after

    The layout (shards, priorities) is fixed when a queue is created.
    """,
    epilog="""\b
    astyqueue queues set emails lease=5m max_attempts=7
    astyqueue queues set emails paused=yes
    """,
)
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@on_store
def set_settings(session: Session, *, name: str, settings: tuple[str, ...]) -> None:
    """Store the changes."""
    changes = dict(map(_setting, settings))
    _print(session, session.queue(name).configure(**changes))


def _setting(text: str) -> tuple[str, object]:
    """One `name=value`, its value turned into what the setting takes."""
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        message = f"a setting is written NAME=VALUE, as in lease=5m, and this is not: {text!r}"
        raise BadInput(message)
    name = name.replace("-", "_")
    if name == "paused":
        return name, _truth(value)
    return name, int(value) if value.isdecimal() else value


def _truth(value: str) -> bool:
    words = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
    if value.lower() not in words:
        message = f"paused is yes or no, not {value!r}"
        raise BadInput(message)
    return words[value.lower()]


def _print(session: Session, settings: Settings) -> None:
    session.output.one(_spelled(settings), shown=lambda spelled: spelled, titled=str)


def _spelled(settings: Settings) -> Record:
    """The settings under the names, and in the words, they are set by."""
    from astyqueue.model.wording import spelled, spelled_name

    fields = {**settings.behaviour.model_dump(), **settings.layout.model_dump()}
    return {"name": settings.name, **{spelled_name(field): spelled(field, value) for field, value in fields.items()}}
