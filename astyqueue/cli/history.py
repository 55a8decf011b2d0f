"""`astyqueue history`: what happened."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

import click

from astyqueue.cli.moments import past
from astyqueue.cli.session import Session, on_store
from astyqueue.errors import BadInput
from astyqueue.printable import indented, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from astyqueue.cli.output import Record
    from astyqueue.model.event import Event


@click.command(
    short_help="Tell what happened to a message, a key or a queue.",
    epilog="""\b
    astyqueue history 'emails:0:0/0/9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21'
    astyqueue history emails --key welcome:ada
    astyqueue history emails --since 2026-11-21T09:00:00Z --kind dead --kind failed
    """,
)
@click.argument("what", metavar="ID|QUEUE")
@click.option("--key", metavar="KEY", help="Of the messages of this key, or of the schedule of this name; with QUEUE.")
@click.option(
    "--since",
    metavar="MOMENT",
    help="From then on: 2026-11-21T09:00:00Z, or 2h for two hours ago. Unless said, as far back as events are kept.",
)
@click.option("--until", metavar="MOMENT", help="Before then; otherwise until now.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind, such as failed or dead; may be repeated.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Tell the first so many; otherwise all.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Tell the last so many.")
@click.option("--trace", is_flag=True, help="Show the tracebacks of what failed.")
@on_store
def history(
    session: Session, *, what: str, trace: bool, limit: int | None, last: int | None, kinds: tuple[str, ...], **asked: str | None
) -> None:
    """Tell what happened to the message ID, or in a QUEUE, in order of time; nothing is taken.

    Which events are kept is a setting of the queue: history=none, failures (what went wrong, and what came of that) or all;
    and for how long, history_kept=30d.
    """
    queue, _, is_id = what.partition(":")
    if is_id and asked["key"] is not None:
        problem = "with --key, name the queue: astyqueue history QUEUE --key KEY"
        raise BadInput(problem)
    if limit is not None and last is not None:
        problem = "--limit tells the first events, --last the last: give one of them"
        raise BadInput(problem)
    since, until = (past(asked[name]) for name in ("since", "until"))
    opened = session.queue(queue)
    told = opened.history(what if is_id else None, key=asked["key"], since=since, until=until, kinds=kinds, limit=limit and limit + 1)
    if last is not None:
        told = iter(deque(told, maxlen=last))
    if trace and not session.output.as_json:
        _tell_traces(islice(told, limit))
        return
    none = _none(queue, opened.settings.behaviour.history, limited=any([*asked.values(), kinds]))
    session.output.listing(told, shown=_shown, none=none, limit=limit)


def _none(queue: str, kept: str, *, limited: bool) -> str:
    """Why there is nothing to tell."""
    what = {"none": "records nothing", "failures": "records failures only"}.get(kept)
    remedy = f"'astyqueue queues set {queue} history=all' records everything from now on"
    if what is not None:
        return f"no such events; queue {queue} {what} (history={kept}): {remedy}"
    return "no event is like that" if limited else "nothing has happened yet, or not within history_kept"


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


def _tell_traces(events: Iterable[Event]) -> None:
    from astyqueue.model.moments import iso

    for event in events:
        click.echo(printable(f"{iso(event.when)}  {event.kind}  {event.message or event.key}  {event.reason}"))
        if event.trace:
            click.echo(indented(event.trace.rstrip("\n")))
