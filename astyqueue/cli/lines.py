"""`astyqueue send --lines`: a message for each line of a stream, which is read to its end and checked before the first one is sent."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, Final

import click

from astyqueue.cli.failures import ExitCode, Failure, code_of
from astyqueue.cli.interrupting import interruption
from astyqueue.errors import AstyqueueError, BadInput

if TYPE_CHECKING:
    from astyqueue.cli.output import Output
    from astyqueue.model.outgoing import Message
    from astyqueue.queue.queue import MessageQueue

#: Lines sent together; between two chunks Ctrl-C is heeded.
_CHUNK: Final = 1_000
#: What lines may take in memory; more of them go to a temporary file.
_IN_MEMORY: Final = 16 * 1024 * 1024
#: Characters of a line: of the longest body there is (1 MiB), each written as an escape, and as much again for blanks.
_LONGEST: Final = 12 * 1024 * 1024

Lines = Iterable[tuple[int, str]]


@dataclass(slots=True)
class _Done:
    """What became of the lines so far."""

    sent: int = 0
    taken: int = 0
    kept: int = 0
    interrupted_at: int | None = None

    def sentence(self, queue: str) -> str:
        earlier = self.taken + self.kept
        others = f"; of {earlier} the key was taken" if earlier else ""
        rest = f"; interrupted: go on with --from-line {self.interrupted_at}" if self.interrupted_at else ""
        return f"sent {_messages(self.sent)} to {queue}{others}{rest}"

    @property
    def code(self) -> ExitCode:
        if self.interrupted_at:
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.taken else ExitCode.DONE


class LineSender:
    """Sends the lines of streams to one queue; `made` makes a line's message."""

    def __init__(self, queue: MessageQueue, made: Callable[[str], Message]) -> None:
        """Nothing is sent yet."""
        self._queue = queue
        self._made = made

    def send(self, source: IO[str], output: Output, *, since: int = 1) -> None:
        """Send the lines from this number on, and print how many those were; a line that cannot be sent raises, and none is."""
        with self._checked(source, since) as lines:
            done = self._send_all(lines)
        facts = {"queue": self._queue.name, "sent": done.sent, "taken": done.taken + done.kept, "interrupted_at": done.interrupted_at}
        output.done(done.sentence(self._queue.name), facts)
        if done.code:
            raise click.exceptions.Exit(done.code)

    @contextmanager
    def _checked(self, source: IO[str], since: int) -> Iterator[Lines]:
        """The lines with their numbers, once each of them is known to be a message that the queue takes."""
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", errors="surrogateescape", newline="\n") as spool:
            for number, line in _numbered(source, since):
                self._check(number, line)
                spool.write(f"{number} {line}\n")
            spool.seek(0)
            yield _read_back(spool)

    def _check(self, number: int, line: str) -> None:
        from astyqueue.model.outgoing import Composer

        try:
            message = self._made(line)
            Composer(self._queue.settings, self._queue.core.process.now()).compose(message.body, message)
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
                self._send_chunk(chunk, done)
        return done

    def _send_chunk(self, chunk: list[tuple[int, str]], done: _Done) -> None:
        first = chunk[0][0]
        try:
            report = self._queue.send_many(self._made(line) for _, line in chunk)
        except AstyqueueError as error:
            message = (
                f"{error}. {_messages(done.sent)} had been sent before, and some of lines {first} to {chunk[-1][0]} may have been: "
                f"see what is there, or go on with --from-line {first}, which may send those again"
            )
            raise Failure(message, code_of(type(error))) from error
        done.sent += report.sent
        done.taken += len(report.taken)
        done.kept += len(report.kept)


def _numbered(source: IO[str], since: int) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, from this number on."""
    number = 0
    try:
        for number, line in enumerate(iter(lambda: source.readline(_LONGEST + 1), ""), 1):
            if len(line) > _LONGEST:
                problem = f"line {number} is longer than {_LONGEST} characters, and no body is. Nothing was sent"
                raise BadInput(problem)
            if number >= since and line.strip():
                yield number, line.rstrip("\n")
    except UnicodeDecodeError as error:
        problem = f"after line {number}: {error}: lines are UTF-8. Nothing was sent"
        raise BadInput(problem) from error


def _read_back(spool: IO[str]) -> Iterator[tuple[int, str]]:
    for line in spool:
        number, _, text = line.rstrip("\n").partition(" ")
        yield int(number), text


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
