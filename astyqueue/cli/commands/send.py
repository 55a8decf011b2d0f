"""`astyqueue send`: send one message, or one for each line of stdin."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Final

import click

from astyqueue.cli.context import Session, interruption, on_store
from astyqueue.cli.errors import ExitCode, Failure, code_of
from astyqueue.cli.params import DurationText, Moment
from astyqueue.errors import AstyqueueError, BadInput
from astyqueue.printable import printable_message
from astyqueue.text import counted

if TYPE_CHECKING:
    from astyqueue.cli.output import Output
    from astyqueue.model.message import Message
    from astyqueue.queue.producing.producer import SendReport
    from astyqueue.queue.queue import MessageQueue

_STDIN = "-"
#: What `json` says of text behind the first value.
_MORE: Final = "Extra data"
#: Lines sent together; Ctrl-C is checked between two chunks.
_CHUNK: Final = 1_000
#: Bytes of lines kept in memory; beyond that, lines are kept in a temporary file.
_IN_MEMORY: Final = 16 * 1024 * 1024
#: Characters of a line: the longest body (1 MiB) with each byte written as an escape, and as much again for blanks.
_LONGEST: Final = 12 * 1024 * 1024


class _SendCommand(click.Command):
    """The command `send`, whose errors of usage repeat no part of a body."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; UsageError for a body in several words, and for a negative number taken as option."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not error.option_name[1:2].isdecimal():
                raise
            ctx.fail("a negative number is read as an option: write -- before QUEUE, as in 'send -- emails -5'")
        if rest and not ctx.resilient_parsing:
            ctx.fail(f"there is more behind QUEUE and BODY ({counted(len(rest), 'word')}): put BODY into quotes")
        return rest


@click.command(
    cls=_SendCommand,
    context_settings={"allow_extra_args": True},
    short_help="Send a message, or one for each line of stdin.",
    help="""Send BODY, a JSON value, to QUEUE, and print the id of the message. Before a negative number write --.

    If BODY is -, it is read from stdin; with --lines, each line of stdin is the body of one message. Stdin is read to
    its end and all lines are checked before the first message is sent, so an invalid line or an endless input sends
    nothing. Input beyond 16 MiB is kept in a temporary file. Ctrl-C stops within 1000 messages and prints the line to
    continue at.

    To call a task, name it with --task and give its arguments as a JSON list (by position) or a JSON object (by name).
    """,
    epilog="""\b
    astyqueue send emails '{"to": "ada@example.org"}' --delay 10m
    astyqueue send emails --task shop.mail.welcome '["ada@example.org"]'
    astyqueue send emails --lines - < bodies.jsonl
    """,
)
@click.argument("queue")
@click.argument("body")
@click.option("--task", metavar="NAME", help="Task to call, with BODY as its arguments. [default: none, a plain body]")
@click.option(
    "--delay",
    type=DurationText(),
    metavar="DURATION",
    help="Due this long after now: 10m, 1h30m, or a number of seconds. [default: 0]",
)
@click.option("--at", type=Moment(), metavar="MOMENT", help="Due at MOMENT: 2026-11-21T09:00:00+01:00. [default: now]")
@click.option("--key", help="Key of the message: a name of your own to find it by.")
@click.option(
    "--group",
    help="Message group. At most one message of GROUP is leased at a time, in order. [default: none]",
)
@click.option(
    "--unique",
    type=click.Choice(["reject", "keep", "replace", "debounce", "supersede"]),
    help="Let at most one message sent with --unique (repeating ones included) have KEY. If KEY is taken: reject=fail, "
    "keep=keep the existing message, replace=replace it and keep its due time, debounce=replace it and use the due "
    "time given here, supersede=as debounce, and while the other is leased this one is sent beside it and the "
    "other is not delivered again. Messages with KEY but sent without --unique do not count. "
    "[default: no uniqueness]",
)
@click.option(
    "--priority",
    type=int,
    default=0,
    show_default=True,
    help="Higher priorities first. Default queues have a single priority, 0.",
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    metavar="NAME=TEXT",
    help="Text sent beside the body; may be repeated.",
)
@click.option(
    "--expires",
    type=DurationText(),
    metavar="DURATION",
    help="Dead-letter it if it is not delivered within this time after it is due. [default: never]",
)
@click.option(
    "--lease",
    type=DurationText(),
    metavar="DURATION",
    help="How long a consumer has it before it is handed out again; 0: at most once. [default: the queue's lease]",
)
@click.option(
    "--max-attempts",
    type=int,
    help="Dead-letter it after this many attempts. [default: the queue's max_attempts]",
)
@click.option("--lines", is_flag=True, help="Send one message for each line of stdin.")
@click.option("--from-line", type=click.IntRange(1), metavar="N", help="With --lines: begin at line N. [default: 1]")
@click.option("--create", is_flag=True, help="Create the queue, and the SQLite file, if they do not exist.")
@on_store
def send(
    session: Session, *, queue: str, body: str, lines: bool, from_line: int | None, create: bool, **options: object
) -> None:
    """Send one message or many."""
    if not create:
        session.check(queue, hint=" (--create creates it)")
    if lines:
        if body != _STDIN:
            problem = "--lines reads the bodies from stdin: give - as BODY"
            raise BadInput(problem)
        LineSender(_opened(session, queue, create=create), lambda line: message_of(line, options)).send(
            sys.stdin, session.output, since=from_line or 1
        )
        return
    if from_line is not None:
        problem = "--from-line needs --lines: add it, or leave out --from-line"
        raise BadInput(problem)
    text = _one_value(_all_of(sys.stdin)) if body == _STDIN else body
    message = message_of(text, options)
    sent = _opened(session, queue, create=create).send(message)
    session.output.done(str(sent.id), {"id": str(sent.id), "new": sent.new})
    if not sent.new:
        click.echo(
            printable_message(f"astyqueue: nothing was sent: this message has the key {message.key!r}"), err=True
        )


