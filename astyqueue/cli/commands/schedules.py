"""`astyqueue schedules`: list, add and change the schedules of a queue."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from astyqueue.cli.config import Deliberate
from astyqueue.cli.context import Session, json_option, on_store, url_option, verbose_option
from astyqueue.cli.output import json_line
from astyqueue.cli.params import DurationText, Moment
from astyqueue.errors import BadInput, NotFound, Undecodable
from astyqueue.printable import printable
from astyqueue.text import counted, exact, iso

#: What `reconcile` prints about a schedule: after the change, and with --dry-run.
_DID: Final = {
    "removed": ("removed", "would remove"),
    "saved": ("saved", "would save"),
    "stale": ("left (--prune removes it)", "would leave (--prune removes it)"),
    "unreadable": ("left (it cannot be read)", "would leave (it cannot be read)"),
    "others": ("left (it is not the app's own)", "would leave (it is not the app's own)"),
}

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from astyqueue.cli.output import Record
    from astyqueue.schedules import Scheduled, Schedules
    from astyqueue.schedules.views import Fired
    from astyqueue.triggers import Trigger


@click.group(short_help="List, add and change schedules.")
def schedules() -> None:
    """Schedules: messages that workers send to a queue at set times, and the outcome of the last ones."""


def _schedules_of(session: Session, queue: str) -> Schedules:
    from astyqueue.schedules import Schedules

    return Schedules(session.queue(queue))


@schedules.command(name="list", short_help="List the schedules of a queue.")
@click.argument("queue")
@on_store
def list_schedules(session: Session, *, queue: str) -> None:
    """List the schedules of QUEUE."""
    session.output.listing(_schedules_of(session, queue).all(), shown=_row, none=f"queue {queue} has no schedule")


@schedules.command(short_help="Show a schedule and its last firings.")
@click.argument("queue")
@click.argument("name")
@on_store
def show(session: Session, *, queue: str, name: str) -> None:
    """Show the schedule NAME of QUEUE, and the outcome of its last occurrences."""
    found = _schedules_of(session, queue).get(name)
    session.output.one(found, shown=_in_full)
    if found.history and not session.output.as_json:
        click.echo()
        session.output.listing(found.history, shown=_firing, none="")


@schedules.command(
    short_help="Send a body at each occurrence of a trigger.",
    epilog="""\b
    astyqueue schedules add emails digest --cron "0 9 * * mon-fri" --zone Europe/Paris --body '{"to": "ada"}'
    astyqueue schedules add emails refresh --every 5m --task shop.tasks.refresh
    """,
)
@click.argument("queue")
@click.argument("name")
@click.option("--cron", metavar="EXPRESSION", help='At the times a cron expression matches: "0 9 * * mon-fri".')
@click.option("--every", type=DurationText(), metavar="DURATION", help="Fixed interval starting now: 5m.")
@click.option("--at", type=Moment(), metavar="MOMENT", help="Once, at MOMENT: 2026-11-21T09:00:00+01:00.")
@click.option("--zone", metavar="ZONE", help="Time zone of --cron, such as Europe/Paris. [default: UTC]")
@click.option(
    "--count",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N occurrences, with --cron or --every. [default: no limit]",
)
@click.option(
    "--body",
    default="null",
    show_default=True,
    metavar="JSON",
    help="Body of the messages; with --task its arguments, a list or an object.",
)
@click.option("--task", metavar="NAME", help="Task that the messages call. [default: none, a plain body]")
@click.option("--key", help="Key of the messages: a name of your own to find them by.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher priorities first.")
@click.option(
    "--misfire",
    default="once",
    show_default=True,
    metavar="POLICY",
    help="What to send for late occurrences: once, latest, all (the latest 100), all 50, skip, skip 10m, within 1h.",
)
@click.option(
    "--overlap",
    default="allow",
    show_default=True,
    metavar="POLICY",
    help="If the previous message is unfinished: allow, skip, queue one, queue all, cancel running.",
)
@click.option(
    "--after-failure",
    default="go on",
    show_default=True,
    metavar="POLICY",
    help="If the previous message became a dead letter: go on, or pause.",
)
@click.option(
    "--replace",
    cls=Deliberate,
    is_flag=True,
    help="Replace an existing schedule of this name; without it, that is an error.",
)
@on_store
def add(session: Session, *, queue: str, name: str, replace: bool, **options: object) -> None:
    """Add the schedule NAME to QUEUE: its workers then send a message at each occurrence."""
    from astyqueue.cli.commands.send import message_of

    message = message_of(
        str(options["body"]), {"task": options["task"], "key": options["key"], "priority": options["priority"]}
    )
    policies = {policy: str(options[policy]) for policy in ("misfire", "overlap", "after_failure")}
    made = _schedules_of(session, queue).add(name, _trigger(options), message, replace=replace, **policies)
    session.output.done(f"schedule {name} of queue {queue}: next {_moment(made)}", made.as_json())


@schedules.command(short_help="Pause a schedule until it is resumed.")
@click.argument("queue")
@click.argument("name")
@click.option("--why", default="by hand", show_default=True, help="Reason, shown with the schedule.")
@on_store
def pause(session: Session, *, queue: str, name: str, why: str) -> None:
    """Pause the schedule NAME of QUEUE; its occurrences are skipped until it is resumed."""
    paused = _schedules_of(session, queue).pause(name, why)
    session.output.done(f"paused schedule {name} of queue {queue}", paused.as_json())


@schedules.command(short_help="Resume a paused schedule.")
@click.argument("queue")
@click.argument("name")
@on_store
def resume(session: Session, *, queue: str, name: str) -> None:
    """Resume the schedule NAME of QUEUE, at its next occurrence after now."""
    resumed = _schedules_of(session, queue).resume(name)
    session.output.done(f"schedule {name} of queue {queue}: next {_moment(resumed)}", resumed.as_json())


@schedules.command(short_help="Send a message of a schedule now.")
@click.argument("queue")
@click.argument("name")
@on_store
def run(session: Session, *, queue: str, name: str) -> None:
    """Send a message of the schedule NAME of QUEUE now, in addition to its occurrences."""
    ran = _schedules_of(session, queue).run(name)
    session.output.done(str(ran.message), {"name": name, "message": str(ran.message)})


@schedules.command(short_help="Send a message for each occurrence of a range.")
@click.argument("queue")
@click.argument("name")
@click.option(
    "--since",
    type=Moment(ages=True),
    required=True,
    metavar="MOMENT",
    help="First moment of the range (inclusive): 2026-11-21T09:00:00Z, or an age such as 2h.",
)
@click.option(
    "--until",
    type=Moment(ages=True),
    required=True,
    metavar="MOMENT",
    help="Last moment of the range (inclusive); not in the future.",
)
@on_store
def backfill(session: Session, *, queue: str, name: str, since: datetime, until: datetime) -> None:
    """Send a message for each occurrence of the schedule NAME of QUEUE in a range, fired before or not."""
    sent = _schedules_of(session, queue).backfill(name, since, until)
    session.output.done(f"sent {counted(sent, 'message')} to {queue}", {"name": name, "sent": sent})


@schedules.command(short_help="Delete a schedule.")
@click.argument("queue")
@click.argument("name")
@on_store
def delete(session: Session, *, queue: str, name: str) -> None:
    """Delete the schedule NAME of QUEUE. Messages that it has sent stay."""
    from astyqueue.model.schedule import Origin

    schedules = _schedules_of(session, queue)
    declared = False
    with suppress(Undecodable):  # one that a newer astyqueue wrote can be deleted nevertheless
        declared = schedules.get(name).stored.origin is Origin.CODE
    if not schedules.delete(name):
        message = f"queue {queue!r} has no schedule {name!r}"
        raise NotFound(message)
    again = "; if code still declares it, the next worker to start adds it again" if declared else ""
    session.output.done(f"deleted schedule {name} of queue {queue}{again}", {"name": name, "deleted": True})


@schedules.command(
    short_help="Apply the schedules that an app declares.",
    help="""Make the schedules that APP declares the current ones in all queues of its store, even if a later release is
    current: to roll back, or to remove schedules that are no longer declared.

    A worker does the same when it starts, unless a later release is current; but it removes no schedules, except with
    App(release=...).
    """,
    epilog="""\b
    astyqueue schedules reconcile shop.tasks:app --prune --dry-run
    astyqueue schedules reconcile shop.tasks:app --prune
    """,
)
@click.argument("app", envvar="ASTYQUEUE_APP")
@click.option(
    "--prune",
    cls=Deliberate,
    is_flag=True,
    help="Remove schedules that another release of APP declared and this one does not.",
)
@click.option("--dry-run", is_flag=True, help="Only print what would be done.")
@url_option
@json_option
@verbose_option
@click.pass_context
def reconcile(
    context: click.Context, /, *, app: str, prune: bool, dry_run: bool, url: str | None, as_json: bool
) -> None:
    """Print each change made."""
    from astyqueue.cli.commands.worker import is_used, load_app

    with load_app(app) as found:
        if url and is_used(context, "url", found.url):
            found.url = url
        done = found.reconcile_all(prune=prune, dry_run=dry_run)
    changes = [(queue, what, name) for queue, one in done.items() for what in _DID for name in getattr(one, what)]
    for queue, what, name in changes:
        change = f"{_DID[what][dry_run]} schedule {name} of queue {queue}"
        facts = {"queue": queue, "schedule": name, "did": what, "dry_run": dry_run}
        click.echo(json_line(facts) if as_json else printable(change))
    if not changes and not as_json:
        click.echo("all schedules are as the app declares them")


@schedules.command(name="next", short_help="List the next occurrences of a schedule.")
@click.argument("queue")
@click.argument("name")
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of occurrences to list.",
)
@on_store
def next_occurrences(session: Session, *, queue: str, name: str, count: int) -> None:
    """List the next occurrences of the schedule NAME of QUEUE."""
    occurrences = _schedules_of(session, queue).next(name, count)
    session.output.listing(
        occurrences,
        shown=lambda occurrence: {"occurrence": occurrence},
        as_json=lambda occurrence: {"occurrence": exact(occurrence)},
        none="there are no further occurrences",
    )


def _trigger(options: Mapping[str, Any]) -> Trigger:
    """The trigger from the options of `add`; BadInput unless exactly one is given."""
    from astyqueue.triggers import Cron, Every, Once

    cron, every, at, count, zone = (options[name] for name in ("cron", "every", "at", "count", "zone"))
    if sum(one is not None for one in (cron, every, at)) != 1:
        message = "no trigger, or more than one: give one of --cron, --every and --at"
        raise BadInput(message)
    if zone is not None and cron is None:
        message = "--zone needs --cron: intervals and moments are the same in every zone"
        raise BadInput(message)
    if count is not None and at is not None:
        message = "--count needs --cron or --every: --at has one occurrence"
        raise BadInput(message)
    if cron is not None:
        return Cron(cron, "UTC" if zone is None else zone, count=count)
    return Every(every, count=count) if every is not None else Once(at)


def _row(found: Scheduled) -> Record:
    last = found.last
    return {
        "name": found.name,
        "next": found.next,
        "paused": found.paused or None,
        "last": last.occurrence if last else None,
        "fired": found.stored.fired,
        "skipped": found.stored.skipped,
        "trigger": _in_words(found.trigger),
    }


def _in_full(found: Scheduled) -> Record:
    """All properties except the last firings, which are printed as a table."""
    from astyqueue.clock import instant

    facts = {name: value for name, value in found.as_json().items() if name != "history"}
    moments = {"next": found.next, "created": instant(found.stored.created)}
    return {
        **facts,
        "trigger": _in_words(found.trigger),
        "body": json.dumps(facts["body"], ensure_ascii=False),
        **moments,
    }


def _firing(fired: Fired) -> Record:
    return {
        "occurrence": fired.occurrence,
        "occurrences": fired.occurrences,
        "at": fired.at,
        "message": fired.message and str(fired.message),
        "why": fired.why,
    }


def _in_words(trigger: object) -> str:
    """Simple triggers as text, such as `every 5m`; others as JSON."""
    from astyqueue.clock import instant
    from astyqueue.text import duration_setting_text

    match trigger:
        case {"kind": "cron", "expression": str(expression), "zone": str(zone), "form": "unix", **more} if not set(
            more
        ) - {"count"}:
            return f"cron {expression} ({zone}){_times(more)}"
        case {"kind": "every", "interval_us": int(interval), **more} if not set(more) - {"count"}:
            return f"every {duration_setting_text(interval)}{_times(more)}"
        case {"kind": "once", "at_us": int(at)}:
            return f"once {iso(instant(at))}"
    return json.dumps(trigger, ensure_ascii=False)


def _times(more: Mapping[object, object]) -> str:
    return f", {more['count']} times" if more else ""


def _moment(found: Scheduled) -> str:
    return "none" if found.next is None else iso(found.next)
