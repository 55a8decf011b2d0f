"""`astyqueue migrate` and `verify`: what a store is made of."""

from __future__ import annotations

import click

from astyqueue.cli.failures import ExitCode
from astyqueue.cli.files import Deliberate
from astyqueue.cli.session import json_option, named, url_option, verbose_option


def _replication_option(function: click.decorators.FC) -> click.decorators.FC:
    told = "Copies of the keyspace: dc1:3, or dc1:3,dc2:3, or a number for every data centre. Unless said: three, in the URL's data centre."
    return click.option("--replication", metavar="DC:COPIES", default="", help=told)(function)


@click.command(
    short_help="Make what a store needs: keyspace and tables.",
    help="""Make the keyspace and the tables of a Cassandra store, those that are missing.

    It may be run again, also by two at once; what is there is left as it is. A SQLite file or a store in memory makes
    itself: there is nothing to be done, and this says so.

    It also stores which data centre is the home of the keyspace, and the levels in the URL. From then on no store can be
    opened from another data centre or with other levels.
    """,
    epilog="""\b
    astyqueue migrate --url cassandra://h1,h2,h3/jobs --replication dc1:3
    astyqueue migrate --url cassandra://h1/jobs --print-cql | cqlsh h1
    """,
)
@_replication_option
@click.option("--durable/--no-durable", default=True, help="Whether the keyspace keeps its commit log; without it, work is lost.")
@click.option(
    "--home",
    metavar="DC",
    default="",
    help="The data centre of all workers and senders. Unless said: the URL's, or the only one.",
)
@click.option(
    "--move-home", cls=Deliberate, is_flag=True, help="Put this home in the place of the one it has; stop every worker and sender first."
)
@click.option("--print-cql", is_flag=True, help="Print what would be run on an empty cluster, and run nothing; needs no server.")
@url_option
@json_option
@verbose_option
def migrate(*, url: str | None, as_json: bool, replication: str, durable: bool, home: str, move_home: bool, print_cql: bool) -> None:
    """Print what was done."""
    from astyqueue.cli.output import json_line
    from astyqueue.clock import SystemClock
    from astyqueue.printable import printable, printable_lines
    from astyqueue.stores.administration import administer

    made_with = {"replication": replication, "home": home}
    with administer(named(url), clock=SystemClock(), durable=durable, move_home=move_home, **made_with) as administration:
        if print_cql:
            statements = "\n\n".join(f"{statement};" for statement in administration.statements())
            click.echo(printable_lines(statements) or "-- this store makes itself")
            return
        for sentence in administration.migrate():
            click.echo(json_line({"done": sentence}) if as_json else printable(sentence))


@click.command(
    short_help="See whether a store is as it should be.",
    help="""Compare what a store is made of with what it should be: keyspace, version, columns and options of the tables.

    Each difference is told with its remedy; nothing is changed. The exit code is 5 if anything differs.
    """,
)
@_replication_option
@url_option
@json_option
@verbose_option
@click.pass_context
def verify(context: click.Context, /, *, url: str | None, as_json: bool, replication: str) -> None:
    """Print what was found."""
    from astyqueue.cli.findings import show
    from astyqueue.clock import SystemClock
    from astyqueue.findings import Severity, worst
    from astyqueue.stores.administration import administer

    with administer(named(url), clock=SystemClock(), replication=replication) as administration:
        found = administration.verify()
    show(found, as_json=as_json)
    if worst(found) > Severity.NOTE:
        context.exit(ExitCode.WRONG_SCHEMA)
