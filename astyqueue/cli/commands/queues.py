"""`astyqueue queues`: list queues, show and change their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from astyqueue.cli.context import Session, on_store
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.params import QueueSetting
from astyqueue.errors import BadInput

if TYPE_CHECKING:
    from astyqueue.cli.output import Record
    from astyqueue.model.settings import Settings


@click.group(short_help="List queues, show and change their settings.")
def queues() -> None:
    """List queues, show their layout and behaviour, and change their behaviour."""


@queues.command(name="list", short_help="List the queues of the store.")
@on_store
def list_queues(session: Session) -> None:
    """List the queues of the store.

    If the settings of one cannot be read, the others are listed, and the exit code is 1.
    """
    found, unread = session.of_each_queue(lambda queue: queue.settings)
    session.output.listing(found, shown=_as_text, as_json=_as_text, none="this store has no queue yet", titled=str)
    if unread:
        raise click.exceptions.Exit(ExitCode.FAILED)


@queues.command(short_help="Show the settings of a queue.")
@click.argument("name")
@on_store
def show(session: Session, *, name: str) -> None:
    """Show the settings of the queue NAME."""
    _print(session, session.queue(name).settings)


@queues.command(
    name="set",
    short_help="Change the settings of a queue.",
    help="""Change the settings of the queue NAME. All processes apply them within ten seconds.

    \b
    lease=5m                how long a consumer has a message before it is handed out again ...
    lease_cap=1h            ... and the longest lease that a message can request
    max_attempts=7          attempts before a message becomes a dead letter ...
    max_attempts_cap=20     ... and the most that a message can request
    backoff=2s              pause after the first failed attempt, doubled after each further one ...
    backoff_cap=10m         ... up to this
    paused=yes              hand out nothing; sending still works
    body_bytes=65536        longest body in bytes, as JSON
    history=all             which events are kept: none, failures or all ...
    history_kept=30d        ... and for how long
    deduplication=7d        how long after it is settled a row of Spark or a message of a spool is not sent again
    max_active_processes=1  how many processes claim at the same time; the others stand by (0: any number) ...
    permit_lease=15s        ... and take over within this time and a second after one of them has died
    expires=1d              how long after it is due a message expires that was sent without `expires` (0: never) ...
    expires_cap=7d          ... and the longest time that a message can request; expired ones are then removed in time
    last_value=yes          a message with a key is sent in place of the one that has the key
    max_messages=10000      how many messages the queue may have, about (0: any number) ...
    overflow=drop_oldest    ... and what a send does then: refuse, block, drop_oldest or forward ...
    overflow_wait=30s       ... how long it blocks ...
    overflow_to=later       ... and the queue to forward to
    sort_header=region      deliver by the value of this header ...
    sort_classes=eu,us      ... in this order of its values, or of bounds of numbers such as <10,<100 ...
    sort_order=ascending    ... or descending ...
    sort_missing=last       ... and others first or last

    An empty value clears overflow_to, sort_header or sort_classes: sort_header= sort_classes=

    The layout (shards, priorities) is fixed when a queue is created.
    """,
    epilog="""\b
    astyqueue queues set emails lease=5m max_attempts=7
    astyqueue queues set emails paused=yes
    astyqueue queues set emails max_active_processes=1
    astyqueue queues set prices last_value=yes max_messages=5000 overflow=drop_oldest
    """,
)
@click.argument("name")
@click.argument("settings", type=QueueSetting(), nargs=-1, required=True, metavar="SETTING=VALUE...")
@on_store
def set_settings(session: Session, *, name: str, settings: tuple[tuple[str, object], ...]) -> None:
    """Store the changes and print all settings."""
    names = [setting for setting, _ in settings]
    if twice := [setting for setting in dict.fromkeys(names) if names.count(setting) > 1]:
        message = f"{twice[0]} is given twice: give each setting once"
        raise BadInput(message)
    _print(session, session.queue(name).configure(**dict(settings)))


@queues.command(
    short_help="Show which processes claim from a queue, and which stand by.",
    help="""Show which processes have the permits of the queue NAME, and which stand by for one.

    That is so for a queue that limits how many processes claim from it at the same time (max_active_processes). No
    process has one while nothing happens in the queue. A process has the name that its log calls worker: host, process
    id and a random part.
    """,
)
@click.argument("name")
@on_store
def permits(session: Session, *, name: str) -> None:
    """Print the processes: those that claim, then those that stand by, the longest waiting first."""
    from astyqueue.clock import instant

    found = session.queue(name).permits()
    states = [*((one, "active") for one in found.active), *((one, "standby") for one in found.standby)]
    session.output.listing(
        states,
        shown=lambda one: {"process": one[0].process, "state": one[1], "since": instant(one[0].since)},
        as_json=lambda one: {"state": one[1], **one[0].as_json()},
        none="no process claims now" if found.limit else "any number of processes may claim: it has no limit",
    )


def _print(session: Session, settings: Settings) -> None:
    session.output.one(_as_text(settings), shown=lambda record: record, titled=str)


def _as_text(settings: Settings) -> Record:
    """The settings as `queues set` accepts them: the same names, values as text."""
    from astyqueue.model.settings import setting_name, setting_text

    fields = {**settings.behaviour.model_dump(), **settings.layout.model_dump()}
    return {
        "name": settings.name,
        **{setting_name(field): setting_text(field, value) for field, value in fields.items()},
    }
