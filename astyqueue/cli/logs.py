"""Log lines on stderr: of a worker, for people or as JSON for programs, and the warnings of other commands."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from types import TracebackType

import click

from astyqueue.clock import SECOND, instant
from astyqueue.model.moments import exact, iso
from astyqueue.printable import indented, printable

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(level: str, form: str) -> None:
    """Have everything that this process logs from this level on printed on stderr, once, as "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Facts() if form == "json" else _Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # A driver's news of how it connects is for whoever debugs; what it warns of is for everybody.
    logging.getLogger("cassandra").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


class _Warnings(logging.Handler):
    """What is logged while a command runs, in one line each, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print it."""
        click.echo(printable(f"astyqueue: {record.getMessage()}"), err=True)


def warn() -> None:
    """Have the warnings of a command that is no worker printed on stderr, unless its process logs already."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Warnings()])


def _moment(record: logging.LogRecord) -> datetime:
    return instant(int(record.created * SECOND))


class _Line(logging.Formatter):
    """`2026-11-21T09:00:00.123Z INFO astyqueue.worker done task=... id=...`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's signature
        """The moment in UTC."""
        return iso(_moment(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as above
        """The line; a line break in it would begin a line that nobody logged."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - as above
        """The traceback, behind a margin: an error's text may have lines that look like those of the log."""
        return indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - as above
        """The stack, behind the same margin."""
        return indented(super().formatStack(stack_info))


class _Facts(logging.Formatter):
    """One object a line; what the record was logged with are fields of their own, beside the event."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, object] = {"time": exact(_moment(record)), "level": record.levelname.lower(), "logger": record.name}
        facts = getattr(record, "facts", None)
        if facts is None:
            line["message"] = record.getMessage()
        else:
            line |= {"event": getattr(record, "event", ""), **{name: _plain(value) for name, value in facts.items()}}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable(json.dumps(line, ensure_ascii=False, default=str))


def _plain(value: object) -> object:
    """Numbers as they are, all else as text: an id is a tuple, and is known to people and commands as text."""
    return value if isinstance(value, int | float) else str(value)
