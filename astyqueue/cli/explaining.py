"""`astyqueue explain`: why a message has not run yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from astyqueue.cli.session import Session, on_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from astyqueue.model.explanation import Explanation


@click.command(short_help="Say why a message has not run yet.")
@click.argument("id", metavar="ID")
@on_store
def explain(session: Session, **ids: str) -> None:
    """Say why the message ID has not run yet, and what the store knows of its life; nothing is taken.

    It may wait for its time, for somebody to take it, or for a rest to end; somebody may have it in hand; it may be a dead
    letter, or gone.
    """
    from astyqueue.model.message import MessageId

    id_ = MessageId.parse(ids["id"])
    found = session.queue(id_.queue).explain(id_)
    session.output.lines(_lines(found), found.as_json())


def _lines(found: Explanation) -> Iterator[str]:
    from astyqueue.model.moments import told_at

    standing = found.standing.value.replace("_", " ") if found.standing else "gone"
    yield f"{found.id} is {standing}: {found.why}."
    if found.life:
        yield ""
    moments = ["" if event.at is None else told_at(event.at, found.now) for event in found.life]
    for moment, event in zip(moments, found.life, strict=True):
        yield f"{moment:<{max(map(len, moments))}}  {event.what}"
