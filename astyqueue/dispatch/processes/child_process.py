"""One child process, as its parent has it: started, called and killed."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from weakref import WeakSet

from astyqueue.clock import SystemClock, instant
from astyqueue.dispatch.processes import forwarded_delivery
from astyqueue.dispatch.processes.channel import Channel, Frame
from astyqueue.dispatch.processes.forwarded_delivery import crossing
from astyqueue.errors import ChildDied, HandlerFailed, Reject, Retry, Snooze
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.structured_log import log_safely
from astyqueue.text import reason_of
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: Seconds that a child gets to end when it is not needed any more.
_ENDED_WITHIN: Final = 2.0
_CLOCK: Final = SystemClock()
#: The first statements of a child: it imports what its parent could import.
_START: Final = (
    "import sys; ends = map(int, sys.argv[1:4]); sys.path[:] = sys.argv[4:]; "
    "from astyqueue.dispatch.processes.child_main import main; main(*ends)"
)
#: In the environment of a child: the id of its parent.
CHILD_OF: Final = "ASTYQUEUE_CHILD_OF"


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The number of children, when one is replaced (messages, bytes in memory), and variables."""

    count: int
    max_tasks: int | None = None
    max_rss: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


class ChildProcess:
    """A child process that was started: a new interpreter, which shares nothing with this one but pipes.

    One thread calls it; any thread may kill it. It has a process group of its own, so a kill also ends what its handler
    started, and Ctrl-C in a terminal does not reach it.
    """

    def __init__(self, options: ProcessOptions, addresses: Iterable[str]) -> None:
        """Start it, and have it import what is at these addresses; the first call waits until it is ready."""
        self._lock = threading.Lock()
        #: Whether it has imported what it needs.
        self.ready = False
        self._ends_by: MonotonicUs | None = None
        self.memory = 0
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            self._parent_end, child_end = socket.socketpair()
            ours.callback(self._parent_end.close)
            theirs.callback(child_end.close)
            incoming, answers = _pipe(ours, theirs)
            deliveries, outgoing = _pipe(theirs, ours)
            passed = (deliveries, answers, child_end.fileno())
            self._process = subprocess.Popen(  # noqa: S603 - this interpreter
                [*_interpreter(), "-c", _START, *map(str, passed), *sys.path],
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
                process_group=0,
                env={**os.environ, **options.environment, CHILD_OF: str(os.getpid())},
            )
            ours.pop_all()
        self._channel = Channel(incoming, outgoing)
        _CHILDREN.add(self)
        level = logging.getLogger().getEffectiveLevel()
        with contextlib.suppress(OSError):  # it is dead already, which `wait_until_ready` finds
            self._channel.send((level, options.max_rss is not None, list(addresses)))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_until_ready(self) -> bool:
        """Wait until it has imported what it needs; False if it ended before."""
        if not self.ready:
            with contextlib.suppress(Exception):  # what it wrote cannot be read: it is of no use
                self.ready = self._channel.receive() == ("ready",)
        return self.ready

    @property
    def is_starting(self) -> bool:
        """Whether it may still be importing what it needs, so that no handler runs in it."""
        return not self.ready and not (self._channel.readable and self.wait_until_ready())

    def begin(self, address: str, delivery: Delivery) -> bool:
        """Give it a delivery for the function at this address; False if it is dead: the function was not called."""
        try:
            self._channel.send((address, crossing(delivery)))
        except OSError:  # its end of the pipe is closed
            return False
        return True

    def finish(self, delivery: Delivery) -> None:
        """Wait for the end of what `begin` began, and meanwhile do what its handler asks for.

        Raises the outcome that the handler chose, `HandlerFailed` for an error, and `ChildDied` if the process ended,
        or had to be killed because its answer was not read to the end: the rest would count for the next delivery.
        """
        try:
            answer = self._answer(delivery)
        except BaseException as error:
            self.kill()
            message = f"its answer could not be read ({reason_of(error)}), and {self.end()}"
            raise ChildDied(message) from error
        if answer is None:
            raise ChildDied(self.end())
        *outcome, self.memory = answer
        _raise_outcome(outcome)

    def _answer(self, delivery: Delivery) -> Frame | None:
        """How the handler ended, and the memory of the process; None if that ended first."""
        with contextlib.suppress(OSError):  # the channel is broken, as at the end of the process
            while (frame := self._channel.receive()) is not None:
                match frame:
                    case ("ask", call, arguments):
                        self._channel.send(_answer_to_ask(delivery, call, arguments))
                    case ("log", (values,)):
                        _log(values)
                    case (str(), *_, int()):
                        return frame
                    case _:
                        message = f"unknown frame {frame!r:.80}"
                        raise TypeError(message)
        return None

    def kill(self) -> None:
        """Kill it, and the processes that its handler started in its group."""
        with self._lock:
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def leave(self) -> None:
        """Close what keeps it alive, in a process that is not its parent."""
        self._channel.close()
        self._parent_end.close()

    def ask_to_end(self) -> None:
        """Have it exit, as it handles nothing."""
        self._channel.close()
        if self._ends_by is None:
            self._ends_by = _CLOCK.monotonic() + int(_ENDED_WITHIN * SECOND)

    def has_ended(self) -> bool:
        """Whether it has exited since `ask_to_end`; it is killed, without a wait, when its time for that is over."""
        with self._lock:
            ended = self._process.poll() is not None
        if not ended and self._ends_by is not None and _CLOCK.monotonic() >= self._ends_by:
            self.kill()
        if ended:
            self._parent_end.close()
        return ended

    def end(self) -> str:
        """End it: it exits, or is killed 2 seconds after it was asked to. Returns how it ended; repeats do nothing."""
        self.ask_to_end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0, (self._ends_by or BEGINNING) - _CLOCK.monotonic()) / SECOND)
        self.kill()
        code = self._process.wait()
        self._parent_end.close()
        return _how_it_ended(code)


