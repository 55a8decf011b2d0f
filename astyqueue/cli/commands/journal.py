"""`astyqueue journal`: show, examine and trim a journal in a folder of this machine."""

from __future__ import annotations

import json
import math
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from astyqueue.cli.commands.admin import show
from astyqueue.cli.config import Deliberate
from astyqueue.cli.context import (
    HowMany,
    Session,
    interruption,
    json_option,
    on_store,
    refuse_without_yes,
    verbose_option,
    yes_option,
)
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.output import json_line, output_now
from astyqueue.cli.params import Moment
from astyqueue.errors import BadInput
from astyqueue.findings import Severity, worst
from astyqueue.printable import printable, quoted
from astyqueue.text import counted, exact, iso
from astyqueue.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from astyqueue.journal import ReadOnlyJournal, Record

_LAST: Final = 10
#: How often a replay that follows looks for new records, in microseconds.
_LOOK_US: Final = SECOND // 10


@click.group(short_help="Show, examine and trim a journal.")
def journal() -> None:
    """A journal: records in pages in a folder of this machine, as astyqueue.journal keeps them.

    No command here but reclaim writes, and all of them work while a program has the journal open, except reclaim.
    """


def _on_journal(function: Callable[..., None]) -> Callable[..., None]:
    """Add the folder and the options that all commands share."""
    prefix = click.option(
        "--prefix", default="journal", show_default=True, metavar="NAME", help="The journal, if the folder has several."
    )
    folder = click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
    return verbose_option(json_option(prefix(folder(function))))


