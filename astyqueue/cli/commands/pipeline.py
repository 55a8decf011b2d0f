"""`astyqueue pipeline`: build Parquet tables and an HTML report from the history of queues."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from astyqueue.cli.commands.spark import path_errors_as_failures, spark_errors_as_failures, spark_session
from astyqueue.cli.config import Deliberate
from astyqueue.cli.context import check_queues, json_option, named, url_option, verbose_option
from astyqueue.cli.errors import ExitCode, Failure
from astyqueue.cli.output import output_now
from astyqueue.cli.params import DurationText, Moment
from astyqueue.errors import NotFound
from astyqueue.units import SECOND

if TYPE_CHECKING:
    from astyqueue.cli.output import Output
    from astyqueue.model.settings import Behaviour
    from astyqueue.spark.pipeline.batch import Span
    from astyqueue.spark.pipeline.slo import Objectives

#: How long before now the first run of `stream` begins to read.
_FIRST_RUN_READS: Final = 3_600 * SECOND
#: One machine has few cores: more partitions than this cost more than they gain.
_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
#: What Spark calls the application in its web pages.
_NAME: Final = "astyqueue pipeline"
_DATE: Final = click.DateTime(["%Y-%m-%d"])
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_MASTER_HELP: Final = "Where Spark runs: local[2], spark://host:7077 ... [default: ASTYQUEUE_SPARK_MASTER or local[*]]"


class _Folder(click.Path):
    """A folder of this machine. A URL such as s3://... is refused: it would be taken for the name of a folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own types
        """The folder's path."""
        if "://" in str(value):
            message = f"{value}: tables are kept in a folder that this machine and Spark workers share: give its path"
            self.fail(message, param, ctx)
        return super().convert(value, param, ctx)


_FOLDER: Final = _Folder(file_okay=False, path_type=Path)


def _out_option(function: Callable[..., None]) -> Callable[..., None]:
    text = "Folder of the tables; a run creates it."
    return click.option("--out", type=_FOLDER, metavar="FOLDER", required=True, help=text)(function)


def _queue_option(function: Callable[..., None]) -> Callable[..., None]:
    text = "Queue to read; may be repeated. [default: all]"
    return click.option("-Q", "--queue", "queues", multiple=True, metavar="QUEUE", help=text)(function)


def _slo_option(function: Callable[..., None]) -> Callable[..., None]:
    text = "Service level: wait<=5s, run<=2m, end<=1h; emails:wait<=5s for one queue; may repeat. [default: wait<=10s]"
    return click.option("--slo", "objectives", multiple=True, metavar="LEVEL", help=text)(function)


def _master_option(function: Callable[..., None]) -> Callable[..., None]:
    return click.option("--master", metavar="MASTER", help=_MASTER_HELP)(function)


def _gap_option(function: Callable[..., None]) -> Callable[..., None]:
    text = "Continue even if history expired unread, because the last run was longer ago than a queue's history_kept."
    return click.option("--accept-gap", cls=Deliberate, is_flag=True, help=text)(function)


def _common(function: Callable[..., None]) -> Callable[..., None]:
    return verbose_option(json_option(url_option(function)))


@click.group(short_help="Build tables and a report from the history of queues.")
def pipeline() -> None:
    """Build Parquet tables (attempts, messages, facts, failures, schedules) and a report from the history of queues."""


@pipeline.command(
    short_help="Bring the tables up to date.",
    help="""Read the new events in the history of queues, and rebuild each day of the tables that they affect. Running
    it twice has the same result as once. A queue records successes only with the setting history=all.
    """,
    epilog="""\b
    astyqueue pipeline run --out lake --report report.html
    astyqueue pipeline run --out lake -Q emails --slo 'emails:wait<=5s' --since 2026-11-01T00:00:00Z
    """,
)
@_out_option
@_queue_option
@click.option(
    "--since",
    type=Moment(),
    metavar="MOMENT",
    help="Read from MOMENT on, such as 2026-11-21T09:00:00Z. [default: end of the last run - lateness]",
)
@click.option("--until", type=Moment(), metavar="MOMENT", help="Read up to MOMENT. [default: now]")
@click.option(
    "--lateness",
    type=DurationText(),
    metavar="DURATION",
    default="1h",
    show_default=True,
    help="Read again this much before the end of the last run, for events written late.",
)
@_gap_option
@_slo_option
@click.option(
    "--approximate",
    is_flag=True,
    help="Approximate percentiles: less memory for days with very many messages.",
)
@click.option(
    "--wait",
    type=DurationText(),
    metavar="DURATION",
    default="0s",
    show_default=True,
    help="Wait at most this long for another run into this folder to end.",
)
@click.option("--report", type=_FILE, metavar="FILE", help="Also write the report to FILE.")
@_master_option
@_common
def run(
    *,
    url: str | None,
    as_json: bool,
    out: Path,
    queues: tuple[str, ...],
    report: Path | None,
    **options: Any,  # noqa: ANN401 - the other options above
) -> None:
    """Run the batch job."""
    with spark_errors_as_failures():
        from astyqueue.spark.pipeline.batch import Job, summary

    output, place = output_now(as_json=as_json), named(url)
    behaviours = _behaviours(place, queues)
    span, objectives = _span(options), _objectives(options)
    with spark_session(options["master"], name=_NAME, settings=_SETTINGS) as spark:
        approximately = bool(options["approximate"])
        job = Job(spark, out, objectives=objectives, approximately=approximately, wait=options["wait"])
        built = job.run(place, behaviours, span)
    where = f"; the tables are in {out}" if built.days else ""
    output.done(f"{summary(built)}{where}", {"days": len(built.days), "events": built.events, "out": str(out)})
    if report is not None:
        _report(output, out, report)


