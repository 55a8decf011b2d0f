"""`astyqueue schedules`: what a queue sends by itself, and when."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from astyqueue.cli.files import Deliberate
from astyqueue.cli.moments import moment, written
from astyqueue.cli.output import json_line
from astyqueue.cli.session import Session, json_option, on_store, url_option, verbose_option
from astyqueue.errors import BadInput
from astyqueue.model.moments import exact, iso
from astyqueue.printable import printable

#: What `reconcile` says of a schedule: as it was done, and as it would be.
_TOLD: Final = {
    "removed": ("removed", "would remove"),
    "saved": ("saved", "would save"),
    "stale": ("left (--prune removes it)", "would leave (--prune removes it)"),
}

if TYPE_CHECKING:
    from collections.abc import Mapping

    from astyqueue.cli.output import Record
    from astyqueue.schedule import Scheduled, Schedules
    from astyqueue.schedule.views import Fired
    from astyqueue.triggers import Trigger


@click.group(short_help="List, add and change schedules.")
def schedules() -> None:
    """What queues send by themselves, at which moments, and what became of it."""


def _of(session: Session, queue: str) -> Schedules:
    from astyqueue.schedule import Schedules

    return Schedules(session.queue(queue))


@schedules.command(name="list", short_help="List the schedules of a queue.")
@click.argument("queue")
@on_store
def list_schedules(session: Session, *, queue: str) -> None:
    """List the schedules of QUEUE."""
    session.output.listing(_of(session, queue).all(), shown=_row, none=f"queue {queue} has no schedule")


@schedules.command(short_help="Show a schedule and its last firings.")
@click.argument("queue")
@click.argument("name")
@on_store
def show(session: Session, *, queue: str, name: str) -> None:
    """Show the schedule NAME of QUEUE, and what became of its last slots."""
    found = _of(session, queue).get(name)
    session.output.one(found, shown=_in_full)
    if found.history and not session.output.as_json:
        click.echo()
        session.output.listing(found.history, shown=_firing, none="")


@schedules.command(
    short_help="Send a body at each slot of a trigger.",
    epilog="""\b
    astyqueue schedules add emails digest --cron "0 9 * * mon-fri" --zone Europe/Paris --body '{"to": "ada"}'
    astyqueue schedules add emails refresh --every 5m --task shop.tasks.refresh
    """,
)
@click.argument("queue")
@click.argument("name")
@click.option("--cron", metavar="EXPRESSION", help='When the clocks show this: "0 9 * * mon-fri".')
@click.option("--every", metavar="DURATION", help="At even distances, from now on: 5m.")
@click.option("--at", metavar="MOMENT", help="Once: 2026-11-21T09:00:00+01:00.")
@click.option("--zone", metavar="ZONE", help="The time zone of --cron; UTC unless said.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="So many slots in all, of --cron or --every.")
@click.option("--body", default="null", metavar="JSON", help="What is sent; with --task its arguments, a list or an object.")
@click.option("--task", metavar="NAME", help="Call this task.")
@click.option("--key", help="A handle of your own for the messages.")
@click.option("--priority", type=int, default=0, show_default=True, help="The greatest goes first.")
@click.option(
    "--misfire", default="once", show_default=True, metavar="POLICY", help="Slots that come late: once, latest, all, skip, within 1h."
)
@click.option("--overlap", default="allow", show_default=True, metavar="POLICY", help="allow, skip, queue one, queue all, cancel running.")
@click.option("--after-failure", default="go on", show_default=True, metavar="POLICY", help="go on, or pause.")
@click.option("--replace", is_flag=True, help="Replace a schedule of this name, if there is one.")
@on_store
def add(session: Session, *, queue: str, name: str, replace: bool, **options: object) -> None:
    """Have QUEUE send a message at each slot, under the NAME of a schedule."""
    from astyqueue.cli.send import message_of

    message = message_of(str(options["body"]), {"task": options["task"], "key": options["key"], "priority": options["priority"]})
    policies = {policy: str(options[policy]) for policy in ("misfire", "overlap", "after_failure")}
    made = _of(session, queue).add(name, _trigger(options), message, replace=replace, **policies)
    session.output.done(f"schedule {name} of queue {queue}: next {_moment(made)}", made.as_json())


@schedules.command(short_help="Let a schedule fire nothing until it is resumed.")
@click.argument("queue")
@click.argument("name")
@click.option("--why", default="by hand", show_default=True, help="Shown to whoever looks at it.")
@on_store
def pause(session: Session, *, queue: str, name: str, why: str) -> None:
    """Pause the schedule NAME of QUEUE; slots that come meanwhile are skipped."""
    paused = _of(session, queue).pause(name, why)
    session.output.done(f"paused schedule {name} of queue {queue}", paused.as_json())


@schedules.command(short_help="Let a paused schedule go on.")
@click.argument("queue")
@click.argument("name")
@on_store
def resume(session: Session, *, queue: str, name: str) -> None:
    """Let the schedule NAME of QUEUE go on with its next slot from now on."""
    resumed = _of(session, queue).resume(name)
    session.output.done(f"schedule {name} of queue {queue}: next {_moment(resumed)}", resumed.as_json())


@schedules.command(short_help="Send a message of a schedule now.")
@click.argument("queue")
@click.argument("name")
@on_store
def run(session: Session, *, queue: str, name: str) -> None:
    """Send a message of the schedule NAME of QUEUE now, beside its slots."""
    ran = _of(session, queue).run(name)
    session.output.done(str(ran.message), {"name": name, "message": str(ran.message)})


@schedules.command(short_help="Send a message for each slot of a range.")
@click.argument("queue")
@click.argument("name")
@click.option(
    "--since", required=True, metavar="MOMENT", help="From this moment, itself included: 2026-11-21T09:00:00Z, or 2h for two hours ago."
)
@click.option("--until", required=True, metavar="MOMENT", help="Up to this moment, itself included.")
@on_store
def backfill(session: Session, *, queue: str, name: str, since: str, until: str) -> None:
    """Send a message for each slot of the schedule NAME of QUEUE in a range, whether or not it was fired."""
    sent = _of(session, queue).backfill(name, moment(since), moment(until))
    session.output.done(f"sent {sent} messages to {queue}", {"name": name, "sent": sent})


@schedules.command(short_help="Delete a schedule.")
@click.argument("queue")
@click.argument("name")
@on_store
def delete(session: Session, *, queue: str, name: str) -> None:
    """Delete the schedule NAME of QUEUE; messages that it has sent stay."""
    from astyqueue.model.schedules import Origin

    schedules = _of(session, queue)
    declared = schedules.get(name).stored.origin is Origin.CODE
    schedules.delete(name)
    again = "; code declares it, and a worker that starts makes it again" if declared else ""
    session.output.done(f"deleted schedule {name} of queue {queue}{again}", {"name": name, "deleted": True})


@schedules.command(
    short_help="Have the schedules of an app count.",
    help="""Have the schedules that APP declares count in all queues of its store, whichever release counted before: to roll back, or
    to remove what was declared once and no longer is.

    A worker that starts does the same unless a later release counts, but it removes nothing, except under App(release=...).
    """,
    epilog="""\b
    astyqueue schedules reconcile shop.tasks:app --prune --dry-run
    astyqueue schedules reconcile shop.tasks:app --prune
    """,
)
@click.argument("app", envvar="ASTYQUEUE_APP")
@click.option("--prune", cls=Deliberate, is_flag=True, help="Remove those that a release of APP declared and this one does not.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@url_option
@json_option
@verbose_option
@click.pass_context
def reconcile(context: click.Context, /, *, app: str, prune: bool, dry_run: bool, url: str | None, as_json: bool) -> None:
    """Print what was done to which schedule."""
    from astyqueue.cli.loading import load_app

    with load_app(app) as found:
        if url and (not found.url or context.get_parameter_source("url") is ParameterSource.COMMANDLINE):
            found.url = url
        done = found.reconcile_all(prune=prune, dry_run=dry_run)
    changes = [(queue, what, name) for queue, one in done.items() for what in ("removed", "saved", "stale") for name in getattr(one, what)]
    for queue, what, name in changes:
        told = f"{_TOLD[what][dry_run]} schedule {name} of queue {queue}"
        facts = {"queue": queue, "schedule": name, "did": what, "dry_run": dry_run}
        click.echo(json_line(facts) if as_json else printable(told))
    if not changes and not as_json:
        click.echo("all schedules are as the app declares them")


@schedules.command(name="next", short_help="List the next slots of a schedule.")
@click.argument("queue")
@click.argument("name")
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, metavar="N", help="How many.")
@on_store
def next_slots(session: Session, *, queue: str, name: str, count: int) -> None:
    """List the next slots of the schedule NAME of QUEUE."""
    slots = _of(session, queue).next(name, count)
    session.output.listing(slots, shown=lambda slot: {"slot": slot}, as_json=lambda slot: {"slot": exact(slot)}, none="there is none")


def _trigger(options: dict[str, object]) -> Trigger:
    """The trigger that the options of `add` tell of; exactly one of them does."""
    from astyqueue.triggers import Cron, Every, Once

    cron, every, at, count, zone = (options[name] for name in ("cron", "every", "at", "count", "zone"))
    if sum(one is not None for one in (cron, every, at)) != 1:
        message = "say when: one of --cron, --every and --at"
        raise BadInput(message)
    if zone is not None and cron is None:
        message = "--zone is for --cron: an interval and a moment are the same in every zone"
        raise BadInput(message)
    if count is not None and at is not None:
        message = "--count is for --cron and --every: --at is once"
        raise BadInput(message)
    counted = count if isinstance(count, int) else None
    if cron is not None:
        return Cron(str(cron), "UTC" if zone is None else str(zone), count=counted)
    return Every(str(every), count=counted) if every is not None else Once(written(str(at)))


def _row(found: Scheduled) -> Record:
    last = found.last
    return {
        "name": found.name,
        "next": found.next,
        "paused": found.paused or None,
        "last": last.slot if last else None,
        "fired": found.stored.fired,
        "skipped": found.stored.skipped,
        "trigger": _in_words(found.trigger),
    }


def _in_full(found: Scheduled) -> Record:
    """All of it but its last firings, which are a table of their own."""
    from astyqueue.clock import instant

    facts = {name: value for name, value in found.as_json().items() if name != "history"}
    moments = {"next": found.next, "created": instant(found.stored.created)}
    return {**facts, "trigger": _in_words(found.trigger), "body": json.dumps(facts["body"], ensure_ascii=False), **moments}


def _firing(fired: Fired) -> Record:
    return {"slot": fired.slot, "slots": fired.slots, "at": fired.at, "message": fired.message and str(fired.message), "why": fired.why}


def _in_words(trigger: object) -> str:
    """A trigger as one writes the simple ones; others as JSON."""
    from astyqueue.clock import instant
    from astyqueue.model.wording import spelled_duration

    match trigger:
        case {"kind": "cron", "expression": str(expression), "zone": str(zone), "form": "unix", **more} if not set(more) - {"count"}:
            return f"cron {expression} ({zone}){_times(more)}"
        case {"kind": "every", "interval_us": int(interval), **more} if not set(more) - {"count"}:
            return f"every {spelled_duration(interval)}{_times(more)}"
        case {"kind": "once", "at_us": int(at)}:
            return f"once {iso(instant(at))}"
    return json.dumps(trigger, ensure_ascii=False)


def _times(more: Mapping[object, object]) -> str:
    return f", {more['count']} times" if more else ""


def _moment(found: Scheduled) -> str:
    return "none" if found.next is None else iso(found.next)
