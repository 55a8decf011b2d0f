"""Logging to stderr: log lines of a worker, as text or JSON, and warnings of other commands."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from types import TracebackType

import click

from astyqueue.clock import instant
from astyqueue.printable import indented, printable, printable_message
from astyqueue.text import exact, iso
from astyqueue.units import SECOND

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(level: str, form: str) -> None:
    """Print records of this process from this level up on stderr, as "text" or "json". Replaces the root handlers."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Facts() if form == "json" else _Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # The driver logs each connection at level info, which only helps to debug; its warnings are always shown.
    logging.getLogger("cassandra").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


class _Warnings(logging.Handler):
    """Prints each record in one line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message, with unprintable characters escaped."""
        click.echo(printable_message(f"astyqueue: {record.getMessage()}"), err=True)


def warn() -> None:
    """Print warnings of a command on stderr, unless logging is configured already."""
    logging.basicConfig(level=logging.WARNING, handlers=[_Warnings()])


def _moment(record: logging.LogRecord) -> datetime:
    return instant(int(record.created * SECOND))


class _Line(logging.Formatter):
    """`2026-11-21T09:00:00.123Z INFO astyqueue.worker done task=... id=...`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's signature
        """The time of the record, in UTC."""
        return iso(_moment(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as above
        """The line, with line breaks escaped: text from a message must not look like a log line of its own."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802 - as above
        """The traceback, indented: the text of an error may contain lines that look like log lines."""
        return indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - as above
        """The stack, indented like a traceback."""
        return indented(super().formatStack(stack_info))


class _Facts(logging.Formatter):
    """One JSON object a line, with the event and its facts as fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, object] = {
            "time": exact(_moment(record)),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        facts = getattr(record, "facts", None)
        if facts is None:
            line["message"] = record.getMessage()
        else:
            line |= {"event": getattr(record, "event", ""), **{name: _plain(value) for name, value in facts.items()}}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return printable(json.dumps(line, ensure_ascii=False, default=str))


def _plain(value: object) -> object:
    """Numbers unchanged, all else as text: an id is a tuple, and users and commands know its text."""
    return value if isinstance(value, int | float) else str(value)