def _between(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that select records by their arrival."""
    since = click.option(
        "--since",
        type=Moment(ages=True),
        metavar="MOMENT",
        help="From MOMENT on: 2026-11-21T09:00:00Z, or an age such as 2h.",
    )
    until = click.option(
        "--until",
        type=Moment(ages=True),
        metavar="MOMENT",
        help="Only records that arrived before MOMENT (as for --since).",
    )
    return since(until(function))


@journal.command(
    short_help="Show records, and follow what arrives.",
    epilog="""\b
    astyqueue journal tail orders-journal -f
    astyqueue journal tail orders-journal --since 1h --json
    """,
)
@_on_journal
@_between
@click.option("--after", type=click.IntRange(0), metavar="SEQUENCE", help="From the record behind this one on.")
@click.option(
    "-n",
    "--last",
    type=HowMany(),
    metavar="N",
    help=f"The last N records; not with --since or --after. [default: {_LAST}]",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with records as they arrive, until Ctrl-C.")
def tail(
    *,
    folder: Path,
    prefix: str,
    since: datetime | None,
    until: datetime | None,
    after: int | None,
    last: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Show the last records of the journal in FOLDER, or those since a moment or behind a record.

    A value that is not JSON is shown as text. Records that cannot be read are passed, with a warning on stderr.
    """
    if sum(given is not None for given in (since, after, last)) > 1:
        message = "--since, --after and --last exclude each other: give one of them"
        raise BadInput(message)
    line = _as_json if as_json else _as_text
    with _opened(folder, prefix) as opened:
        if since is None and after is None:
            found, after = _last_records(opened, last or _LAST, until)
            for record in found:
                click.echo(line(record))
            if not follow:
                return
        with opened.read(since=since, after=after, until=until, follow=follow) as records:
            for record in records:
                click.echo(line(record))


def _last_records(opened: ReadOnlyJournal[bytes], count: int, end: datetime | None) -> tuple[deque[Record[bytes]], int]:
    """The last records that can be read, and the sequence behind which the next ones are.

    Sequences are missing where records were damaged or cut: it begins further back each time, until there are enough.
    """
    from astyqueue.journal.reader import LossLog

    stat = opened.stat()
    back, log = count, LossLog()
    while True:
        start = stat.last_sequence - back
        with opened.read(after=start if start >= stat.first_sequence else 0, until=end) as records:
            records.share_log(log)
            found = deque(records, maxlen=count)
        if len(found) == count or start < stat.first_sequence:
            return found, max(stat.last_sequence, found[-1].sequence if found else 0)
        back *= 4


@journal.command(short_help="Show sizes, sequences and cursors, and draw a page.")
@_on_journal
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Draw a page into FILE.")
@click.option("--page", type=click.IntRange(1), metavar="N", help="The page to draw. [default: the last]")
def stat(*, folder: Path, prefix: str, svg: Path | None, page: int | None, as_json: bool) -> None:
    """Show how large the journal in FOLDER is, which records it has, and where its cursors are."""
    from dataclasses import asdict

    from astyqueue.files import may_be_replaced, replace_file

    if page is not None and svg is None:
        message = "--page needs --svg: name a file to draw the page into"
        raise click.UsageError(message, click.get_current_context())
    if svg is not None and not may_be_replaced(svg):
        message = f"{svg} is a link, a pipe or a device, which a drawing does not replace: name a file"
        raise BadInput(message)
    with _opened(folder, prefix) as opened:
        found = asdict(opened.stat())
        del found["synced_sequence"], found["dropped_records"]  # only the process that writes knows them
        if svg is not None:
            replace_file(svg, opened.picture(page).encode())
    output = output_now(as_json=as_json)
    output.lines([f"{name.replace('_', ' '):<15}{_shown(value)}" for name, value in found.items()], found)


@journal.command(short_help="Read every record and say what is damaged.")
@_on_journal
@click.pass_context
def verify(context: click.Context, /, *, folder: Path, prefix: str, as_json: bool) -> None:
    """Read every record and cursor of the journal in FOLDER. Exit code 20 if a record is damaged, 10 for a warning."""
    with _opened(folder, prefix) as opened:
        found = opened.verify()
    show(found, as_json=as_json)
    if worst(found) >= Severity.WARNING:
        context.exit(ExitCode.PROBLEM if worst(found) is Severity.PROBLEM else ExitCode.WARNING)


@journal.command(short_help="Remove pages that are old, or that every cursor has passed.")
@_on_journal
@click.option("--retain", metavar="AGE", help="Only pages whose records are all older than AGE, such as 7d.")
@click.option(
    "--ignore-cursors",
    cls=Deliberate,
    is_flag=True,
    help="Remove pages that cursors have not passed, too; needs --retain.",
)
@yes_option
def reclaim(*, folder: Path, prefix: str, retain: str | None, ignore_cursors: bool, yes: bool, as_json: bool) -> None:
    """Remove pages of the journal in FOLDER, the oldest first, while no program has it open for writing.

    Without --retain: the pages that every cursor has passed; a journal without cursors needs it. If all may go, an
    empty page stays, which has the number of the next record.
    """
    from astyqueue.journal import Journal

    with _opened(folder, prefix) as opened:
        cursors = opened.stat().cursors
    if retain is None and (ignore_cursors or not cursors):
        why = "--ignore-cursors needs it" if ignore_cursors else "the journal has no cursor"
        message = f"{why}: say with --retain which records are old enough to go, such as --retain 7d"
        raise BadInput(message)
    if not yes:
        refuse_without_yes(f"This removes pages of the journal in {folder}.")
    with Journal.open(folder, prefix=prefix, retain=retain) as writable:
        removed = writable.reclaim(ignore_cursors=ignore_cursors, last_page=True)
        found = writable.stat()
    left = found.last_sequence - found.first_sequence + 1 if found.first_sequence else 0
    why = ": a page stays while one of its records is younger, or a cursor or reader needs it" if left else ""
    output = output_now(as_json=as_json)
    output.done(
        f"removed {counted(removed, 'page')}, {counted(left, 'record')} left{why}",
        {"removed_pages": removed, "records": left},
    )


@journal.command(
    short_help="Send a message for each record to a queue.",
    epilog="""\b
    astyqueue journal replay orders-journal orders --since 1h --where status=failed --dry-run
    astyqueue journal replay /var/spool/shop/queue-orders/1 orders --prefix refused
    """,
)
@click.option(
    "--prefix", default="journal", show_default=True, metavar="NAME", help="The journal, if the folder has several."
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("queue")
@_between
@click.option(
    "--where",
    "wanted",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only records whose field NAME has this value, as JSON or as text; may be repeated.",
)
@click.option(
    "--again", cls=Deliberate, is_flag=True, help="Send again what an earlier replay of the same records sent."
)
@click.option("--dry-run", is_flag=True, help="Only count.")
@click.option("-f", "--follow", is_flag=True, help="Go on with records as they arrive, until Ctrl-C.")
@on_store
def replay(
    session: Session,
    *,
    folder: Path,
    queue: str,
    prefix: str,
    since: datetime | None,
    until: datetime | None,
    wanted: tuple[str, ...],
    again: bool,
    dry_run: bool,
    follow: bool,
) -> None:
    """Send a message to QUEUE for each record of the journal in FOLDER, as if it was sent when the record arrived.

    The body is the record's JSON value; records of a spool become the messages that they are. Repeated, it sends only
    what is missing: what was settled more than a day ago (`queues set ... deduplication=7d`) counts as missing.
    """
    from astyqueue.queue.producing.replay import ReplayOptions

    with _opened(folder, prefix):
        pass  # names the journals that are there, if this one is not
    options = ReplayOptions(since=since, until=until, where=_where(wanted), again=again, dry_run=dry_run, prefix=prefix)
    opened = session.queue(queue)
    with interruption() as interrupted, opened.core.replay(folder, options) as running:
        while not interrupted() and (opened.run(running.go_on()) or (follow and _pause())):
            pass
    done = running.report
    would = "would send" if dry_run else "sent"
    count = done.read - done.skipped - done.there if dry_run else done.sent
    sentence = f"read {counted(done.read, 'record')}, {would} {counted(count, 'message')} to {queue}"
    there = f", {done.there} were sent before" if done.there else ""
    skipped = f", skipped {done.skipped}" if done.skipped else ""
    stopped = interrupted() and not follow  # one that follows ends so
    session.output.done(
        f"{sentence}{there}{skipped}{', then was interrupted' if stopped else ''}",
        {**done.as_json(), "interrupted": stopped},
    )
    if stopped:
        raise click.exceptions.Exit(ExitCode.INTERRUPTED)


def _pause() -> bool:
    """Wait until the folder may have more; True."""
    from astyqueue.clock import SystemClock
    from astyqueue.waiting import Wakeup

    clock = SystemClock()
    Wakeup(clock).wait(clock.monotonic() + _LOOK_US)
    return True


def _where(wanted: tuple[str, ...]) -> Callable[[Record[object]], bool] | None:
    """Whether a record's value, or the body of its message, has all of these fields."""
    pairs = [text.partition("=") for text in wanted]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        message = f"invalid --where {wrong[0]!r}: write NAME=VALUE"
        raise BadInput(message)
    if not pairs:
        return None
    meant = [(name, text, _in_one_form(text)) for name, _, text in pairs]

    def has_all(record: Record[object]) -> bool:
        value = getattr(record.value, "body", record.value)  # that of a message of a spool
        return isinstance(value, dict) and all(
            name in value and (value[name] == text or _in_one_form(json.dumps(value[name])) == form)
            for name, text, form in meant
        )

    return has_all


def _in_one_form(text: str) -> str | None:
    """JSON in the one form that its value has, so that 1 and true, which are equal in Python, differ; None if none."""
    try:
        return json.dumps(json.loads(text, parse_float=_whole_if_so), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _whole_if_so(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _opened(folder: Path, prefix: str) -> ReadOnlyJournal[bytes]:
    """The journal for reading; NotFound, with the names of those that are there, if there is none of this name."""
    from astyqueue.journal import BYTES, ReadOnlyJournal
    from astyqueue.journal.read_only_journal import check_there

    check_there(folder, prefix, option="--prefix")
    return ReadOnlyJournal.open(folder, codec=BYTES, prefix=prefix)


def _value(record: Record[bytes]) -> Any:  # noqa: ANN401 - any JSON
    """The value if it is JSON that can be read and written, otherwise the text of its bytes."""
    try:
        return json.loads(record.value, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return record.value.decode(errors="backslashreplace")


def _finite(text: str) -> float:
    """The number; ValueError for one that JSON cannot write, such as NaN and 1e400."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _as_json(record: Record[bytes]) -> str:
    return json_line({"sequence": record.sequence, "arrived": exact(record.arrived), "value": _value(record)})


def _as_text(record: Record[bytes]) -> str:
    value = _value(record)
    text = quoted(value) if isinstance(value, str) else printable(json.dumps(value, ensure_ascii=False))
    return f"{record.sequence}  {iso(record.arrived)}  {text}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} at {sequence}" for name, sequence in value.items()) or "none"
    return str(value)
