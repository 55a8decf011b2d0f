"""`astyqueue history`: the recorded events of a message, a key or a queue."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import click

from astyqueue.cli.context import HowMany, Session, on_store
from astyqueue.cli.params import Moment
from astyqueue.errors import BadInput
from astyqueue.printable import indented, printable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from astyqueue.cli.output import Record
    from astyqueue.model.event import Event


@click.command(
    short_help="Show the history of a message, a key or a queue.",
    epilog="""\b
    astyqueue history 'emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21'
    astyqueue history emails --key welcome:ada
    astyqueue history emails --since 2026-11-21T09:00:00Z --kind dead --kind failed
    """,
)
@click.argument("what", metavar="ID|QUEUE")
@click.option(
    "--key",
    metavar="KEY",
    help="With QUEUE: only events of messages with this key, or of the schedule of this name.",
)
@click.option(
    "--since",
    type=Moment(ages=True),
    metavar="MOMENT",
    help="Only events at MOMENT or later: 2026-11-21T09:00:00Z, or an age such as 2h. [default: all events kept]",
)
@click.option(
    "--until",
    type=Moment(ages=True),
    metavar="MOMENT",
    help="Only events before MOMENT (as for --since). [default: now]",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only events of this kind, such as failed or dead; may be repeated. [default: all]",
)
@click.option("-n", "--limit", type=HowMany(), metavar="N", help="Show the first N events. [default: all]")
@click.option("--last", type=HowMany(), metavar="N", help="Show the last N events.")
@click.option("--trace", is_flag=True, help="Show the tracebacks of failures.")
@on_store
def history(
    session: Session,
    *,
    what: str,
    key: str | None,
    since: datetime | None,
    until: datetime | None,
    trace: bool,
    limit: int | None,
    last: int | None,
    kinds: tuple[str, ...],
) -> None:
    """Show the events of the message ID, or of a QUEUE, oldest first. Claims nothing.

    The settings of the queue say which events are kept (history=none; failures: only failures and their consequences;
    all) and for how long (history_kept=30d).
    """
    queue, _, is_id = what.partition(":")
    if is_id and key is not None:
        problem = "with --key, name the queue: astyqueue history QUEUE --key KEY"
        raise BadInput(problem)
    if limit is not None and last is not None:
        problem = "--limit shows the first events, --last the last: give one of them"
        raise BadInput(problem)
    opened = session.queue(queue)
    more = limit and limit + 1
    id_ = what if is_id else None
    events = opened.history(id_, key=key, since=since, until=until, kinds=kinds, limit=more)
    if last is not None:
        events = iter(deque(events, maxlen=last))
    none = _none(queue, opened.settings.behaviour.history, limited=any([key, since, until, kinds]))
    if trace and not session.output.as_json:
        _print_traces(islice(events, limit), none)
        session.output.say_if_more(events, limit)
        return
    session.output.listing(events, shown=_shown, none=none, limit=limit)


def _none(queue: str, kept: str, *, limited: bool) -> str:
    """Why there are no events to show."""
    what = {"none": "records nothing", "failures": "records failures only"}.get(kept)
    remedy = f"'astyqueue queues set {queue} history=all' records everything from now on"
    if what is not None:
        return f"no such events; queue {queue} {what} (history={kept}): {remedy}"
    return "no event matches" if limited else "no events yet, or none within history_kept"


def _shown(event: Event) -> Record:
    return {
        "at": event.when,
        "kind": f"{event.kind} (lost)" if event.lost else str(event.kind),
        "message": str(event.message) if event.message else None,
        "key": event.key,
        "attempt": event.attempt or None,
        "worker": event.worker,
        "why": ": ".join(filter(None, (event.why, event.reason))) or None,
    }


def _print_traces(events: Iterable[Event], none: str) -> None:
    from astyqueue.text import iso

    event = None
    for event in events:
        click.echo(printable(f"{iso(event.when)}  {event.kind}  {event.message or event.key}  {event.reason}"))
        if event.trace:
            click.echo(indented(event.trace.rstrip("\n")))
    if event is None:
        click.echo(none)
