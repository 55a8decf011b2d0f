"""`astyqueue spark`: what is done with much at a time. It needs the extra `spark`, and Java."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from astyqueue.cli.failures import ExitCode
from astyqueue.cli.files import Deliberate
from astyqueue.cli.interrupting import interruption
from astyqueue.cli.output import Output
from astyqueue.cli.session import Session, json_option, named, url_option, verbose_option
from astyqueue.cli.sparking import spark_session, told_plainly
from astyqueue.printable import printable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from astyqueue.spark.bulk import Progress
    from astyqueue.spark.redriving import RedriveByQuery

    Start = Callable[[], AbstractContextManager[SparkSession]]

_SINK: Final = (
    ("json-column", "This text column is the body, as JSON."),
    ("body-column", "This column is the body."),
    ("due-column", "Hand a row's message out at the moment in this column."),
    ("delay-column", "Hand it out so long after now: seconds, or text such as 10m."),
    ("key-column", "The message's key."),
    ("priority-column", "The message's priority."),
    ("headers-column", "The message's headers: a map of text to text."),
)


#: None at all would be no pace.
_RATE: Final = click.FloatRange(0, min_open=True)


@click.group(short_help="Enqueue files, and put back what a query chooses; with Spark.")
def spark() -> None:
    """What is done with much at a time, by Spark: on this machine, or on the one that --master names. Needs the extra `spark` and Java."""


def _on_spark(function: Callable[..., None]) -> Callable[..., None]:
    """A command that may start Spark: its first arguments are what does, the store's URL and where to print."""

    @functools.wraps(function)
    def command(*arguments: Any, url: str | None, as_json: bool, master: str | None, **options: Any) -> None:  # noqa: ANN401 - the command's own
        from astyqueue.clock import SystemClock, instant

        start = functools.partial(spark_session, master, name="astyqueue")
        with told_plainly():
            function(start, named(url), Output(instant(SystemClock().now()), as_json=as_json), *arguments, **options)

    told = "Where Spark runs: local[4], spark://host:7077, or sc://host:15002 for a Connect server.  [default: local[*]]"
    option = click.option("--master", envvar="ASTYQUEUE_SPARK_MASTER", metavar="MASTER", help=told, show_envvar=True)
    return verbose_option(json_option(url_option(option(command))))


def _check(url: str, output: Output, queue: str, *, create: bool = False, hint: str = "") -> None:
    """See that there is such a queue, or make it, before Spark is started for it: that takes a while."""
    from astyqueue.queue.connection import connect

    with connect(url) as connection:
        if create:
            connection.queue(queue)
        else:
            Session(connection, output).check(queue, hint)


def _sink_options(function: Callable[..., None]) -> Callable[..., None]:
    for name, told in reversed(_SINK):
        function = click.option(f"--{name}", metavar="COLUMN", help=told)(function)
    return function


