"""`astyqueue rescan`: handing out what landed so late that nobody would find it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from astyqueue.cli.failures import ExitCode
from astyqueue.cli.interrupting import interruption
from astyqueue.cli.moments import past
from astyqueue.cli.session import Session, on_store

if TYPE_CHECKING:
    from astyqueue.model.views import RescanReport


@click.command(
    short_help="Hand out messages that landed so late that nobody found them.",
    epilog="""\b
    astyqueue rescan emails --since 48h
    """,
)
@click.argument("queue")
@click.option("--since", metavar="MOMENT", help="Only messages of this moment or later: 2026-11-21T09:00:00Z, or 48h. Default: all.")
@on_store
def rescan(session: Session, *, queue: str, since: str | None) -> None:
    """Look through the ids of all messages in QUEUE for those that are listed nowhere and lie behind what workers have read.

    They are handed out at once. Messages come to lie there when a server stores them long after their time: after an outage,
    a repair, or the restore of a backup. Workers find what is at most half a day late by themselves, within half a day.
    What is waiting, in hand, hidden or dead is left as it is, so this is safe beside workers, and as often as you like.
    After a restored backup or the repair of a server that was away for longer than gc_grace_seconds, what is found may have
    been done before.

    Ctrl-C stops between two pages; what was handed out until then stays so.
    """
    opened = session.queue(queue)
    with interruption() as interrupted, _progress() as progress:
        report = opened.rescan(past(since), progress=progress, cancelled=interrupted)
    stopped = ", then was interrupted" if interrupted() else ""
    unreadable = f"; could not read {', '.join(report.unreadable)} (astyqueue doctor says why)" if report.unreadable else ""
    told = f"looked at {report.looked} ids in {report.rows} rows of queue {queue}, handed out {report.listed} that nobody had found"
    session.output.done(f"{told}{unreadable}{stopped}", {"queue": queue, **report.as_json(), "interrupted": interrupted()})
    if interrupted():
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)
    if report.unreadable:
        raise click.exceptions.Exit(ExitCode.FAILED)


@contextmanager
def _progress() -> Iterator[Callable[[RescanReport], None] | None]:
    """A line on a terminal's stderr that says how far it came."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(report: RescanReport) -> None:
        click.echo(f"\r{report.rows} rows, {report.looked} ids, {report.listed} handed out", nl=False, err=True)

    yield show
    click.echo(err=True)
