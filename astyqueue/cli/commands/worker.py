"""`astyqueue worker`: run the tasks of an app."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from astyqueue.cli.config import here, search_here
from astyqueue.cli.context import FILE, url_option, verbose_option
from astyqueue.cli.errors import ExitCode, Failure, trace_if_verbose
from astyqueue.cli.params import Address, ByteSize, DurationText, Limits, Weights
from astyqueue.printable import printable_message
from astyqueue.stores.url import SPOOL_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path
    from types import ModuleType

    from astyqueue.cli.worker.process_pipes import Supervised
    from astyqueue.tasks.app import App

Command = TypeVar("Command", bound="Callable[..., object] | click.Command")
_LEVELS = ("debug", "info", "warning", "error")
#: Seconds after which a computing task yields the interpreter to other threads. The thread that claims and acks needs
#: the interpreter a dozen times for one commit; with Python's usual 5 ms its acks would lag behind, so that a killed
#: worker leaves many finished tasks unacked, which then run again.
_SWITCH_AFTER = 0.0005
#: Default name of the app in its module.
_USUAL: Final = "app"


def _duration_option(name: str, default: str, text: str, *, least: str = "") -> Callable[[Command], Command]:
    """An option with a duration."""
    kind = DurationText(least=least)
    return click.option(name, type=kind, default=default, show_default=True, metavar="DURATION", help=text)


@click.command(
    short_help="Run the tasks of an app.",
    help="""Run the tasks of APP, given as module:name, such as shop.tasks:app. [default: the variable
    ASTYQUEUE_APP, or app under [worker] in ./astyqueue.toml]

    The module is searched for in the current directory first. TERM, INT (Ctrl-C) or HUP drains the worker: it claims no
    more messages, running tasks can finish within --drain-timeout, and unstarted messages are released to other workers
    at once. A second signal releases all messages and exits at once. Neither costs a message an attempt. USR1 logs the
    stacks of all threads; USR2 makes it quiet: it claims no more, and runs on. `astyqueue workers` does so by name.

    With -p, a supervisor starts N processes, and restarts those that die, after a pause that doubles from 1s: to 8s
    before it gives up, to 60s while the store cannot be reached. It passes signals on to them, and they drain when it
    dies. Its exit code is the greatest of theirs.

    \b
    Exit codes
      0  drained, or nothing left with --burst     5  the store has no tables yet, or those of a newer astyqueue
      1  any other error                           6  stalled, with --on-stall=exit
      2  invalid option, or no such app            7  with -p: a process died at once five times in a row
      3  the store cannot be reached               75  under -p: ended to be started again
      4  --max-stuck tasks are past their          129, 130, 143  exited at a second HUP, INT or TERM
         timeout                                   128 + n  with -p: signal n killed a process
    """,
    epilog="""\b
    astyqueue worker shop.tasks:app -Q emails:3,default -c 16
    """,
)
@click.argument("app", envvar="ASTYQUEUE_APP")
@click.option(
    "-Q",
    "--queues",
    type=Weights(),
    metavar="NAME[:WEIGHT],...",
    help="Queues to serve, and their turns while several have messages. A quoted pattern such as 'mail.*' serves all "
    "queues of the store that match; new ones join within five seconds. [default: all queues of the app, weight 1]",
)
@click.option(
    "--limit",
    type=Limits(),
    metavar="NAME=N,...",
    help="At most N messages of a queue at the same time in this worker, whatever the kinds of their tasks; NAME may "
    "be a quoted pattern. With -p, in each process. [default: no limit]",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0, 100_000),
    metavar="N",
    help="Claim up to N messages of each queue ahead, before a thread is free for them. [default: as many as quick "
    "tasks need, and none beside slow ones]",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=8,
    show_default=True,
    help="Threads that run tasks. All queues share them: one that has no messages leaves its turns to the others.",
)
@click.option(
    "--coroutines",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    default=1_000,
    show_default=True,
    help="The most `async def` tasks in flight, on the one event loop of a process.",
)
@click.option(
    "--child-processes",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Child processes for tasks of kind process; none are started without such a task. Unlike those of -p they "
    "claim nothing, and each process of -p has N. [default: one for each processor]",
)
@click.option(
    "--max-messages-per-child",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a child process (--child-processes) after N messages. [default: never]",
)
@click.option(
    "--max-child-rss",
    type=ByteSize(),
    metavar="SIZE",
    help="Replace a child process that has more resident memory after a message, such as 512MiB. [default: never]",
)
@_duration_option(
    "--blocked-after", "1s", "Log an `async def` task that keeps the event loop for longer than this.", least="1ms"
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Run N workers as processes, each with all these options, under a supervisor. "
    "[default: one, without a supervisor]",
)
@_duration_option(
    "--drain-timeout", "30s", "How long running tasks can take to finish after the first TERM, INT or HUP."
)
@click.option(
    "--burst",
    is_flag=True,
    help="Exit once no message is due, being worked on, or in a spool that is forwarded, and no schedule is due. "
    "Messages that are delayed, backing off, snoozed, parked or blocked stay, and so do those of paused queues.",
)
@click.option("--no-schedule", is_flag=True, help="Neither fire nor register schedules.")
@click.option(
    "--max-messages",
    type=click.IntRange(1),
    metavar="N",
    help="Exit after N messages, and claim no more than these. [default: no limit]",
)
@click.option(
    "--max-stuck",
    type=click.IntRange(1, 1024),
    metavar="N",
    help="Exit with code 4 when N tasks (or all threads) run past their timeout. [default: log it every minute]",
)
@click.option(
    "--max-rss",
    type=ByteSize(),
    metavar="SIZE",
    help="Drain and exit once the process has more resident memory, such as 512MiB, without its child processes; -p "
    "starts it again.",
)
@_duration_option(
    "--heartbeat",
    "15s",
    "How often the worker reports to the store, and looks for commands to it (`astyqueue workers`).",
    least="1s",
)
@_duration_option(
    "--stall-after",
    "5m",
    "The worker has stalled when work is due and no task of it began or ended for longer than this.",
    least="1s",
)
@click.option(
    "--on-stall",
    type=click.Choice(["log", "exit"]),
    default="log",
    show_default=True,
    help="When it has stalled, log the stacks of its threads; or log them and exit with code 6.",
)
@click.option(
    "--health",
    type=Address(),
    metavar="[HOST:]PORT",
    help="Answer GET /livez and /readyz here. With -p, the supervisor does, for all processes.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: restart when a .py file of the app's package changes. Without -p it implies -p 1.",
)
@click.option(
    "--log-level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    envvar="ASTYQUEUE_LOG_LEVEL",
    help="Least severe level that is logged, on stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    envvar="ASTYQUEUE_LOG_FORMAT",
    help="Format of a log line: text, or one JSON object.",
)
@click.option(
    "--spool",
    envvar=SPOOL_VARIABLE,
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Send into this folder of the local disk, from where the worker forwards to the store; at its end too. "
    "[default: the spool of the app, if it has one]",
)
@url_option
@verbose_option
@click.pass_context
def worker(
    context: click.Context,
    /,
    *,
    app: str,
    url: str | None,
    spool: str | None,
    processes: int | None,
    reload: bool,
    log_level: str,
    log_format: str,
    **options: Any,  # noqa: ANN401 - the options of `_serve`
) -> None:
    """Find the app and run its tasks, or start processes that do."""
    from astyqueue.cli.logging import configure
    from astyqueue.cli.streams import drop_unread, exit_at_once, exit_soon
    from astyqueue.cli.worker.process_pipes import Supervised
    from astyqueue.dispatch.worker_log import log_event
    from astyqueue.errors import HandlersStuck

    supervised = Supervised.of_this_process()
    configure(log_level, log_format, supervised.number if supervised else None)
    drop_unread("stdout")
    if supervised is None and (processes is not None or reload):
        context.exit(_supervise(app, processes or 1, spool=spool, reload=reload, **options))
    if file := context.meta.get(FILE):
        log_event(logging.INFO, "options_read", file=file)
    sys.setswitchinterval(_SWITCH_AFTER)
    found = load_app(app)
    if url and is_used(context, "url", found.url):
        found.url = url
    if spool and is_used(context, "spool", found.spool):
        found.spool = spool
    _warn_of_memory(found)
    try:
        with found:
            code = _serve(found, supervised, **options)
    except HandlersStuck as error:
        click.echo(printable_message(f"Error: {error}"), err=True)
        code = ExitCode.STUCK
    # Tasks whose messages were released may still run: they must not run beside their next attempts, nor keep the
    # process alive.
    if code == ExitCode.DONE:
        exit_soon(code)
    elif code is not None:
        exit_at_once(code)


for _option in worker.params:
    if isinstance(_option, click.Option):
        _option.show_envvar = True


def _supervise(
    app: str,
    processes: int,
    *,
    spool: str | None,
    reload: bool,
    health: tuple[str, int] | None,
    stall_after: timedelta,
    on_stall: str,
    **_: object,
) -> int:
    """Start processes with the same options, until all have ended."""
    from pathlib import Path

    from astyqueue.cli.worker.health_server import HealthServer, with_backlog
    from astyqueue.cli.worker.supervisor import ProcessSupervisor, SourceWatch, SupervisionOptions
    from astyqueue.durations import as_microseconds

    changed = SourceWatch(app).changed if reload else None
    watched = SupervisionOptions(silence=as_microseconds(stall_after), kills=on_stall == "exit", changed=changed)
    supervisor = ProcessSupervisor(processes, watched)
    if health is not None:
        folder = Path(spool) if spool else None
        HealthServer(health, lambda: with_backlog(supervisor.health(), folder)).start()
    return supervisor.run()


def _serve(
    app: App,
    supervised: Supervised | None,
    *,
    queues: dict[str, int] | None,
    limit: dict[str, int] | None,
    prefetch: int | None,
    concurrency: int,
    coroutines: int,
    child_processes: int | None,
    max_messages_per_child: int | None,
    max_child_rss: int | None,
    blocked_after: timedelta,
    drain_timeout: timedelta,
    burst: bool,
    no_schedule: bool,
    max_messages: int | None,
    max_stuck: int | None,
    **watched: Any,  # noqa: ANN401 - the options of `Watches`
) -> int | None:
    """Run until the work is done or a signal arrives. Returns what `WorkerRun.until_ended` does."""
    from astyqueue.cli.worker.run import Watches, WorkerRun
    from astyqueue.cli.worker.until_empty import WhenEmpty

    dispatcher = app.worker(
        queues,
        limits=limit,
        prefetch=prefetch,
        concurrency=concurrency,
        coroutines=coroutines,
        blocked_after=blocked_after,
        processes=child_processes,
        max_messages_per_child=max_messages_per_child,
        max_child_rss=max_child_rss,
        schedules=not no_schedule,
        max_messages=max_messages,
        max_stuck=max_stuck,
    )
    run = WorkerRun(dispatcher, drain_timeout, supervised, Watches(**watched), spool=_logged_spool(app))
    if burst:
        WhenEmpty(lambda: dispatcher.queues, run.end, begun=lambda: dispatcher.running).watch()
    return run.until_ended()


def _warn_of_memory(app: App) -> None:
    """Log that no other process reaches the store of the app, if that is so."""
    from astyqueue.dispatch.worker_log import log_event
    from astyqueue.stores.url import locate

    if app.url and (scheme := locate(app.url).scheme) == "memory":
        hint = "no other process can send to this worker: give a store of several processes, such as sqlite:///work.db"
        log_event(logging.WARNING, "store_in_memory", store=f"{scheme}://", hint=hint)


def _logged_spool(app: App) -> Path | None:
    """The folder of the app's spool, if it has one; what waits there is logged."""
    from astyqueue.dispatch.worker_log import log_event
    from astyqueue.journal_errors import JournalError
    from astyqueue.spool import backlog_of
    from astyqueue.text import reason_of

    if app.spool is None:
        return None
    folder = app.spool.directory
    try:
        waiting = {name: fact for name, fact in backlog_of(folder).as_json().items() if fact is not None}
        log_event(logging.INFO, "spool_backlog", folder=folder, **waiting)
    except (JournalError, OSError) as error:
        log_event(logging.WARNING, "spool_backlog", folder=folder, error=reason_of(error))
    return folder


