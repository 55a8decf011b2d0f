"""Show messages (`peek`, `browse`, `get`, `find`, `counts`, `explain`) or delete them (`delete`, `clear`, `drop`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from astyqueue.cli.context import HowMany, Session, on_store, refuse_without_yes, yes_option
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.output import body_of
from astyqueue.cli.params import Moment
from astyqueue.errors import NotFound
from astyqueue.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from astyqueue.cli.context import Deletion
    from astyqueue.cli.output import Record
    from astyqueue.model.explanation import Explanation
    from astyqueue.model.views import Counts, Found, Standing


@click.command(short_help="Show the first messages of a queue.")
@click.argument("queue")
@click.option("-n", "--limit", type=HowMany(), metavar="N", default=10, show_default=True, help="Show at most N.")
@click.option(
    "--include",
    type=click.Choice(["due", "hidden", "future", "all"]),
    default="due",
    show_default=True,
    help="due: can be claimed now; hidden: leased, backing off, snoozed, parked or blocked; future: delayed.",
)
@on_store
def peek(session: Session, *, queue: str, limit: int, include: str) -> None:
    """Show the first messages of QUEUE in the order they would be handed out. Claims nothing."""
    found = session.queue(queue).peek(limit + 1, include=include)
    none = f"queue {queue} has no messages" + (f" that are {include}" if include != "all" else "")
    session.output.listing(found, shown=_row, none=none, limit=limit)


@click.command(
    short_help="Show all messages of a queue, and those to come.",
    epilog="""\b
    astyqueue browse emails --since 10m --follow
    astyqueue browse emails --json | jq .body
    """,
)
@click.argument("queue")
@click.option(
    "--since",
    type=Moment(ages=True),
    metavar="MOMENT",
    help="Begin at MOMENT: an age, such as 2h, or an ISO 8601 time. [default: the first]",
)
@click.option("--after", metavar="ID", help="Begin behind the message ID.")
@click.option("-f", "--follow", is_flag=True, help="Show each message when it is due, and wait for more until Ctrl-C.")
@on_store
def browse(session: Session, *, queue: str, since: datetime | None, after: str | None, follow: bool) -> None:
    """Show all messages of QUEUE but dead letters, each in a line, in the order they were due. Claims nothing.

    A line has the moment at which the message was due first, its state, its id, its key and task if it has them, and
    its body as JSON, or in place of the body why it cannot be read.
    """
    empty = True
    for found in session.queue(queue).browse(since=since, after=after, follow=follow):
        session.output.lines([_in_a_line(found)], found.as_json())
        empty = False
    if empty and not session.output.as_json:
        click.echo(f"queue {queue} has no messages{' there' if since or after else ''}")


def _in_a_line(found: Found) -> str:
    from astyqueue.printable import facts_line
    from astyqueue.text import iso

    facts = {"key": found.key, "task": found.headers.get("task"), "problem": found.problem or None}
    parts = {name: text for name, text in facts.items() if text is not None}
    line = facts_line(f"{iso(found.due) if found.due else '-'} {_words(found.standing)} {found.id}", parts)
    return line if found.problem else f"{line} body={body_of(found)}"


@click.command(short_help="Find the messages of a key.")
@click.argument("queue")
@click.argument("key")
@on_store
def find(session: Session, *, queue: str, key: str) -> None:
    """Show the messages of QUEUE with this KEY, earliest due first. Claims nothing.

    Without such a message it says so, with --json it prints nothing, and the exit code is 0.
    """
    none = f"queue {queue} has no message with this key"
    session.output.listing(session.queue(queue).find(key), shown=_row, none=none)


@click.command(short_help="Show one message.")
@click.argument("id", metavar="ID")
@on_store
def get(session: Session, **ids: str) -> None:
    """Show the message ID: its state, its body and its properties. Claims nothing.

    The exit code is 1 if there is no such message.
    """
    from astyqueue.model.envelope import MessageId

    id_ = MessageId.parse(ids["id"])
    session.output.one(session.queue(id_.queue).get(id_), shown=_in_full)


@click.command(short_help="Count the messages of queues.")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...")
@on_store
def counts(session: Session, *, queues: tuple[str, ...]) -> None:
    """Count the messages of each QUEUE, or of all queues, by state.

    waiting: can be claimed now; delayed: not due yet; in flight: leased by a worker; backing off: failed, will be
    retried; snoozed: put off without spending an attempt; parked: no worker that claimed it knows its task;
    blocked: waits for an earlier message of its group; dead: a dead letter.

    If one of all queues cannot be read, the others are counted, and the exit code is 1.
    """
    if queues:
        found, unread = [(name, session.queue(name).counts()) for name in queues], False
    else:
        found, unread = session.of_each_queue(lambda queue: (queue.name, queue.counts()), "cannot be counted")
    session.output.listing(
        found,
        shown=_counted,
        as_json=lambda one: {"queue": one[0], **one[1].as_json()},
        none="this store has no queue yet",
    )
    if unread:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _row(found: Found) -> Record:
    return {
        "id": str(found.id),
        "standing": _words(found.standing),
        "due": found.due,
        "attempts": found.spent,
        "key": found.key,
        "group": found.group,
        "task": found.headers.get("task"),
        "body": body_of(found),
    }


def _in_full(found: Found) -> Record:
    return {
        "id": str(found.id),
        "standing": _words(found.standing),
        "until": found.until,
        "attempts": found.spent,
        "holder": found.holder or None,
        "reason": found.reason or None,
        "key": found.key,
        "group": found.group,
        "priority": found.priority,
        "headers": dict(found.headers) or None,
        "sent": found.sent,
        "due": found.due,
        "expires": found.expires,
        "body": body_of(found),
    }


def _words(standing: Standing) -> str:
    return standing.value.replace("_", " ")


def _counted(one: tuple[str, Counts]) -> Record:
    queue, found = one
    return {"queue": queue, **{name: count for name, count in found.as_json().items() if name != "rows"}}


@click.command(short_help="Explain why a message has not run yet.")
@click.argument("id", metavar="ID")
@on_store
def explain(session: Session, **ids: str) -> None:
    """Explain why the message ID has not run yet, and show the store's record of it. Claims nothing.

    The message may be delayed, waiting for a worker, blocked by an earlier message of its group, backing off, leased by
    a worker, a dead letter, or gone.
    """
    from astyqueue.model.envelope import MessageId

    id_ = MessageId.parse(ids["id"])
    found = session.queue(id_.queue).explain(id_)
    session.output.lines(_lines(found), found.as_json())


def _lines(found: Explanation) -> Iterator[str]:
    from astyqueue.text import instant_text

    yield f"{found.id} is {_words(found.standing) if found.standing else 'gone'}: {found.why}."
    if found.life:
        yield ""
    moments = ["" if event.at is None else instant_text(event.at, found.now) for event in found.life]
    for moment, event in zip(moments, found.life, strict=True):
        yield f"{moment:<{max(map(len, moments))}}  {event.what}"


@click.command(short_help="Delete messages by their ids.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@on_store
def delete(session: Session, *, ids: tuple[str, ...]) -> None:
    """Delete messages in any state: waiting, delayed, being worked on, or dead letters.

    A handler that is working on one can finish, and then learns that the message was deleted.
    """
    from astyqueue.model.envelope import MessageId

    wanted = dict.fromkeys(MessageId.parse(text) for text in ids)
    queues = {name: session.queue(name) for name in dict.fromkeys(id_.queue for id_ in wanted)}
    missing: list[str] = []
    for id_ in wanted:
        if queues[id_.queue].delete(id_):
            session.output.done(f"deleted {id_}", {"id": str(id_), "deleted": True})
        else:
            missing.append(str(id_))
    if missing:
        message = f"no such messages, or already gone: {', '.join(missing)}"
        raise NotFound(message)


@click.command(short_help="Delete all messages of a queue.")
@click.argument("queue")
@yes_option
@on_store
def clear(session: Session, *, queue: str, yes: bool) -> None:
    """Delete all messages of QUEUE, dead letters included; the queue and its settings stay."""
    deletion = session.deletion(queue)
    if not yes:
        refuse_without_yes(f"This would delete all of queue {queue}, {_messages(deletion)}, for good.")
    cleared = deletion.run(lambda opened: opened.clear(), "message")
    session.output.done(f"deleted {counted(cleared, 'message')} of queue {queue}", {"queue": queue, "deleted": cleared})


@click.command(short_help="Delete a queue and its messages.")
@click.argument("queue")
@yes_option
@on_store
def drop(session: Session, *, queue: str, yes: bool) -> None:
    """Delete QUEUE: its messages, dead letters and settings. Its history is kept for as long as history_kept says.

    Stop its producers first: they notice within ten seconds, and no consumer gets what they send until then.
    """
    deletion = session.deletion(queue)
    if not yes:
        refuse_without_yes(f"This would delete queue {queue} and {_messages(deletion)} for good.")
    deletion.run(lambda opened: opened.drop(), "message")
    session.output.done(f"dropped queue {queue}", {"queue": queue, "dropped": True})


def _messages(deletion: Deletion) -> str:
    return counted(deletion.queue.counts().total, "message")
