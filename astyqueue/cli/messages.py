"""`astyqueue peek`, `get` and `counts`: looking without taking anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from astyqueue.cli.output import body_of
from astyqueue.cli.session import Session, on_store

if TYPE_CHECKING:
    from astyqueue.cli.output import Record
    from astyqueue.model.views import Counts, Found


@click.command(short_help="Look at the first messages of a queue.")
@click.argument("queue")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", default=10, show_default=True, help="Show so many at most.")
@click.option(
    "--include",
    type=click.Choice(["due", "hidden", "future", "all"]),
    default="due",
    show_default=True,
    help="due: anybody may take it now; hidden: being worked on, backing off, snoozed or parked; future: delayed.",
)
@on_store
def peek(session: Session, *, queue: str, limit: int, include: str) -> None:
    """Look at the first messages of QUEUE in the order they would be handed out; nothing is taken."""
    found = session.queue(queue).peek(limit + 1, include=include)
    none = f"queue {queue} has no messages" + (f" that are {include}" if include != "all" else "")
    session.output.listing(found, shown=_in_a_row, none=none, limit=limit)


@click.command(short_help="Find the messages of a key.")
@click.argument("queue")
@click.argument("key")
@on_store
def find(session: Session, *, queue: str, key: str) -> None:
    """Find the messages of QUEUE that have this KEY, in the order in which they are due; nothing is taken."""
    session.output.listing(session.queue(queue).find(key), shown=_in_a_row, none=f"queue {queue} has no message with this key")


@click.command(short_help="Show one message.")
@click.argument("id", metavar="ID")
@on_store
def get(session: Session, **ids: str) -> None:
    """Show the message ID, where it stands, and its body; nothing is taken."""
    from astyqueue.model.message import MessageId

    id_ = MessageId.parse(ids["id"])
    session.output.one(session.queue(id_.queue).get(id_), shown=_in_full)


@click.command(short_help="Count the messages of queues.")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@on_store
def counts(session: Session, *, queues: tuple[str, ...]) -> None:
    """Count the messages of each QUEUE, or of all, by where they stand.

    waiting: anybody may take it now; in flight: being worked on; backing off: failed, to be tried again; snoozed: put off,
    at no cost; parked: no worker that knows its task came by.
    """
    names = queues or tuple(session.connection.queues())
    found = [(name, session.queue(name).counts()) for name in names]
    session.output.listing(
        found, shown=_counted, as_json=lambda one: {"queue": one[0], **one[1].as_json()}, none="this store has no queue yet"
    )


def _in_a_row(found: Found) -> Record:
    return {
        "id": str(found.id),
        "standing": _words(found),
        "due": found.due,
        "attempts": found.spent,
        "key": found.key,
        "task": found.headers.get("task"),
        "body": body_of(found),
    }


def _in_full(found: Found) -> Record:
    return {
        "id": str(found.id),
        "standing": _words(found),
        "until": found.until,
        "attempts": found.spent,
        "holder": found.holder or None,
        "reason": found.reason or None,
        "key": found.key,
        "priority": found.priority,
        "headers": dict(found.headers) or None,
        "sent": found.sent,
        "due": found.due,
        "expires": found.expires,
        "body": body_of(found),
    }


def _words(found: Found) -> str:
    return found.standing.value.replace("_", " ")


def _counted(counted: tuple[str, Counts]) -> Record:
    queue, counts = counted
    return {"queue": queue, **{name: count for name, count in counts.as_json().items() if name != "rows"}}
