"""`astyqueue doctor`, `migrate` and `verify`: health of a store and its queues, and the schema of a store."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from astyqueue.cli.config import Deliberate
from astyqueue.cli.context import json_option, named, url_option, verbose_option
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.output import json_line
from astyqueue.findings import Finding, Severity, worst
from astyqueue.printable import printable, printable_lines, printable_message
from astyqueue.text import counted

if TYPE_CHECKING:
    from rich.table import Table


_COLOURS: Final = {
    Severity.OK: "green",
    Severity.NOTE: "cyan",
    Severity.WARNING: "yellow",
    Severity.PROBLEM: "bold red",
}
_WIDTH: Final = max(len(severity.word) for severity in Severity)


@click.command(
    short_help="Examine a store and its queues.",
    help="""Examine a store and its queues. Each finding says what is wrong, why it matters and what to do. Changes
    nothing.

    \b
    Exit codes
      0   no finding worse than a note          3  the store cannot be reached at all
      10  the worst finding is a warning
      20  the worst finding is a problem
    """,
)
@url_option
@json_option
@verbose_option
@click.pass_context
def doctor(context: click.Context, /, *, url: str | None, as_json: bool) -> None:
    """Print the findings."""
    from astyqueue.clock import SystemClock
    from astyqueue.queue.health_check import examine

    found = examine(named(url), clock=SystemClock())
    show(found, as_json=as_json)
    context.exit(
        {Severity.WARNING: ExitCode.WARNING, Severity.PROBLEM: ExitCode.PROBLEM}.get(worst(found), ExitCode.DONE)
    )


def _replication_option(function: click.decorators.FC) -> click.decorators.FC:
    text = "Replication: dc1:3, or dc1:3,dc2:3, or one number for all data centres. [default: 3 in the URL's one]"
    return click.option("--replication", metavar="DC:COPIES", default="", help=text)(function)


@click.command(
    short_help="Create the keyspace and tables of a store.",
    help="""Create the keyspace and the tables of a Cassandra store that do not exist yet.

    It can be run again, and by two processes at once: existing tables are not changed. SQLite files and stores in
    memory need no migration; for them, this says that there is nothing to do.

    It also records the keyspace's home data centre and the consistency levels in the URL. From then on, opening the
    store from another data centre or with other levels fails.
    """,
    epilog="""\b
    astyqueue migrate --url cassandra://h1,h2,h3/jobs --replication dc1:3
    astyqueue migrate --url cassandra://h1/jobs --print-cql | cqlsh h1
    """,
)
@_replication_option
@click.option(
    "--durable/--no-durable",
    cls=Deliberate,
    default=True,
    help="Whether writes to the keyspace go to the commit log; without it, crashes lose messages. [default: durable]",
)
@click.option(
    "--home",
    metavar="DC",
    default="",
    help="The data centre of all workers and senders. [default: the URL's, or the only one]",
)
@click.option(
    "--move-home",
    cls=Deliberate,
    is_flag=True,
    help="Replace the recorded home data centre by this one; stop every worker and sender first.",
)
@click.option("--print-cql", is_flag=True, help="Print the CQL for an empty cluster and run nothing; needs no server.")
@url_option
@json_option
@verbose_option
def migrate(
    *, url: str | None, as_json: bool, replication: str, durable: bool, home: str, move_home: bool, print_cql: bool
) -> None:
    """Print each change made."""
    from astyqueue.clock import SystemClock
    from astyqueue.stores.admin import administer

    made_with = {"replication": replication, "home": home}
    with administer(
        named(url), clock=SystemClock(), durable=durable, move_home=move_home, **made_with
    ) as administration:
        if print_cql:
            statements = "\n\n".join(f"{statement};" for statement in administration.statements())
            click.echo(printable_lines(statements) or "-- this store needs no migration")
            return
        for sentence in administration.migrate():
            click.echo(json_line({"done": sentence}) if as_json else printable(sentence))


@click.command(
    short_help="Check the schema of a store.",
    help="""Compare the schema of a store with the expected one: keyspace, version, columns and options of the tables.

    Each difference is shown with its remedy. Changes nothing. The exit code is 5 if anything worse than a note
    differs.
    """,
)
@_replication_option
@url_option
@json_option
@verbose_option
@click.pass_context
def verify(context: click.Context, /, *, url: str | None, as_json: bool, replication: str) -> None:
    """Print the differences."""
    from astyqueue.clock import SystemClock
    from astyqueue.stores.admin import administer

    with administer(named(url), clock=SystemClock(), replication=replication) as administration:
        found = administration.verify()
    show(found, as_json=as_json)
    if worst(found) > Severity.NOTE:
        context.exit(ExitCode.WRONG_SCHEMA)


def show(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print the findings on stdout, and the number of each severity."""
    if as_json:
        for finding in findings:
            click.echo(json_line(finding.as_json()))
        return
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(_table(findings))
    else:
        click.echo("\n".join(_lines(findings)))
    click.echo(f"\n{_summary(findings)}")


def _parts(finding: Finding) -> list[tuple[str, str]]:
    """The titles and texts that are printed below the fact."""
    parts = (("why", finding.reason), ("do", finding.remedy), ("see", finding.see))
    return [(title, printable_message(text)) for title, text in parts if text]


def _lines(findings: Iterable[Finding]) -> Iterable[str]:
    for finding in findings:
        yield f"{finding.severity.word:<{_WIDTH}}  {printable_message(f'{finding.subject}: {finding.fact}')}"
        for title, text in _parts(finding):
            yield f"{'':<{_WIDTH}}    {title + ':':<4} {text}"


def _table(findings: Iterable[Finding]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        cell = Text.assemble((f"{printable_message(finding.subject)}: ", "bold"), printable_message(finding.fact))
        for title, text in _parts(finding):
            cell.append(f"\n{title}: ", "dim").append(text)
        table.add_row(Text(finding.severity.word, _COLOURS[finding.severity]), cell)
    return table


def _summary(findings: Iterable[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    worse = (severity for severity in reversed(Severity) if counts[severity] and severity > Severity.OK)
    numbers = ", ".join(counted(counts[severity], severity.word) for severity in worse)
    return f"{counted(counts.total(), 'check')}: {numbers or 'all well'}"
