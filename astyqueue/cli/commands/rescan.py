"""`astyqueue rescan`: find messages stored so late that no worker scans for them, and hand them out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from astyqueue.cli.context import Session, interruption, on_store
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.params import Moment
from astyqueue.text import counted

if TYPE_CHECKING:
    from datetime import datetime

    from astyqueue.model.views import RescanReport


@click.command(
    short_help="Find and hand out messages that workers missed.",
    epilog="""\b
    astyqueue rescan emails --since 48h
    """,
)
@click.argument("queue")
@click.option(
    "--since",
    type=Moment(ages=True),
    metavar="MOMENT",
    help="Only messages of MOMENT or later: 2026-11-21T09:00:00Z, or an age such as 48h. [default: all]",
)
@on_store
def rescan(session: Session, *, queue: str, since: datetime | None) -> None:
    """Scan the ids of all messages in QUEUE for those that workers have scanned past and that no timer lists.

    These messages become due at once. They exist when a server stores messages long after they were sent: after an
    outage, a repair, or the restore of a backup. Workers find messages by themselves, within 12 hours, that were stored
    up to one lap of the time shards late (30 hours by default on Cassandra); in home rows, and in queues of one time
    shard, up to 12 hours late. Waiting, leased, hidden and dead messages are not changed, so a rescan is safe while
    workers run, and can be repeated. After the restore of a backup, or the repair of a server that was away for longer
    than gc_grace_seconds, messages that were already done may be found and run again.

    Ctrl-C stops between two pages; messages found until then stay due.
    """
    opened = session.queue(queue)
    with interruption() as interrupted, _progress() as progress:
        report = opened.rescan(since, progress=progress, cancelled=interrupted)
    stopped = ", then was interrupted" if interrupted() else ""
    unreadable = (
        f"; could not read {', '.join(report.unreadable)} (astyqueue doctor says why)" if report.unreadable else ""
    )
    scanned = f"scanned {counted(report.looked, 'id')} in {counted(report.rows, 'row')} of queue {queue}"
    missed = counted(report.listed, "missed message")
    facts = {"queue": queue, **report.as_json(), "interrupted": interrupted()}
    session.output.done(f"{scanned}, handed out {missed}{unreadable}{stopped}", facts)
    if interrupted():
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)
    if report.unreadable:
        raise click.exceptions.Exit(ExitCode.FAILED)


@contextmanager
def _progress() -> Iterator[Callable[[RescanReport], None] | None]:
    """A progress line, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(report: RescanReport) -> None:
        click.echo(f"\r{report.rows} rows, {report.looked} ids, {report.listed} handed out", nl=False, err=True)

    try:
        yield show
    finally:
        click.echo(err=True)
