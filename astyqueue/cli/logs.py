"""Log lines of a worker, on stderr: for people, or as JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime

from astyqueue.clock import SECOND, instant
from astyqueue.model.moments import exact, iso


def configure(level: str, form: str) -> None:
    """Have everything that this process logs from this level on printed on stderr, once, as "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Facts() if form == "json" else _Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # A driver's news of how it connects is for whoever debugs; what it warns of is for everybody.
    logging.getLogger("cassandra").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


def _moment(record: logging.LogRecord) -> datetime:
    return instant(int(record.created * SECOND))


class _Line(logging.Formatter):
    """`2026-11-21T09:00:00.123Z INFO astyqueue.worker done task=... id=...`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's signature
        """The moment in UTC."""
        return iso(_moment(record))


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
        return json.dumps(line, ensure_ascii=False, default=str)


def _plain(value: object) -> object:
    """Numbers as they are, all else as text: an id is a tuple, and is known to people and commands as text."""
    return value if isinstance(value, int | float) else str(value)
