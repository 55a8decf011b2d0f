"""`astyqueue spark`: send files and redrive dead letters with Spark. Needs the extra `spark`, and Java."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from astyqueue.cli.config import Deliberate
from astyqueue.cli.context import check_queues, interruption, json_option, named, url_option, verbose_option
from astyqueue.cli.errors import ExitCode, Failure, code_of, errors_with_progress, is_verbose, trace_if_verbose
from astyqueue.cli.output import Output, output_now, progress_bar
from astyqueue.printable import printable_message
from astyqueue.text import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from astyqueue.model.views import RedriveReport
    from astyqueue.spark.file_import import Progress
    from astyqueue.spark.redrive import RedriveByQuery

    Start = Callable[[], AbstractContextManager[SparkSession]]

_SINK: Final = (
    ("json-column", "Text column with the body, as JSON. [default: an object of the columns that no option names]"),
    ("body-column", "Column with the body. [default: as for --json-column]"),
    ("due-column", "Column with the moment at which the message is due. [default: now]"),
    (
        "delay-column",
        "Column with the delay from the start of the batch: seconds, or text such as 10m. [default: none]",
    ),
    ("key-column", "Column with the message's key. [default: no key]"),
    ("priority-column", "Column with the message's priority. [default: 0]"),
    ("headers-column", "Column with the message's headers: a map of text to text. [default: no headers]"),
)
#: A rate of 0 would never send anything.
_RATE: Final = click.FloatRange(0, min_open=True)
#: An option of the data source in an error text; the command has it as --option.
_OPTION: Final = re.compile(r"\boption (\w+)=")
#: A logger of PySpark that prints the full text of an error that is also raised.
_REPEATING: Final = "SQLQueryContextLogger"


@click.group(short_help="Enqueue files and redrive dead letters by a query, with Spark.")
def spark() -> None:
    """Bulk operations with Spark, on this machine or the cluster of --master. Needs the extra `spark` and Java."""


def _on_spark(function: Callable[..., None]) -> Callable[..., None]:
    """A command that may start Spark: its first arguments are the function for that, the store's URL and the output."""

    @functools.wraps(function)
    def command(*arguments: Any, url: str | None, as_json: bool, master: str | None, **options: Any) -> None:  # noqa: ANN401 - the command's own
        start = functools.partial(spark_session, master, name="astyqueue")
        with spark_errors_as_failures():
            function(start, named(url), output_now(as_json=as_json), *arguments, **options)

    text = "Where Spark runs: local[4], spark://host:7077, or sc://host:15002 for a Connect server. [default: local[*]]"
    option = click.option("--master", envvar="ASTYQUEUE_SPARK_MASTER", metavar="MASTER", help=text, show_envvar=True)
    return verbose_option(json_option(url_option(option(command))))


def _check(url: str, queue: str, *, create: bool = False, hint: str = "") -> None:
    """Check that the queue exists, or create it, before Spark starts, because starting it is slow."""
    from astyqueue.queue.connection import connect

    with connect(url, create=create) as connection:
        if create:
            connection.queue(queue)
        else:
            check_queues(connection, queue, hint=hint)


def _sink_options(function: Callable[..., None]) -> Callable[..., None]:
    for name, text in reversed(_SINK):
        function = click.option(f"--{name}", metavar="COLUMN", help=text)(function)
    return function