@pipeline.command(
    short_help="Keep a table of facts per minute up to date.",
    help="""Follow the history of queues, and write the facts of each minute to the table `live` soon after the minute
    is over. Runs until it is interrupted; started again, it continues where it stopped.
    """,
    epilog="""\b
    astyqueue pipeline stream --out lake
    astyqueue pipeline stream --out lake -Q emails --once
    """,
)
@_out_option
@_queue_option
@click.option("--since", type=Moment(), metavar="MOMENT", help="Where the first run begins. [default: an hour ago]")
@click.option(
    "--watermark",
    type=DurationText(),
    metavar="DURATION",
    default="2m",
    show_default=True,
    help="Wait this long for late events of a minute.",
)
@click.option("--once", is_flag=True, help="Process the events there are now, then stop.")
@_gap_option
@_slo_option
@_master_option
@_common
def stream(
    *,
    url: str | None,
    as_json: bool,
    out: Path,
    queues: tuple[str, ...],
    once: bool,
    **options: Any,  # noqa: ANN401 - the other options above
) -> None:
    """Run the stream."""
    from astyqueue.durations import as_microseconds

    with spark_errors_as_failures():
        from astyqueue.spark.connections import time_of_store
        from astyqueue.spark.pipeline.streaming import Stream

    output, place = output_now(as_json=as_json), named(url)
    names = list(_behaviours(place, queues))
    asked = _instant(options["since"])
    since = time_of_store(place, names) - _FIRST_RUN_READS if asked is None else asked
    watermark = f"{as_microseconds(options['watermark'])} microseconds"
    objectives = _objectives(options)
    with spark_session(options["master"], name=_NAME, level="ERROR", settings=_SETTINGS) as spark:
        followed = Stream(spark, out, objectives=objectives, watermark=watermark)
        queries = followed.start(place, names, since=since, once=once, accept_gap=bool(options["accept_gap"]))
        if not once:
            spark.streams.awaitAnyTermination()
        for query in queries:
            query.awaitTermination()
    output.done(f"followed {', '.join(names)}; the table is in {out / 'live'}", {"queues": names, "out": str(out)})


@pipeline.command(
    name="report",
    short_help="Write the report from existing tables.",
    epilog="""\b
    astyqueue pipeline report --out lake --to report.html --since 2026-11-01 --until 2026-11-07
    """,
)
@_out_option
@click.option(
    "--to",
    type=_FILE,
    metavar="FILE",
    default=Path("report.html"),
    show_default=True,
    help="HTML file to write.",
)
@click.option(
    "--since",
    type=_DATE,
    metavar="DAY",
    help="First day of the report, in UTC. [default: the first in the tables]",
)
@click.option(
    "--until",
    type=_DATE,
    metavar="DAY",
    help="Last day of the report, in UTC. [default: the last in the tables]",
)
@json_option
@verbose_option
def report_again(*, as_json: bool, out: Path, to: Path, since: datetime | None, until: datetime | None) -> None:
    """Write an HTML report of the tables in a folder. Needs neither a store nor Spark."""
    _report(output_now(as_json=as_json), out, to, since=since and since.date(), until=until and until.date())


def _behaviours(url: str, queues: tuple[str, ...]) -> dict[str, Behaviour]:
    """The settings of these queues, or of all; NotFound if there are none. Warns about queues without history=all."""
    from astyqueue.queue.connection import connect

    with connect(url, create=False) as connection:
        check_queues(connection, *queues)
        found: dict[str, Behaviour] = {}
        passed_over = () if queues else (NotFound,)  # one of all that was dropped since they were listed
        for name in queues or connection.queues():
            with contextlib.suppress(*passed_over):
                found[name] = connection.existing_queue(name).settings.behaviour
    if not found:
        message = "this store has no queues, so there is no history to read"
        raise NotFound(message)
    for name, behaviour in found.items():
        if behaviour.history != "all":
            click.echo(
                f"{_partly(name, behaviour.history)}; to keep all from now on: astyqueue queues set {name} history=all",
                err=True,
            )
    return found


def _partly(queue: str, history: str) -> str:
    what = "no history" if history == "none" else f"only {history} in its history"
    return f"queue {queue} keeps {what}"


def _span(options: Mapping[str, Any]) -> Span:
    from astyqueue.spark.pipeline.batch import Span

    names = ("since", "until", "lateness", "accept_gap")
    return Span.of(**{name: options[name] for name in names})


def _instant(moment: datetime | None) -> int | None:
    from astyqueue.durations import instant_of

    return None if moment is None else instant_of(moment)


def _objectives(options: Mapping[str, object]) -> Objectives:
    from astyqueue.spark.pipeline.slo import Objectives

    texts = options["objectives"]
    return Objectives.read(texts if isinstance(texts, tuple) else ())


def _report(output: Output, out: Path, to: Path, *, since: date | None = None, until: date | None = None) -> None:
    """Write the report, and print its most important figures."""
    try:
        from astyqueue.spark.pipeline import manifest
        from astyqueue.spark.pipeline.report.data import Days, in_short
        from astyqueue.spark.pipeline.report.page import write
    except ImportError as error:
        message = f"the report needs {error.name}: pip install '.[spark]' in a clone of astyqueue"
        raise Failure(message, ExitCode.BAD_INPUT) from error

    if not manifest.load(out).queues:
        message = f"no tables in {out}: create them with astyqueue pipeline run --out {out}"
        raise NotFound(message)
    with path_errors_as_failures():
        found = write(out, to, Days(since, until))
    output.listing(found, shown=in_short, as_json=in_short, none=f"the tables in {out} are empty")
    output.done(f"the report is in {to}", {"report": str(to)})
