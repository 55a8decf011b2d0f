"""`astyqueue delete`, `clear` and `drop`: what destroys messages."""

from __future__ import annotations

import click

from astyqueue.cli.session import Session, must_be_meant, on_store, yes_option


@click.command(short_help="Delete messages by their ids.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@on_store
def delete(session: Session, *, ids: tuple[str, ...]) -> None:
    """Delete messages, whether they wait, are being worked on or are dead letters.

    Whoever works on one of them may finish, and finds then that it was deleted.
    """
    from astyqueue.errors import NotFound
    from astyqueue.model.message import MessageId

    wanted = [MessageId.parse(text) for text in ids]
    deleted = {str(id_): session.queue(id_.queue).delete(id_) for id_ in wanted}
    for text in (text for text, done in deleted.items() if done):
        session.output.done(f"deleted {text}", {"id": text, "deleted": True})
    if missing := [text for text, done in deleted.items() if not done]:
        message = f"not there (any more): {', '.join(missing)}"
        raise NotFound(message)


@click.command(short_help="Delete all messages of a queue.")
@click.argument("queue")
@yes_option
@on_store
def clear(session: Session, *, queue: str, yes: bool) -> None:
    """Delete all messages of QUEUE, dead letters included; the queue and its settings stay."""
    opened = session.queue(queue)
    must_be_meant(yes, f"This would delete all {opened.counts().total} messages of queue {queue} for good.")
    cleared = opened.clear()
    session.output.done(f"deleted {cleared} messages of queue {queue}", {"queue": queue, "deleted": cleared})


@click.command(short_help="Delete a queue with all that is in it.")
@click.argument("queue")
@yes_option
@on_store
def drop(session: Session, *, queue: str, yes: bool) -> None:
    """Delete QUEUE: its messages, its dead letters and its settings. What its history tells is kept for as long as it was to be."""
    opened = session.queue(queue)
    must_be_meant(yes, f"This would delete queue {queue} and its {opened.counts().total} messages for good.")
    opened.drop()
    session.output.done(f"dropped queue {queue}", {"queue": queue, "dropped": True})