@spark.command(
    short_help="Send the rows of files as messages.",
    help="""Send each row of the FILEs (CSV with a header, JSON lines or Parquet) as a message whose body is an object
    of its columns.

    Run it again after an interruption or an error: it skips files that were sent and sends only the missing rows of a
    file that was sent in part, and of one that grew. That holds for rows whose messages were done less than a day ago.
    For a new run, use a new manifest.
    """,
    epilog="""\b
    astyqueue spark enqueue users.csv --queue emails --id-column user_id
    astyqueue spark enqueue calls/*.parquet --queue default --id-column id --task shop.mail.welcome
    """,
)
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--queue", required=True, help="Queue to send to.")
@click.option("--id-column", required=True, metavar="COLUMN", help="Column with a unique id of your own for each row.")
@_sink_options
@click.option("--task", metavar="NAME", help="Task to call, with the columns as its arguments. [default: none]")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Format of the files. [default: from each file's name]",
)
@click.option("--infer", is_flag=True, help="Parse numbers and moments in CSV files. [default: all columns are text]")
@click.option("--merge", is_flag=True, help="Send one of the rows that share an id; without it, they are an error.")
@click.option(
    "--manifest",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that records what was sent. [default: QUEUE.enqueued.json]",
)
@click.option(
    "--rate",
    type=_RATE,
    metavar="N",
    help="Send at most N rows a second in each Spark task. [default: no limit]",
)
@click.option(
    "--max-depth",
    type=click.IntRange(1),
    metavar="N",
    help="Wait rather than let more than N messages be ready to claim. [default: no limit]",
)
@click.option("--create", is_flag=True, help="Create the queue, and the SQLite file, if they do not exist.")
@_on_spark
def enqueue(start: Start, url: str, output: Output, *, files: tuple[Path, ...], **options: Any) -> None:  # noqa: ANN401 - as declared
    """Send the rows that the manifest does not record as sent, and record them."""
    from astyqueue.spark.file_import import Bulk, Manifest, SourceFile, place_of
    from astyqueue.spark.options import everywhere

    queue, kind = options["queue"], options.pop("kind")
    how = {name: options.pop(name) for name in ("infer", "merge")}
    readings = [SourceFile.of(file, kind, **how) for file in files]
    _check(url, queue, create=options["create"], hint=" (--create creates it)")
    path = options.pop("manifest") or Path(f"{queue}.enqueued.json")
    sink = {name: str(value) for name, value in options.items() if value} | {"url": everywhere(url)}
    manifest = Manifest.load(path, {"store": place_of(sink["url"]), "queue": queue, "id_column": options["id_column"]})
    with start() as spark, _bar(shown=sys.stderr.isatty()) as progress:
        sent = Bulk(spark, sink, manifest).send(readings, progress, _warn)
    skipped = f"; skipped {counted(sent.skipped, 'file')} sent before" if sent.skipped else ""
    facts = {"queue": queue, "rows": sent.rows, "files": sent.files, "skipped": sent.skipped, "manifest": str(path)}
    output.done(f"sent {counted(sent.rows, 'row')} of {counted(sent.files, 'file')} to queue {queue}{skipped}", facts)


@spark.command(
    short_help="Put back the dead letters that a query selects.",
    epilog="""\b
    astyqueue spark redrive emails --where "reason LIKE '%timeout%' AND died > current_timestamp() - INTERVAL 2 HOURS"
    astyqueue spark redrive emails --where "headers['tenant'] = 'acme'" --apply --rate 500
    """,
)
@click.argument("queue")
@click.option("--where", required=True, metavar="SQL", help="Spark SQL condition on the columns of the dead letters.")
@click.option(
    "--apply",
    cls=Deliberate,
    is_flag=True,
    help="Put them back; without it, only count them and show the first.",
)
@click.option("--rate", type=_RATE, metavar="N", help="Put back at most N letters a second. [default: no limit]")
@click.option(
    "--force",
    cls=Deliberate,
    is_flag=True,
    help="Include expired and unreadable letters, which would die again at once.",
)
@click.option(
    "--audit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to append a record of the redrive to. [default: QUEUE.redriven.jsonl]",
)
@_on_spark
def redrive(start: Start, url: str, output: Output, *, queue: str, where: str, **options: Any) -> None:  # noqa: ANN401 - as declared
    """Put back the dead letters of QUEUE that match a Spark SQL condition.

    They go back in place, with their ids, and with all attempts available again. Ctrl-C stops between two commits;
    letters put back until then stay in the queue.

    Columns are id, row, priority, key, headers, sent, due, expires, body (JSON text), died, kind, attempts, reason.
    """
    from astyqueue.spark.redrive import RedriveByQuery

    _check(url, queue)
    with start() as spark:
        query = RedriveByQuery(spark, url, queue, where=where)
        if options["apply"]:
            _carry_out(query, output, queue, **options)
        else:
            _preview(query, output, queue)


def _preview(query: RedriveByQuery, output: Output, queue: str) -> None:
    """Show the dead letters that would be put back."""
    chosen = query.look()
    if not output.as_json:
        output.listing(chosen.sample, shown=_row, none=f"queue {queue} has no such dead letters")
    if chosen.total or output.as_json:
        facts = {"queue": queue, "dry_run": True, "chosen": chosen.total, "kinds": chosen.kinds}
        output.done(
            f"{counted(chosen.total, 'dead letter')} of queue {queue} would be put back: add --apply to put them back",
            facts,
        )