@spark.command(
    short_help="Send the rows of files as messages.",
    epilog="""\b
    astyqueue spark enqueue users.csv --queue emails --id-column user_id
    astyqueue spark enqueue calls/*.parquet --queue default --id-column id --task shop.mail.welcome
    """,
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--queue", required=True, help="Send to this queue.")
@click.option("--id-column", required=True, metavar="COLUMN", help="The column with an id of your own for each row.")
@_sink_options
@click.option("--task", metavar="NAME", help="Call this task, with the columns as its arguments.")
@click.option("--format", "kind", type=click.Choice(["csv", "json", "parquet"]), help="Unless said, each file's name tells.")
@click.option("--infer", is_flag=True, help="Turn what looks like a number or a moment in a CSV file into one; else all is text.")
@click.option("--merge", is_flag=True, help="Of rows with one id send one; else they are refused.")
@click.option(
    "--manifest", type=click.Path(dir_okay=False, path_type=Path), help="Remember here what was sent.  [default: QUEUE.enqueued.json]"
)
@click.option("--rate", type=_RATE, metavar="N", help="Send at most N a second in each task of Spark.")
@click.option("--max-depth", type=click.IntRange(1), metavar="N", help="Send nothing by which more than N messages could be claimed.")
@click.option("--create", is_flag=True, help="Create the queue if there is none of this name.")
@_on_spark
def enqueue(start: Start, url: str, output: Output, *, files: tuple[Path, ...], **options: Any) -> None:  # noqa: ANN401 - as declared
    """Send each row of the FILEs (CSV with a header, JSON lines or Parquet) as a message whose body is an object of its columns.

    Run it again after an interruption or an error: files that were sent are skipped, and of the one that was sent in part only
    what is missing is sent. That holds for rows whose messages were done less than a day ago. A new run begins with a new manifest.
    """
    from astyqueue.spark.bulk import Bulk, Reading
    from astyqueue.spark.manifest import Manifest, place_of
    from astyqueue.spark.options import everywhere

    queue, kind = options["queue"], options.pop("kind")
    how = {name: options.pop(name) for name in ("infer", "merge")}
    readings = [Reading.of(file, kind, **how) for file in files]
    _check(url, output, queue, create=options["create"], hint=", and --create was not given")
    path = options.pop("manifest") or Path(f"{queue}.enqueued.json")
    sink = {name: str(value) for name, value in options.items() if value} | {"url": everywhere(url)}
    manifest = Manifest.load(path, {"store": place_of(sink["url"]), "queue": queue, "id_column": options["id_column"]})
    with start() as spark, _bar(shown=sys.stderr.isatty()) as progress:
        sent = Bulk(spark, sink, manifest).send(readings, progress)
    skipped = f"; skipped {_counted(sent.skipped, 'file')} sent before" if sent.skipped else ""
    facts = {"queue": queue, "rows": sent.rows, "files": sent.files, "skipped": sent.skipped, "manifest": str(path)}
    output.done(f"sent {_counted(sent.rows, 'row')} of {_counted(sent.files, 'file')} to queue {queue}{skipped}", facts)


@spark.command(
    short_help="Put back the dead letters that a query chooses.",
    epilog="""\b
    astyqueue spark redrive emails --where "reason LIKE '%timeout%' AND died > current_timestamp() - INTERVAL 2 HOURS"
    astyqueue spark redrive emails --where "headers['tenant'] = 'acme'" --apply --rate 500
    """,
)
@click.argument("queue")
@click.option("--where", required=True, metavar="SQL", help="A condition of Spark SQL over the columns of the table of dead letters.")
@click.option("--apply", cls=Deliberate, is_flag=True, help="Put them back; without this they are only counted and the first are shown.")
@click.option("--rate", type=_RATE, metavar="N", help="Put back at most N a second.")
@click.option("--force", cls=Deliberate, is_flag=True, help="Also what is expired or cannot be read, which would die again at once.")
@click.option(
    "--audit", type=click.Path(dir_okay=False, path_type=Path), help="Add a record of it to this file.  [default: QUEUE.redriven.jsonl]"
)
@_on_spark
def redrive(start: Start, url: str, output: Output, *, queue: str, where: str, **options: Any) -> None:  # noqa: ANN401 - as declared
    """Put back the dead letters of QUEUE for which a condition of Spark SQL holds: in place, with their ids and all their attempts.

    Columns are id, row, priority, key, headers, sent, due, expires, body (JSON text), died, kind, attempts, reason. Ctrl-C
    stops between two commits; what was put back stays so.
    """
    from astyqueue.spark.redriving import RedriveByQuery

    _check(url, output, queue)
    with start() as spark:
        query = RedriveByQuery(spark, url, queue, where=where)
        if options["apply"]:
            _carry_out(query, output, queue, **options)
        else:
            _look(query, output, queue)


def _look(query: RedriveByQuery, output: Output, queue: str) -> None:
    """Show what would be put back."""
    chosen = query.look()
    if not output.as_json:
        output.listing(chosen.sample, shown=_in_a_row, none=f"queue {queue} has no such dead letters")
    if chosen.total or output.as_json:
        facts = {"queue": queue, "dry_run": True, "chosen": chosen.total, "kinds": chosen.kinds}
        output.done(f"{_counted(chosen.total, 'dead letter')} of queue {queue} would be put back: add --apply to do it", facts)


def _carry_out(query: RedriveByQuery, output: Output, queue: str, **options: Any) -> None:  # noqa: ANN401 - those of the command
    """Put it back."""
    audit = options["audit"] or Path(f"{queue}.redriven.jsonl")
    with interruption() as interrupted:
        report = query.carry_out(audit, rate=options["rate"], force=options["force"], cancelled=interrupted)
    left = f", left {report.left} that would die again at once" if report.left else ""
    recorded = f"; recorded in {audit}" if audit.exists() else ""
    stopped = ", then was interrupted" if interrupted() else ""
    output.done(
        f"put back {_counted(report.redriven, 'dead letter')} of queue {queue}{left}{stopped}{recorded}",
        {"queue": queue, **report.as_json(), "audit": str(audit) if recorded else None, "interrupted": interrupted()},
    )
    if interrupted():
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _in_a_row(letter: dict[str, object]) -> dict[str, object]:
    return {name: letter[name] for name in ("id", "died", "kind", "attempts", "reason")}


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar on a terminal's stderr."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("sending", total=None)
        yield lambda told: bar.update(task, total=told.total, completed=told.sent, description=printable(told.file))