def _leave_children() -> None:
    """Close the ends of this process's children in a process that was forked from it: they end with their parent."""
    for child in tuple(_CHILDREN):
        child.leave()
    _CHILDREN.clear()


_CHILDREN: Final = WeakSet[ChildProcess]()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_children)


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[int, int]:
    """A new pipe, whose ends these close."""
    read_end, write_end = os.pipe()
    reads.callback(os.close, read_end)
    writes.callback(os.close, write_end)
    return read_end, write_end


def _interpreter() -> list[str]:
    """This interpreter, with the options that change what code does."""
    warnings = [f"-W{one}" for one in sys.warnoptions]
    return [sys.executable, *["-O"] * sys.flags.optimize, *warnings]


def _answer_to_ask(delivery: Delivery, call: str, arguments: tuple[object, ...]) -> Frame:
    """The answer to a child whose handler calls a method of its delivery: its new state, or the error."""
    try:
        return ("state", forwarded_delivery.carry_out(delivery, call, arguments))
    except BaseException as error:  # noqa: BLE001 - raised in the handler, as in a thread
        return ("raise", (_pickled(error), reason_of(error)))


def _pickled(error: BaseException) -> bytes:
    try:
        return pickle.dumps(error)
    except Exception:  # noqa: BLE001 - a hook may raise anything
        return b""


@log_safely
def _log(values: dict[str, object]) -> None:
    """Handle a log record of a child as if it were made here."""
    record = logging.makeLogRecord(values)
    log = logging.getLogger(record.name)
    if log.isEnabledFor(record.levelno):
        log.handle(record)


def _raise_outcome(answer: list[object]) -> None:
    """Raise what the handler raised, as far as it says what becomes of the message."""
    match answer:
        case ["failed", str(kind), text, str(trace)]:
            raise HandlerFailed(kind, text if isinstance(text, str) else None, trace)
        case ["retry", after, str(reason)]:
            raise Retry(timedelta(microseconds=after) if isinstance(after, int) else None, reason=reason)
        case ["reject", str(reason)]:
            raise Reject(reason)
        case ["snooze", exact, int(until)]:
            raise Snooze(timedelta(microseconds=until) if exact else instant(until))


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it exited with {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it was killed by {name}"