def _opened(session: Session, queue: str, *, create: bool) -> MessageQueue:
    """The queue, which is created with `create`; otherwise NotFound if there is none."""
    return session.connection.queue(queue) if create else session.connection.existing_queue(queue)


def _all_of(source: IO[str]) -> str:
    try:
        return source.read()
    except UnicodeDecodeError as error:
        problem = f"stdin must be UTF-8: {error}. Nothing was sent"
        raise BadInput(problem) from error


def _one_value(text: str) -> str:
    """The text itself; BadInput if it has one JSON value after the other, in several lines."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:  # what begins with something else is refused as any body is
        if isinstance(error, json.JSONDecodeError) and error.msg == _MORE and error.lineno > 1:
            problem = (
                f"stdin has several JSON values, the second in line {error.lineno}: add --lines if each line is a "
                "message, or make a list of them for one message"
            )
            raise BadInput(problem) from error
    return text


def message_of(text: str, options: dict[str, object]) -> Message:
    """A message with this body and the options of the command line."""
    from astyqueue.model.message import Message

    given = {name: value for name, value in options.items() if name not in {"task", "headers"}}
    task = options["task"]
    headers = _headers(options.get("headers"))
    body = _body(text)
    if task == "":
        problem = "--task is empty: give the name of a task, or leave out --task to send a plain body"
        raise BadInput(problem)
    if task is not None:
        body, headers = _arguments(body), {**headers, "task": str(task)}
    return Message(body, headers=headers or None, **given)  # type: ignore[arg-type]  # checked as it is sent


def _body(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_object)
    except BadInput:
        raise
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        message = f"the body is not JSON ({why}); quote text, as in '\"hello\"'"
        raise BadInput(message) from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = (
            f"the body has an object with two values for {twice!r:.40}, of which one would be lost: name each once"
        )
        raise BadInput(message)
    return found


def _arguments(body: object) -> dict[str, object]:
    from astyqueue.model.body import call_body

    if (call := call_body(body)) is not None:
        return call
    message = 'invalid task arguments: give a JSON list, as in ["ada@example.org"], or a JSON object by name'
    raise BadInput(message)


def _headers(pairs: object) -> dict[str, str]:
    texts = [str(pair) for pair in pairs] if isinstance(pairs, tuple) else []
    if wrong := [text for text in texts if text.startswith("=") or "=" not in text]:
        message = f"invalid header {wrong[0]!r}: write NAME=TEXT"
        raise BadInput(message)
    found = [(name, value) for name, _, value in (text.partition("=") for text in texts)]
    names = [name for name, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        message = f"header {twice!r} is given twice, and one would be lost: give each once"
        raise BadInput(message)
    return dict(found)


Lines = Iterable[tuple[int, str]]


@dataclass(slots=True)
class _Done:
    """How many lines were sent or rejected so far, and the first line not sent if Ctrl-C was pressed."""

    sent: int = 0
    taken: int = 0
    kept: int = 0
    interrupted_at: int | None = None

    def add(self, report: SendReport) -> None:
        self.sent += report.sent
        self.taken += len(report.taken)
        self.kept += len(report.kept)

    def sentence(self, queue: str) -> str:
        earlier = self.taken + self.kept
        others = f"; not sent because the key was taken: {earlier}" if earlier else ""
        rest = f"; interrupted: continue with --from-line {self.interrupted_at}" if self.interrupted_at else ""
        return f"sent {counted(self.sent, 'message')} to {queue}{others}{rest}"

    @property
    def code(self) -> ExitCode:
        if self.interrupted_at:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.taken else ExitCode.DONE


class LineSender:
    """Sends the lines of a stream to one queue; `made` turns a line into a message."""

    def __init__(self, queue: MessageQueue, made: Callable[[str], Message]) -> None:
        """Prepare to send; sends nothing yet."""
        self._queue = queue
        self._made = made

    def send(self, source: IO[str], output: Output, *, since: int = 1) -> None:
        """Send the lines from number `since` on, and print how many. An invalid line raises BadInput; none is sent."""
        with self._checked(source, since) as lines:
            done = self._send_all(lines)
        facts = {
            "queue": self._queue.name,
            "sent": done.sent,
            "taken": done.taken + done.kept,
            "interrupted_at": done.interrupted_at,
        }
        output.done(done.sentence(self._queue.name), facts)
        if done.code:
            raise click.exceptions.Exit(done.code)

    @contextmanager
    def _checked(self, source: IO[str], since: int) -> Iterator[Lines]:
        """The lines with their numbers, after a check that the queue accepts each of them."""
        with tempfile.SpooledTemporaryFile(
            _IN_MEMORY, "w+", encoding="utf-8", errors="surrogateescape", newline="\n"
        ) as spool:
            try:
                for number, line in _numbered(source, since):
                    self._check(number, line)
                    spool.write(f"{number} {line}\n")
                spool.seek(0)
            except OSError as error:
                with suppress(OSError):
                    spool.close()  # which writes again what could not be written
                room = f"make room in {tempfile.tempdir or 'the temporary folder'}, or set TMPDIR"
                problem = f"{error}. Nothing was sent: {room}"
                raise Failure(problem) from error
            yield _read_back(spool)

    def _check(self, number: int, line: str) -> None:
        from astyqueue.model.message import MessageEncoder

        try:
            message = self._made(line)
            MessageEncoder(self._queue.settings, self._queue.core.process.now()).prepare(message.body, message)
        except BadInput as error:
            problem = f"line {number}: {error}. Nothing was sent"
            raise BadInput(problem) from error

    def _send_all(self, lines: Lines) -> _Done:
        done, source = _Done(), iter(lines)
        with interruption() as interrupted:
            while chunk := list(islice(source, _CHUNK)):
                if interrupted():
                    done.interrupted_at = chunk[0][0]
                    break
                done.add(self._sent(chunk, before=done.sent))
        return done

    def _sent(self, chunk: list[tuple[int, str]], *, before: int) -> SendReport:
        first = chunk[0][0]
        try:
            return self._queue.send_many(self._made(line) for _, line in chunk)
        except AstyqueueError as error:
            message = (
                f"{error}. {counted(before, 'message')} had been sent before, "
                f"and some of lines {first} to {chunk[-1][0]} may have been: "
                f"check the queue, or continue with --from-line {first}, which may send those again"
            )
            raise Failure(message, code_of(type(error))) from error


def _numbered(source: IO[str], since: int) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers, from `since` on."""
    number = 0
    try:
        for number, line in enumerate(iter(lambda: source.readline(_LONGEST + 1), ""), 1):
            if len(line) > _LONGEST:
                problem = f"line {number} is longer than {_LONGEST} characters, longer than any body. Nothing was sent"
                raise BadInput(problem)
            if number >= since and line.strip():
                yield number, line.rstrip("\n")
    except UnicodeDecodeError as error:
        before = error.object[: error.start] + b"."  # what follows the line that was read last
        wrong = number + len(before.splitlines())
        problem = f"line {wrong} is not UTF-8 ({error.reason}: 0x{error.object[error.start]:02x}). Nothing was sent"
        raise BadInput(problem) from error
    except OSError as error:
        problem = f"after line {number}: {error}. Nothing was sent"
        raise Failure(problem) from error


def _read_back(spool: IO[str]) -> Iterator[tuple[int, str]]:
    for line in spool:
        number, _, text = line.rstrip("\n").partition(" ")
        yield int(number), text
