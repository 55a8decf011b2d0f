"""`astyqueue doctor`: whether everything is well, and what to do where it is not."""

from __future__ import annotations

import click

from astyqueue.cli.failures import ExitCode
from astyqueue.cli.session import json_option, named, url_option, verbose_option


@click.command(
    short_help="Examine a store and its queues.",
    help="""Examine a store and its queues, and say what is wrong, why it matters and what to do. Nothing is changed.

    \b
    Exit codes
      0   nothing worse than a note             3  the store cannot be reached at all
      10  the worst is a warning
      20  the worst is a problem
    """,
)
@url_option
@json_option
@verbose_option
@click.pass_context
def doctor(context: click.Context, /, *, url: str | None, as_json: bool) -> None:
    """Print what was found."""
    from astyqueue.cli.findings import show
    from astyqueue.clock import SystemClock
    from astyqueue.findings import Severity, worst
    from astyqueue.queue.checkup import examine

    found = examine(named(url), clock=SystemClock())
    show(found, as_json=as_json)
    context.exit({Severity.WARNING: ExitCode.WARNING, Severity.PROBLEM: ExitCode.PROBLEM}.get(worst(found), ExitCode.DONE))