def is_used(context: click.Context, option: str, own: object) -> bool:
    """Whether an option is used for an app that has its `own`: only the command line beats that."""
    return not own or context.get_parameter_source(option) is ParameterSource.COMMANDLINE


def load_app(place: str) -> App:
    """The app at `module:name` (`module` alone means `module:app`); the current directory is searched first.

    That of an `astyqueue.aio.App` is its app for threads. Raises Failure if the module cannot be imported or has no
    app of that name.
    """
    from astyqueue.tasks.app import App
    from astyqueue.tasks.awaited.app import App as AwaitedApp

    module_name, _, name = place.partition(":")
    module = _module(module_name)
    found = getattr(module, name or _USUAL, None)
    if isinstance(found, App):
        return found
    if isinstance(found, AwaitedApp):
        return found.blocking
    others = [other for other, value in vars(module).items() if isinstance(value, App | AwaitedApp)]
    hint = f"; did you mean {module_name}:{others[0]}?" if others else ": expected an astyqueue.App"
    what = "does not exist" if found is None else f"is of type {type(found).__name__}"
    message = f"{module_name}:{name or _USUAL} {what}{hint}"
    raise Failure(message, ExitCode.BAD_INPUT)


def _module(name: str) -> ModuleType:
    search_here()
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a script without a main guard may exit
        trace_if_verbose()
        message = _why_not(name, error)
        raise Failure(message, ExitCode.BAD_INPUT) from error


def _why_not(name: str, error: Exception | SystemExit) -> str:
    if isinstance(error, SystemExit):
        return f'{name} exits when it is imported: call what exits under if __name__ == "__main__"; -v shows where'
    meant = name.removesuffix(".py").removeprefix("./").replace("/", ".")
    if meant != name or not all(name.split(".")):
        known = meant if all(map(str.isidentifier, meant.split("."))) else "shop.tasks"
        return f"{name!r} is not the name of a module: name an app as pkg.mod:app, such as {known}:{_USUAL}"
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"no module {error.name!r} in {here()} or among the installed packages; name an app as pkg.mod:app"
    return f"{name} cannot be imported: {type(error).__name__}: {error}; -v shows where"
