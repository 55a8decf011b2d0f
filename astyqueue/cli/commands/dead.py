"""`astyqueue dead`: list, show, redrive and purge dead letters."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from astyqueue.cli.config import Deliberate
from astyqueue.cli.context import HowMany, Session, interruption, on_store, refuse_without_yes, yes_option
from astyqueue.cli.errors import ExitCode, errors_with_progress
from astyqueue.cli.output import body_of, progress_bar
from astyqueue.cli.params import Moment
from astyqueue.text import counted

if TYPE_CHECKING:
    from astyqueue.cli.output import Record
    from astyqueue.model.views import DeadLetter, RedriveReport
    from astyqueue.queue.admin.dead_letters import Where
    from astyqueue.queue.queue import MessageQueue

_KINDS = ("failed", "rejected", "attempts", "expired", "undecodable")
_TAKEN: Final = "whose unique key another message has"
#: Which letters a redrive leaves: without `--force`, and with it.
_LEFT: Final = (f"that would die again at once (--force puts them back) or {_TAKEN}", _TAKEN)


@click.group(short_help="List dead letters, put them back, or delete them.")
def dead() -> None:
    """Dead letters: messages that failed too often, were rejected, expired, or cannot be read.

    They are kept until you redrive or delete them.
    """


def _filtered(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select dead letters, and pass them as `where`."""

    @functools.wraps(function)
    def command(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - the command's own
        names = ("kind", "reason", "key", "task", "since", "until")
        where = {name: options.pop(name) for name in names}
        function(*arguments, where=where, **options)

    for option in (
        click.option(
            "--until",
            type=Moment(ages=True),
            metavar="MOMENT",
            help="Only letters that died before MOMENT (as for --since).",
        ),
        click.option(
            "--since",
            type=Moment(ages=True),
            metavar="MOMENT",
            help="Only letters that died at MOMENT or later: 2026-11-21T09:00:00Z, or an age: 2h (two hours ago).",
        ),
        click.option("--key", help="Only letters sent with this key."),
        click.option(
            "--kind",
            type=click.Choice(_KINDS),
            help="Only letters that died this way; attempts: its consumer crashed or went silent each time.",
        ),
        click.option("--reason", metavar="TEXT", help="Only letters whose reason contains TEXT (case-insensitive)."),
        click.option("--task", metavar="NAME", help="Only calls of this task."),
    ):
        command = option(command)
    return command


@dead.command(name="list", short_help="List dead letters.")
@click.argument("queue")
@click.option("-n", "--limit", type=HowMany(), metavar="N", default=20, show_default=True, help="Show at most N.")
@_filtered
@on_store
def list_letters(session: Session, *, queue: str, limit: int, where: Where) -> None:
    """List the dead letters of QUEUE, earliest due time first."""
    letters = session.queue(queue).dead_letters(limit + 1, **where)
    none = f"queue {queue} has no such dead letters" if _selects(where) else f"queue {queue} has no dead letters"
    session.output.listing(letters, shown=_row, none=none, limit=limit)


@dead.command(short_help="Show one dead letter.")
@click.argument("id", metavar="ID")
@on_store
def show(session: Session, **ids: str) -> None:
    """Show the dead letter ID: its body and its reason."""
    from astyqueue.model.envelope import MessageId

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
@click.option("--rate", type=float, metavar="N", help="Put back at most N letters a second. [default: no limit]")
@click.option("--dry-run", is_flag=True, help="Only count the letters.")
@click.option(
    "--force",
    cls=Deliberate,
    is_flag=True,
    help="Include expired and unreadable letters, which would die again at once.",
)
@_filtered
@on_store
def redrive(
    session: Session, *, queue: str, ids: tuple[str, ...], rate: float | None, dry_run: bool, force: bool, where: Where
) -> None:
    """Put dead letters of QUEUE back into the queue, with all attempts available again.

    Without IDs: all letters that match the options. Ctrl-C stops between two commits and prints how many were put back;
    those stay in the queue.
    """
    opened = session.queue(queue)
    far = _HowFar(queue)
    with (
        interruption() as interrupted,
        _progress(opened, where, shown=not dry_run and not ids) as bar,
        errors_with_progress(far.sentence),
    ):
        report = opened.redrive(
            ids or None,
            rate=rate,
            dry_run=dry_run,
            force=force,
            progress=far.shown_by(bar),
            cancelled=interrupted,
            **where,
        )
    done = "would put back" if dry_run else "put back"
    stopped = ", then was interrupted" if interrupted() else ""
    left = f", left {report.left} {_LEFT[force]}" if report.left else ""
    facts = {"queue": queue, **report.as_json(), "interrupted": interrupted()}
    session.output.done(f"{done} {counted(report.redriven, 'dead letter')} of queue {queue}{left}{stopped}", facts)
    if interrupted():
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


@dead.command(short_help="Delete dead letters for good.")
@click.argument("queue")
@yes_option
@_filtered
@on_store
def purge(session: Session, *, queue: str, yes: bool, where: Where) -> None:
    """Delete the dead letters of QUEUE for good: those that match the options, or all."""
    deletion = session.deletion(queue)
    if not yes:
        count = _number(deletion.queue, where)
        if not count:
            session.output.done(f"queue {queue} has no such dead letters", {"queue": queue, "deleted": 0})
            return
        refuse_without_yes(f"This would delete {counted(count, 'dead letter')} of queue {queue} for good.")
    purged = deletion.run(lambda opened: opened.purge(**where), "dead letter")
    session.output.done(
        f"deleted {counted(purged, 'dead letter')} of queue {queue}", {"queue": queue, "deleted": purged}
    )


class _HowFar:
    """How many letters a redrive has put back."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._back = 0

    def shown_by(self, bar: Callable[[RedriveReport], None] | None) -> Callable[[RedriveReport], None]:
        """What the redrive calls after each commit: it remembers the number, and moves the bar if there is one."""

        def progress(report: RedriveReport) -> None:
            self._back = 0 if report.dry_run else report.redriven
            if bar is not None:
                bar(report)

        return progress

    def sentence(self) -> str:
        letters = counted(self._back, "dead letter")
        return f"{letters} of queue {self._queue} had been put back before" if self._back else ""


def _number(queue: MessageQueue, where: Where) -> int:
    """How many letters match, also those that no redrive would put back."""
    found = queue.redrive(dry_run=True, force=True, **where)
    return found.redriven + found.left


def _selects(where: Where) -> bool:
    return any(value is not None for value in where.values())


@contextmanager
def _progress(queue: MessageQueue, where: Where, *, shown: bool) -> Iterator[Callable[[RedriveReport], None] | None]:
    """A progress bar, if stderr is a terminal. It needs the number of letters, so they are counted first."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    length = _number(queue, where)
    with progress_bar() as update:
        yield lambda report: update("putting back", report.redriven + report.left, length)


def _row(letter: DeadLetter) -> Record:
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
