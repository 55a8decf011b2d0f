"""`astyqueue dead`: messages that are kept but handed to nobody, and what to do with them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from astyqueue.cli.failures import ExitCode
from astyqueue.cli.files import Deliberate
from astyqueue.cli.interrupting import interruption
from astyqueue.cli.moments import past
from astyqueue.cli.output import body_of
from astyqueue.cli.session import Session, must_be_meant, on_store, yes_option

if TYPE_CHECKING:
    from astyqueue.cli.output import Record
    from astyqueue.model.views import DeadLetter, RedriveReport
    from astyqueue.queue.operating import Where
    from astyqueue.queue.queue import MessageQueue

_KINDS = ("failed", "rejected", "attempts", "expired", "undecodable")


@click.group(short_help="Look at dead letters, put them back, or delete them.")
def dead() -> None:
    """Dead letters: messages that failed too often, were rejected, expired, or cannot be read. They are kept until you decide."""


def _filtered(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say which dead letters are meant; they come as `where`."""

    @functools.wraps(function)
    def command(*arguments: Any, since: str | None, until: str | None, **options: Any) -> None:  # noqa: ANN401 - the command's own
        names = ("kind", "reason", "key", "task")
        where = {name: options.pop(name) for name in names} | {"since": past(since), "until": past(until)}
        function(*arguments, where=where, **options)

    for option in (
        click.option("--until", metavar="MOMENT", help="Died before this moment, or longer ago than this."),
        click.option("--since", metavar="MOMENT", help="Died at this moment or later: 2026-11-21T09:00:00Z, or 2h for two hours ago."),
        click.option("--key", help="Sent with this key."),
        click.option("--kind", type=click.Choice(_KINDS), help="How it died; attempts: its taker died each time."),
        click.option("--reason", metavar="TEXT", help="With this in the reason, capitals or not."),
        click.option("--task", metavar="NAME", help="Calls of this task."),
    ):
        command = option(command)
    return command


@dead.command(name="list", short_help="List dead letters.")
@click.argument("queue")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", default=20, show_default=True, help="Show so many at most.")
@_filtered
@on_store
def list_letters(session: Session, *, queue: str, limit: int, where: Where) -> None:
    """List the dead letters of QUEUE, those that were due first before others."""
    letters = session.queue(queue).dead_letters(limit + 1, **where)
    none = f"queue {queue} has no such dead letters" if _asks(where) else f"queue {queue} has no dead letters"
    session.output.listing(letters, shown=_in_a_row, none=none, limit=limit)


@dead.command(short_help="Show one dead letter.")
@click.argument("id", metavar="ID")
@on_store
def show(session: Session, **ids: str) -> None:
    """Show the dead letter ID: its body, and why it died."""
    from astyqueue.model.message import MessageId

    id_ = MessageId.parse(ids["id"])
    session.output.one(session.queue(id_.queue).dead_letter(id_), shown=_in_full)


@dead.command(
    short_help="Put dead letters back into their queue.",
    epilog="""\b
    astyqueue dead redrive emails --task shop.mail.welcome --since 2h --dry-run
    astyqueue dead redrive emails --rate 100
    """,
)
@click.argument("queue")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--rate", type=float, metavar="N", help="Put back at most N a second.")
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("--force", cls=Deliberate, is_flag=True, help="Also what is expired or cannot be read, which would die again at once.")
@_filtered
@on_store
def redrive(session: Session, *, queue: str, ids: tuple[str, ...], rate: float | None, dry_run: bool, force: bool, where: Where) -> None:
    """Put dead letters of QUEUE back, with all their attempts: those named by ID, or those that fit, or all.

    Ctrl-C stops between two commits and says how far it came; what was put back stays so.
    """
    opened = session.queue(queue)
    with interruption() as interrupted, _progress(opened, where, shown=not dry_run) as progress:
        report = opened.redrive(*ids, rate=rate, dry_run=dry_run, force=force, progress=progress, cancelled=interrupted, **where)
    done = "would put back" if dry_run else "put back"
    stopped = ", then was interrupted" if interrupted() else ""
    left = f", left {report.left} that would die again at once (--force puts them back)" if report.left else ""
    facts = {"queue": queue, **report.as_json(), "interrupted": interrupted()}
    session.output.done(f"{done} {_letters(report.redriven)} of queue {queue}{left}{stopped}", facts)
    if interrupted():
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


@dead.command(short_help="Delete dead letters for good.")
@click.argument("queue")
@yes_option
@_filtered
@on_store
def purge(session: Session, *, queue: str, yes: bool, where: Where) -> None:
    """Delete the dead letters of QUEUE for good; those that fit, or all."""
    opened = session.queue(queue)
    if not yes:
        count = opened.redrive(dry_run=True, force=True, **where).redriven
        if not count:
            session.output.done(f"queue {queue} has no such dead letters", {"queue": queue, "deleted": 0})
            return
        must_be_meant(yes, f"This would delete {_letters(count)} of queue {queue} for good.")
    purged = opened.purge(**where)
    session.output.done(f"deleted {_letters(purged)} of queue {queue}", {"queue": queue, "deleted": purged})


def _letters(count: int) -> str:
    return f"{count} dead letter{'' if count == 1 else 's'}"


def _asks(where: Where) -> bool:
    return any(value is not None for value in where.values())


@contextmanager
def _progress(queue: MessageQueue, where: Where, *, shown: bool) -> Iterator[Callable[[RedriveReport], None] | None]:
    """A bar on a terminal's stderr; they are counted first, so that it knows its end."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    length = queue.redrive(dry_run=True, force=True, **where).redriven
    with click.progressbar(length=length, label="putting back", file=sys.stderr) as bar:
        yield lambda report: bar.update(report.redriven + report.left - bar.pos)


def _in_a_row(letter: DeadLetter) -> Record:
    return {
        "id": str(letter.id),
        "died": letter.at,
        "kind": letter.kind,
        "attempts": letter.attempts,
        "task": letter.headers.get("task"),
        "reason": letter.reason,
    }


def _in_full(letter: DeadLetter) -> Record:
    return {
        "id": str(letter.id),
        "died": letter.at,
        "kind": letter.kind,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "key": letter.key,
        "priority": letter.priority,
        "headers": dict(letter.headers) or None,
        "sent": letter.sent,
        "due": letter.due,
        "body": body_of(letter),
    }
