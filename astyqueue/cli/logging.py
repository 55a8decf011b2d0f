"""The log lines of a worker on stderr, as text or JSON.

The threads that run tasks only put a line's facts in a queue. One thread formats the lines and writes those of a tenth
of a second together, so that they cost the tasks neither a system call nor a wait for each other.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import traceback
from collections import deque
from types import TracebackType
from typing import Final, NamedTuple, TextIO

from astyqueue.clock import SystemClock, instant
from astyqueue.dispatch.handlers.handler import Handler
from astyqueue.dispatch.worker_log import LOG, TaskLineHandler, done_facts
from astyqueue.printable import facts_line, indented, printable
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.text import exact
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

#: Lines below level WARNING are written together after this pause; the others at once, together with those before.
_TOGETHER: Final = SECOND // 10
#: A thread that logs helps to write when this many lines wait, so that a stream that is read slowly bounds them.
_MOST: Final = 10_000

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(level: str, form: str, child: int | None = None) -> None:
    """Print records of this process from this level up on stderr, as "text" or "json". Replaces the root handlers.

    `child` is the number of this process among those of a supervisor; each line names it.
    """
    root = logging.getLogger()
    for replaced in root.handlers:
        replaced.flush()
    root.handlers[:] = [BatchedLines(sys.stderr, _Facts(child) if form == "json" else _Line(child))]
    root.setLevel(level.upper())
    # The driver logs each connection at level info, which only helps to debug; its warnings are always shown.
    logging.getLogger("cassandra").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


class _Done(NamedTuple):
    """The facts of a `done` line."""

    at: int
    delivery: Delivery
    handler: Handler
    began: int
    took: int


class BatchedLines(TaskLineHandler):
    """Prints log lines in a thread of its own, in the order in which they were logged.

    Lines from level WARNING up are printed at once, those from ERROR up before the call that logs them returns; the
    others within a tenth of a second, so that a process that is killed loses at most those.
    """

    def __init__(self, stream: TextIO | None, form: _Line | _Facts) -> None:
        """`stream` may be None, as stderr is when it was closed before the start: then nothing is printed."""
        super().__init__()
        self.setFormatter(form)
        self._form = form
        self._stream = stream
        self._pid = os.getpid()
        self._is_forked = False
        self._waiting: deque[logging.LogRecord | _Done] = deque()
        self._writing = threading.RLock()
        self._formats = False
        clock = SystemClock()
        self._clock = clock
        self._first, self._urgent = Wakeup(clock), Wakeup(clock)
        self._awake = False
        self._thread: threading.Thread | None = None

    def handle(self, record: logging.LogRecord) -> bool:
        """Filter and add a record without the handler's lock, which a deque does not need.

        With it, an argument that logs while the writing thread formats it could wait for a thread that waits for that.
        """
        passed = self.filter(record)
        if passed:
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record; write all if it is an error, or in a forked child, which may end by `os._exit`."""
        if os.getpid() != self._pid:
            self._begin_again()
        self._waiting.append(record)
        if self._is_forked or record.levelno >= logging.ERROR:
            self.flush()
        elif record.levelno >= logging.WARNING:
            self._wake()
            self._urgent.set()
        else:
            self._wake()

    def done(self, at: int, delivery: Delivery, handler: Handler, began: int, took: int) -> None:
        """Add the facts of a `done` line."""
        self._waiting.append(_Done(at, delivery, handler, began, took))
        self._wake()

    def _wake(self) -> None:
        """Have the thread write what waits."""
        if not self._awake:
            self._awake = True
            if self._thread is None:
                self._start()
            self._first.set()
        elif len(self._waiting) > _MOST:
            self.flush()

    def _start(self) -> None:
        """Start the thread; while the system starts no more, each caller writes what waits and tries again."""
        with self._writing:
            if self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name="astyqueue:log", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._awake = False
                self.flush()
            else:
                self._thread = thread

    def _begin_again(self) -> None:
        """Forget, in a forked child, what waits in the parent, which prints it."""
        self._pid = os.getpid()
        self._is_forked = True
        self._waiting.clear()
        self._writing = threading.RLock()
        self._formats = False
        self._thread, self._awake = None, False

    def _run(self) -> None:
        while True:
            self._first.wait()
            self._urgent.wait(self._clock.monotonic() + _TOGETHER)
            self._awake = False
            self.flush()

    def flush(self) -> None:
        """Format and write all lines that wait, in this thread; an error is reported as `logging` reports its own."""
        with self._writing:
            if self._formats:  # an argument of a line logs while this thread formats it, which writes that line too
                return
            lines = [*self._formatted(), *self._formatted()]
            if self._stream is None or not lines:
                return
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except Exception:  # noqa: BLE001 - a log that cannot be written must not end the work
                _report()

    def _formatted(self) -> list[str]:
        """The lines that wait now. Formatting them may add some: for those this is called once more."""
        self._formats = True
        try:
            return [self._line(self._waiting.popleft()) for _ in range(len(self._waiting))]
        finally:
            self._formats = False

    def _line(self, waiting: logging.LogRecord | _Done) -> str:
        try:
            text = self._form.done(waiting) if isinstance(waiting, _Done) else self.format(waiting)
        except Exception:  # noqa: BLE001 - arguments may raise anything
            _report()
            return ""
        return f"{text}\n"