def _carry_out(query: RedriveByQuery, output: Output, queue: str, **options: Any) -> None:  # noqa: ANN401 - those of the command
    audit = options["audit"] or Path(f"{queue}.redriven.jsonl")
    done: list[RedriveReport] = []
    with interruption() as interrupted, errors_with_progress(lambda: _how_far(queue, done, audit)):
        report = query.carry_out(
            audit, rate=options["rate"], force=options["force"], progress=done.append, cancelled=interrupted
        )
    left = f", left {report.left} that would die again at once" if report.left else ""
    recorded = f"; recorded in {audit}" if audit.exists() else ""
    stopped = ", then was interrupted" if interrupted() else ""
    output.done(
        f"put back {counted(report.redriven, 'dead letter')} of queue {queue}{left}{stopped}{recorded}",
        {"queue": queue, **report.as_json(), "audit": str(audit) if recorded else None, "interrupted": interrupted()},
    )
    if interrupted():
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _how_far(queue: str, done: list[RedriveReport], audit: Path) -> str:
    """How many dead letters were put back, as the last report says, and where their ids are; empty: none was."""
    if not done or not done[-1].redriven:
        return ""
    letters = counted(done[-1].redriven, "dead letter")
    return f"{letters} of queue {queue} had been put back before; their ids are recorded in {audit}"


def _row(letter: dict[str, object]) -> dict[str, object]:
    return {name: letter[name] for name in ("id", "died", "kind", "attempts", "reason")}


def _warn(sentence: str) -> None:
    click.echo(printable_message(sentence), err=True)


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[Progress], None]]:
    """A progress bar, if stderr is a terminal."""
    if not shown:
        yield lambda _: None
        return
    with progress_bar(in_bytes=True) as update:
        yield lambda now: update(now.file, now.sent, now.total)


@contextmanager
def spark_errors_as_failures() -> Iterator[None]:
    """Turn errors of Spark into a `Failure` of one sentence; without Spark, say how to install it."""
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        from astyqueue.spark.errors import reason_of
    except ImportError as error:
        message = "this needs Spark: pip install '.[spark]' in a clone of astyqueue"
        raise Failure(message, ExitCode.BAD_INPUT) from error
    try:
        with path_errors_as_failures():
            yield
    except (PySparkException, Py4JError) as error:
        trace_if_verbose()
        kind, reason = reason_of(error)
        raise Failure(": ".join([*_notes(error), _OPTION.sub(_as_typed, reason)]), code_of(kind)) from error


@contextmanager
def path_errors_as_failures() -> Iterator[None]:
    """Turn an OSError about a file or folder into a `Failure` that names its path."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        trace_if_verbose()
        message = f"{error.filename}: {error.strerror}"
        raise Failure(message, ExitCode.BAD_INPUT) from error


def _notes(error: BaseException) -> list[str]:
    """The notes of an error, such as the file that was being sent."""
    return list(getattr(error, "__notes__", ()))


def _as_typed(found: re.Match[str]) -> str:
    return f"--{found[1].replace('_', '-')}="


@contextmanager
def spark_session(
    master: str | None, *, name: str = "astyqueue", level: str = "FATAL", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A Spark session, stopped at the end of the block unless this process had one before. Errors become a `Failure`.

    Spark logs from `level` up, so that each error is printed once and not by Spark. With `-v` it logs all warnings.
    """
    with spark_errors_as_failures(), _opened(master, name=name, settings=settings) as spark:
        _set_log_level(spark, "WARN" if is_verbose() else level)
        yield spark


@contextmanager
def _opened(master: str | None, *, name: str, settings: Mapping[str, str] | None) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    from astyqueue.spark import session

    before = SparkSession.getActiveSession()
    spark = session(master, name=name, settings=settings, quiet=not is_verbose())
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def _set_log_level(spark: SparkSession, level: str) -> None:
    from pyspark.logger import PySparkLogger

    from astyqueue.spark.session import is_elsewhere

    PySparkLogger.getLogger(_REPEATING).disabled = not is_verbose()
    if not is_elsewhere(spark):  # a remote server has its own log
        spark.sparkContext.setLogLevel(level)
