"""`astyqueue send`: messages from the command line."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from astyqueue.cli.lines import LineSender
from astyqueue.cli.moments import written
from astyqueue.cli.session import Session, on_store
from astyqueue.errors import BadInput
from astyqueue.printable import printable

if TYPE_CHECKING:
    from astyqueue.model.outgoing import Message

_STDIN = "-"


@click.command(
    short_help="Send a message, or one for each line of stdin.",
    help="""Send BODY, which is JSON, to QUEUE, and print the message's id.

    With - as BODY it is read from stdin; with --lines each line of stdin is the body of a message of its own. Stdin is read to
    its end, and all lines are checked, before the first is sent: a wrong one sends nothing, and so does an input that does not end.
    What is more than 16 MiB waits in a temporary file. Ctrl-C stops within a thousand messages and says where to go on.

    To call a task, name it with --task and give its arguments as a JSON list or, by name, as a JSON object.
    """,
    epilog="""\b
    astyqueue send emails '{"to": "ada@example.org"}' --delay 10m
    astyqueue send emails --task shop.mail.welcome '["ada@example.org"]'
    astyqueue send emails --lines - < bodies.jsonl
    """,
)
@click.argument("queue")
@click.argument("body")
@click.option("--task", metavar="NAME", help="Call this task.")
@click.option("--delay", metavar="DURATION", help='Hand it out after this long: "10m", "1h30m", seconds.')
@click.option("--at", metavar="MOMENT", help="Hand it out at this moment: 2026-11-21T09:00:00+01:00.")
@click.option("--key", help="A handle of your own for the message.")
@click.option(
    "--unique",
    type=click.Choice(["reject", "keep", "replace", "debounce"]),
    help="Of the messages sent with this option, also repeating ones, one has the key. While another has it: fail; keep that one; "
    "or take its place, due when that was or anew. Messages with the key and without this option are not concerned.",
)
@click.option(
    "--priority", type=int, default=0, show_default=True, help="The greatest goes first; a queue has one, 0, unless made with more."
)
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Text that travels with the body; repeat for more.")
@click.option("--expires", metavar="DURATION", help="Hand it to nobody once it has been due for this long.")
@click.option("--lease", metavar="DURATION", help="How long one delivery may take; 0 hands it out at most once.")
@click.option("--max-attempts", type=int, help="Make it a dead letter after so many attempts; unless said, the queue's number.")
@click.option("--lines", is_flag=True, help="One message for each line of stdin.")
@click.option("--from-line", type=click.IntRange(1), metavar="N", help="With --lines: leave out the lines before this one.")
@click.option("--create", is_flag=True, help="Create the queue if there is none of this name, and the SQLite file if there is none.")
@on_store
def send(session: Session, *, queue: str, body: str, lines: bool, from_line: int | None, create: bool, **options: object) -> None:
    """Send one message or many."""
    if not create:
        session.check(queue, hint=" (--create makes it)")
    if lines:
        if body != _STDIN:
            problem = "with --lines the bodies are read from stdin: give - as BODY"
            raise BadInput(problem)
        LineSender(session.connection.queue(queue), lambda line: message_of(line, options)).send(
            sys.stdin, session.output, since=from_line or 1
        )
        return
    if from_line is not None:
        problem = "--from-line is for --lines: add that, or leave this out"
        raise BadInput(problem)
    text = sys.stdin.read() if body == _STDIN else body
    message = message_of(text, options)
    sent = session.connection.queue(queue).send(message)
    session.output.done(str(sent.id), {"id": str(sent.id), "new": sent.new})
    if not sent.new:
        click.echo(printable(f"astyqueue: nothing was sent: this message has the key {message.key!r}"), err=True)


def message_of(text: str, options: dict[str, object]) -> Message:
    """A message with this body and the options of the command line."""
    from astyqueue.model.outgoing import Message

    given = {name: value for name, value in options.items() if name not in {"task", "headers", "at"}}
    task, at = options["task"], options.get("at")
    headers = _headers(options.get("headers"))
    body = _body(text)
    if task == "":
        problem = "--task names no task: give its name, or leave it out to send a plain body"
        raise BadInput(problem)
    if task is not None:
        body, headers = _arguments(body), {**headers, "task": str(task)}
    return Message(body, at=None if at is None else written(str(at)), headers=headers or None, **given)  # type: ignore[arg-type]  # checked as it is sent


def _body(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"the body is not JSON ({error}): {text.strip()!r:.80}; text needs its quotes, as in '\"hello\"'"
        raise BadInput(message) from error


def _arguments(body: object) -> dict[str, object]:
    if isinstance(body, list):
        return {"args": body, "kwargs": {}}
    if isinstance(body, dict):
        return {"args": [], "kwargs": body}
    message = 'the arguments of a task are a JSON list, as in ["ada@example.org"], or a JSON object by name'
    raise BadInput(message)


def _headers(pairs: object) -> dict[str, str]:
    texts = [str(pair) for pair in pairs] if isinstance(pairs, tuple) else []
    if wrong := [text for text in texts if not text.partition("=")[1]]:
        message = f"a header is NAME=TEXT, and this is not: {wrong[0]!r}"
        raise BadInput(message)
    return {name: value for name, _, value in (text.partition("=") for text in texts)}