def _report() -> None:
    """Print the error that is being handled, if there is where to."""
    if logging.raiseExceptions:
        with contextlib.suppress(Exception):
            traceback.print_exc()


class _Moments:
    """The text of moments in UTC; the part up to the second is kept, because lines come by the thousand a second."""

    def __init__(self) -> None:
        self._second: int | None = None
        self._text = ""

    def of(self, moment: int, digits: int) -> str:
        """The moment (microseconds since 1970) with this many digits after the second."""
        second, rest = divmod(moment, SECOND)
        if second != self._second:
            self._text, self._second = exact(instant(second * SECOND))[: -len(".000000Z")], second
        return f"{self._text}.{f'{rest:06d}'[:digits]}Z"


def _created(record: logging.LogRecord) -> int:
    return int(record.created * SECOND)


class _Line(logging.Formatter):
    """`2026-11-21T09:00:00.123Z INFO astyqueue.worker done task=... id=...`; with a child `astyqueue.worker[2]`."""

    def __init__(self, child: int | None = None) -> None:
        named = "" if child is None else f"[{child}]"
        super().__init__(f"%(asctime)s %(levelname)s %(name)s{named} %(message)s")
        self._moments = _Moments()
        self._name = f"{LOG.name}{named}"

    def done(self, one: _Done) -> str:
        """The line `done`."""
        facts = facts_line("done", done_facts(one.delivery, one.handler, one.began, one.took))
        return f"{self._moments.of(one.at, 3)} INFO {self._name} {facts}"

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802 - logging's signature
        """The time of the record, in UTC, to the millisecond."""
        return self._moments.of(_created(record), 3)

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
    """One JSON object a line, with the event and its facts as fields, and the number of the child if there is one."""

    def __init__(self, child: int | None = None) -> None:
        super().__init__()
        self._child = {} if child is None else {"child": child}
        self._moments = _Moments()
        self._json = json.JSONEncoder(ensure_ascii=False, default=str).encode

    def done(self, one: _Done) -> str:
        """The line of the event `done`."""
        facts = done_facts(one.delivery, one.handler, one.began, one.took)
        return printable(self._json(self._fields(one.at, "info", LOG.name) | _event("done", facts)))

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line = self._fields(_created(record), record.levelname.lower(), record.name)
        facts = getattr(record, "facts", None)
        line |= {"message": record.getMessage()} if facts is None else _event(getattr(record, "event", ""), facts)
        if trace := self.formatException(record.exc_info) if record.exc_info else record.exc_text:
            line["trace"] = trace
        return printable(self._json(line))

    def _fields(self, created: int, level: str, logger: str) -> dict[str, object]:
        return {"time": self._moments.of(created, 6), "level": level, "logger": logger, **self._child}


def _event(event: str, facts: dict[str, object]) -> dict[str, object]:
    """The event and its facts: numbers unchanged, all else as text (an id is a tuple; users know its text)."""
    plain = {name: value if isinstance(value, int | float) else str(value) for name, value in facts.items()}
    return {"event": event, **plain}
