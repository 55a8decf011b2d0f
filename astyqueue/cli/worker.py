"""`astyqueue worker`: running the tasks of an app."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from astyqueue.cli.failures import ExitCode
from astyqueue.cli.session import FILE, url_option, verbose_option
from astyqueue.printable import printable

if TYPE_CHECKING:
    from astyqueue.cli.signals import Signals
    from astyqueue.tasks.app import App

_LEVELS = ("debug", "info", "warning", "error")
#: Seconds after which a task that computes lets other threads go on. The thread that claims and acks needs the interpreter
#: a dozen times for one commit; at Python's usual 5 ms it would wait so long that a killed worker leaves many finished
#: tasks unacked, which are then done again.
_SWITCH_AFTER = 0.0005


def _weights(context: click.Context, parameter: click.Parameter, text: str | None) -> dict[str, int] | None:
    """Queues and their weights: `emails:3,default`; a weight that is not said is 1."""
    if text is None:
        return None
    weights: dict[str, int] = {}
    for part in text.split(","):
        name, separator, weight = part.strip().partition(":")
        if not name or name in weights or (separator and not weight.isdecimal()):
            message = f"write queues, each once, with their weights if you like: emails:3,default; not {text!r}"
            raise click.BadParameter(message, context, parameter)
        weights[name] = int(weight or 1)
    return weights


@click.command(
    short_help="Run the tasks of an app.",
    help="""Run the tasks of APP, which is named by its module and its name there: shop.tasks:app.

    The module is looked for in the current directory first. TERM or INT (Ctrl-C) drains: nothing more is claimed, running
    tasks may finish within --drain-timeout, the rest is given back at once for other workers. A second one gives back
    everything at once and leaves. Neither costs a message an attempt.

    \b
    Exit codes
      0  drained, or nothing left with --burst     3  the store cannot be reached
      1  something else went wrong                 4  --max-stalled tasks are past their timeout
      2  a wrong option, or no such app            130, 143  left at a second INT or TERM
    """,
    epilog="""\b
    astyqueue worker shop.tasks:app -Q emails:3,default -c 16
    """,
)
@click.argument("app", envvar="ASTYQUEUE_APP")
@click.option("-Q", "--queues", callback=_weights, metavar="NAME[:WEIGHT],...", help="Serve these; unless said, all of the app's.")
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=8,
    show_default=True,
    help="Tasks at a time. Queues get their shares by weight, at least one each, and lend none.",
)
@click.option("--drain-timeout", default="30s", show_default=True, metavar="DURATION", help="How long running tasks may take to finish.")
@click.option("--burst", is_flag=True, help="End once nothing is due or being worked on; what is delayed or backing off stays.")
@click.option("--no-schedule", is_flag=True, help="Fire no schedules, and bring about none that the app declares.")
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="End after N messages; no more are claimed.")
@click.option(
    "--max-stalled",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="End with code 4 when N tasks (or all threads) run on past their timeout; unless said, go on and log it once a minute.",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS),
    default="info",
    show_default=True,
    envvar="ASTYQUEUE_LOG_LEVEL",
    help="Log this and worse, on stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="ASTYQUEUE_LOG_FORMAT",
    help="Lines for people, or one JSON object each.",
)
@url_option
@verbose_option
@click.pass_context
def worker(context: click.Context, /, *, app: str, url: str | None, log_level: str, log_format: str, **options: Any) -> None:  # noqa: ANN401 - the options of `_serve`
    """Find the app and run its tasks."""
    from astyqueue.cli.loading import load_app
    from astyqueue.cli.logs import configure
    from astyqueue.dispatch.telling import tell
    from astyqueue.errors import HandlersStuck

    configure(log_level, log_format)
    if file := context.meta.get(FILE):
        tell(logging.INFO, "options", file=file)
    sys.setswitchinterval(_SWITCH_AFTER)
    found = load_app(app)
    if url and (not found.url or context.get_parameter_source("url") is ParameterSource.COMMANDLINE):
        found.url = url
    try:
        with found:
            code = _serve(found, **options).forced
    except HandlersStuck as error:
        click.echo(printable(f"Error: {error}"), err=True)
        code = ExitCode.STUCK
    if code is not None:
        # Tasks that were given back or up still run here, and must not go on beside their next attempts, or keep the process.
        logging.shutdown()
        os._exit(code)


def _serve(
    app: App,
    *,
    queues: dict[str, int] | None,
    concurrency: int,
    drain_timeout: str,
    burst: bool,
    no_schedule: bool,
    max_messages: int | None,
    max_stalled: int | None,
) -> Signals:
    """Run until the work is over or a signal comes."""
    from astyqueue.cli.ending import WhenEmpty
    from astyqueue.cli.signals import Signals
    from astyqueue.durations import as_microseconds
    from astyqueue.errors import Closed

    as_microseconds(drain_timeout)

    def end() -> None:
        dispatcher.drain(drain_timeout, wait=False)

    dispatcher = app.worker(queues, concurrency=concurrency, schedules=not no_schedule, max_messages=max_messages, max_stalled=max_stalled)
    signals = Signals(dispatcher, drain_timeout)
    signals.catch()
    if burst:
        WhenEmpty((app.open(name) for name in queues or app.queues), end).watch()
    with contextlib.suppress(Closed):  # a signal, or finding nothing to do, was quicker than the start
        dispatcher.run()
    return signals
