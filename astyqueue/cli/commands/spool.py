"""`astyqueue spool`: show what waits in a spool, and forward it without the program that wrote it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from astyqueue.cli.context import Session, json_option, on_store, verbose_option
from astyqueue.cli.errors import ExitCode
from astyqueue.cli.output import output_now
from astyqueue.cli.params import DurationText
from astyqueue.errors import NotFound
from astyqueue.stores.url import SPOOL_VARIABLE
from astyqueue.text import counted, exact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from astyqueue.observe import ObservedEvent
    from astyqueue.spool import JournalState, SpoolFolder

_folders = click.argument(
    "folders",
    nargs=-1,
    required=True,
    envvar=SPOOL_VARIABLE,
    metavar="FOLDER...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)


@click.group(short_help="Show and forward what waits in a spool.")
def spool() -> None:
    """A spool: messages on the disk of this machine that wait for the store, as `.spool(folder)` of a queue keeps them.

    That of an app or a connection is such a folder too; ASTYQUEUE_SPOOL may name it instead of FOLDER.

    The programs that send into a spool forward it themselves. These commands work while they run.
    """


@dataclass(frozen=True, slots=True)
class _Shown:
    folder: SpoolFolder
    state: JournalState

    def as_json(self) -> Mapping[str, object]:
        """All that is known without having the journal open."""
        moments = {"oldest": self.state.oldest, "failing_since": self.state.failing_since}
        shown = {name: moment and exact(moment) for name, moment in moments.items()}
        known = asdict(self.state) | shown
        del known["dropped"], known["unreadable"]  # only the process that has it open knows them
        return {"queue": self.folder.queue, "folder": str(self.folder.path), **known}

    def as_row(self) -> Mapping[str, object]:
        state = self.state
        return {
            "queue": self.folder.queue,
            "journal": state.number,
            "messages": state.messages,
            "oldest": state.oldest,
            "refused": state.refused,
            "bytes": state.bytes,
            "in use": state.in_use,
            "last error": state.last_error or None,
        }


@spool.command(
    short_help="Show how many messages wait, and since when.",
    epilog="""\b
    astyqueue spool status /var/spool/shop
    """,
)
@verbose_option
@json_option
@_folders
def status(*, folders: tuple[Path, ...], as_json: bool) -> None:
    """Show the journal of each process in FOLDER: what waits, since when, what the store refused, and the last error.

    A journal in use belongs to a living process, which forwards it. What a dead process left is forwarded by the next
    process that has the spool, or by `astyqueue spool drain`. The last error is why the process that has or had the
    journal cannot forward; there is none once it can.
    """
    found = [_Shown(folder, state) for folder in _queues(folders) for state in folder.states()]
    output = output_now(as_json=as_json)
    output.listing(found, shown=_Shown.as_row, none="no process has sent into this spool")


@spool.command(
    short_help="Forward what dead processes left.",
    epilog="""\b
    astyqueue spool drain /var/spool/shop --url cassandra://db1,db2/shop
    """,
)
@_folders
@click.option(
    "--timeout",
    type=DurationText(),
    default="1m",
    show_default=True,
    metavar="DURATION",
    help="Stop with a queue after this time.",
)
@on_store
@click.pass_context
def drain(context: click.Context, /, session: Session, *, folders: tuple[Path, ...], timeout: timedelta) -> None:
    """Forward to the store what processes that ended left in FOLDER; living ones forward theirs themselves.

    What is for a queue that the store does not have stays. Exit code 1 for such a queue, if messages are left that no
    living process has, if a journal cannot be opened, or if the disk damaged messages.
    """
    is_whole, missing = True, list[str]()
    for folder in _queues(folders):
        try:
            is_whole &= _drained(session, folder, timeout)
        except NotFound as error:
            missing.append(str(error))
    if missing:
        raise NotFound("; ".join(missing))
    if not is_whole:
        context.exit(ExitCode.FAILED)


class _Forwarded:
    """Counts what this process forwards: others forward theirs meanwhile."""

    count = 0

    def observe(self, event: ObservedEvent) -> None:
        from astyqueue.observe import SpoolForwarded

        if isinstance(event, SpoolForwarded):
            self.count += len(event.messages)


def _drained(session: Session, folder: SpoolFolder, timeout: timedelta) -> bool:
    """Forward one queue; whether all could be opened and read, and none is left that no living process has."""
    from astyqueue.queue.queue import MessageQueue

    session.check(folder.queue)
    forwarded = _Forwarded()
    builder = MessageQueue.builder().store(session.connection.store).name(folder.queue).observer(forwarded)
    with builder.spool(folder.path.parent, cap=None, drain=0).build() as queue:
        queue.spool.drain(timeout)
        status = queue.spool.status()
    numbers, after = folder.numbers(), folder.states()
    unopened = [number for number in numbers if number not in {state.number for state in after}]
    left = sum(state.messages for state in after if not state.in_use)
    kept = sum(state.messages for state in after if state.in_use)
    refused, unreadable = sum(state.refused for state in after), status.unreadable
    facts = {"queue": folder.queue, "forwarded": forwarded.count, "left": left, "in_use": kept, "refused": refused}
    errors = [
        *([status.last_error] if left and status.last_error else []),
        *(f"could not open {folder.path / str(number)} (stderr says why)" for number in unopened),
    ]
    parts = [
        f"{folder.queue}: forwarded {counted(forwarded.count, 'message')}, left {left}",
        *([f"{kept} of living processes"] if kept else []),
        *([f"{refused} set aside"] if refused else []),
        *([f"{unreadable} unreadable"] if unreadable else []),
        *errors,
    ]
    facts |= {"unreadable": unreadable, "error": "; ".join(errors)}
    session.output.done(", ".join(parts), facts)
    return not (left or unreadable or unopened)


def _queues(folders: tuple[Path, ...]) -> Iterator[SpoolFolder]:
    """The folder of each queue; NotFound for a folder that is not a spool."""
    from astyqueue.spool import SpoolFolder, queues_in

    for folder in folders:
        names = list(queues_in(folder))
        if not names:
            message = f"folder {folder} is not a spool: name the folder that was given to .spool()"
            raise NotFound(message)
        for name in names:
            yield SpoolFolder(folder, name)
