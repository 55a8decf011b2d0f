"""What a child process does: it runs handlers that its parent names, one delivery at a time, until the parent ends.

It runs them in its main thread. Ctrl-C, SIGTERM and SIGHUP reach a whole group of processes, and the parent decides
what they mean: a child takes no notice of them. When the parent is gone, however it ended, the kernel ends the child.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import pickle
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from datetime import datetime
from functools import partial
from types import FrameType
from typing import Final, cast

from astyqueue.dispatch.handlers.handler import Call, Handler, perform
from astyqueue.dispatch.handlers.import_path import find
from astyqueue.dispatch.processes.channel import Channel, Frame
from astyqueue.dispatch.processes.forwarded_delivery import Ask, ForwardedDelivery, Values, arrived
from astyqueue.dispatch.processes.stray_forks import ending_forked_children
from astyqueue.dispatch.stacks import traceback_text
from astyqueue.durations import Duration, as_microseconds, instant_of
from astyqueue.errors import AstyqueueError, BadInput, Closed, Reject, Retry, Snooze
from astyqueue.text import one_line

_STATM: Final = "/proc/self/statm"
#: Seconds that this process takes to exit at most once its parent wants no more from it.
EXITS_WITHIN = 2.0


class Parent:
    """The parent process, as its child has it. The main thread and threads of a handler may ask it at the same time."""

    def __init__(self, channel: Channel) -> None:
        """Nothing is being handled."""
        self._channel = channel
        self._lock = threading.Lock()
        self._listens = False
        self._number = 0

    def next(self) -> Frame | None:
        """Wait for the next delivery; None when the parent wants no more from this process."""
        frame = self._channel.receive()
        with self._lock:
            self._listens = frame is not None
            self._number += 1
        return frame

    def answer(self, frame: Frame) -> None:
        """Say how the handler ended; from now on the parent does not listen until it sends the next delivery."""
        with self._lock:
            self._listens = False
            self._channel.send(frame)

    def ask_for_current(self) -> Ask:
        """What has the parent call methods of the delivery that came last, and of no later one."""
        return partial(self._ask, self._number)

    def _ask(self, number: int, call: str, arguments: Values) -> Values:
        """Have the parent call this of the delivery; returns its state, or raises what the parent's call raised.

        Closed once the handler of the delivery with this number has ended: a thread that it left behind may ask while
        the parent listens to the handler of the next one. And in a process that the handler forked.
        """
        if self._channel.closed:
            message = "the process that handles this delivery is another: this one was forked from it"
            raise Closed(message)
        with self._lock:
            if not self._listens or number != self._number:
                message = "the handler of this delivery has ended: its outcome is decided"
                raise Closed(message)
            try:
                self._channel.send(("ask", call, arguments))
            except ValueError as error:  # nothing was written
                message = f"{call} was given a value that cannot cross to the parent process: give text or numbers"
                raise BadInput(message) from error
            frame = self._channel.receive()
        if frame is None:
            os._exit(1)  # the parent is gone, and the outcome of the call with it
        what, value = frame
        if what == "raise":
            raise _raised(*value)
        state: Values = value
        return state

    def tell(self, record: Values) -> bool:
        """Give the parent a log record; False when it does not listen, and in a process that a handler forked."""
        if self._channel.closed:  # before the lock, which another thread may have had when this process was forked
            return False
        with self._lock:
            if self._listens:
                self._channel.send(("log", record))
            return self._listens


class ParentLog(logging.Handler):
    """Gives log records to the parent's handlers; records of no delivery go to stderr."""

    def __init__(self, parent: Parent) -> None:
        """`parent` takes records while a handler runs."""
        super().__init__()
        self._parent = parent
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Give the record as values; an error is reported as `logging` does."""
        try:
            text = record.exc_text or (self._formatter.formatException(record.exc_info) if record.exc_info else None)
            values = {
                "name": str.__str__(record.name),  # that, the number and its name may be members of enums
                "levelno": int(record.levelno),
                "levelname": str.__str__(record.levelname),
                "msg": record.getMessage(),
                "created": record.created,
                "msecs": record.msecs,
                "pathname": record.pathname,
                "filename": record.filename,
                "module": record.module,
                "lineno": record.lineno,
                "funcName": record.funcName,
                "process": record.process,
                "processName": record.processName,
                "thread": record.thread,
                "threadName": record.threadName,
                "exc_text": text,
            }
            if not self._parent.tell((values,)) and logging.lastResort is not None:
                logging.lastResort.handle(record)
        except Exception:  # noqa: BLE001 - as every handler of `logging`
            self.handleError(record)


class Functions:
    """The functions that this process was asked to run, by their addresses."""

    def __init__(self) -> None:
        """No function was imported yet."""
        self._found: dict[str, Handler] = {}

    def at(self, address: str) -> Handler:
        """The function there, which is imported first if need be; its error is that of the attempt."""
        if (handler := self._found.get(address)) is None:
            found = find(address)
            handler = getattr(found, "handler", None)  # a task has one
            call = handler.call if isinstance(handler, Handler) else _callable(found)
            handler = self._found[address] = Handler(address, ending_forked_children(call))
        return handler


def _callable(found: object) -> Call:
    if not callable(found):
        message = f"{found!r} is not a function: restart the worker, its module has changed"
        raise TypeError(message)
    return found


def handle(functions: Functions, address: str, delivery: ForwardedDelivery) -> Frame:
    """Run the function for a delivery; returns the answer to the parent."""
    try:
        handler = functions.at(address)
    except BaseException as error:  # noqa: BLE001 - as what a handler raises
        return _failed(error)
    raised = Context().run(perform, handler, delivery)
    return ("done",) if raised is None else _failed(raised)


def _raised(packed: bytes, reason: str) -> BaseException:
    """What the parent of this process raised; AstyqueueError with its text if it cannot be made of that here."""
    try:
        error = pickle.loads(packed)  # noqa: S301 - of the parent of this process
    except BaseException:  # noqa: BLE001 - its class is not here, or the import of its module ends the process
        return AstyqueueError(reason)
    return error if isinstance(error, BaseException) else AstyqueueError(reason)


def _failed(error: BaseException) -> Frame:
    """The answer for an error, and for the outcomes that a handler chooses by raising one."""
    try:
        if (chosen := _chosen(error)) is not None:
            return chosen
    except Exception as wrong:  # noqa: BLE001 - the handler's request is invalid: a failed attempt, as in a thread
        return _failure(wrong)
    return _failure(error)


def _failure(error: BaseException) -> Frame:
    return ("failed", type(error).__name__, _text_of(error), traceback_text(error))


def _chosen(error: BaseException) -> Frame | None:
    """The answer for an outcome that the handler chose; an error, such as BadInput, for one that there is not."""
    match error:
        case Retry(after=after):
            return ("retry", None if after is None else as_microseconds(after), _text_of(error) or "")
        case Reject(reason=reason):
            return ("reject", one_line(reason))
        case Snooze(until=datetime() as until):
            return ("snooze", False, instant_of(until))
        case Snooze(until=until):
            return ("snooze", True, as_microseconds(cast("Duration", until)))
    return None


def _text_of(error: BaseException) -> str | None:
    """The text of an error; None if its `__str__` raises."""
    try:
        return one_line(error)
    except Exception:  # noqa: BLE001 - its text is whatever its class makes of it
        return None


def serve(channel: Channel, functions: Functions, *, report_memory: bool) -> None:
    """Handle deliveries until the parent closes the channel."""
    parent = Parent(channel)
    memory: Callable[[], int] = resident_bytes if report_memory else _nothing
    logging.getLogger().addHandler(ParentLog(parent))
    while (frame := parent.next()) is not None:
        address, values = frame
        answer = handle(functions, address, arrived(values, parent.ask_for_current()))
        parent.answer((*answer, memory()))


def resident_bytes() -> int:
    """The memory of this process in RAM, in bytes; its highest so far where the system reports no other."""
    try:
        with open(_STATM, encoding="ascii") as statm:  # noqa: PTH123 - read after each delivery
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024  # what the system counts in
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _nothing() -> int:
    return 0


def end_with(parent: socket.socket) -> None:
    """Have the kernel end this process when the parent's end of this socket is closed, whatever this process does.

    SIGIO needs no interpreter: it also ends a handler that never gives the interpreter lock back. The thread is for
    systems that send no such signal.
    """
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(parent, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(parent, fcntl.F_SETFL, fcntl.fcntl(parent, fcntl.F_GETFL) | os.O_ASYNC)
    threading.Thread(target=_exit_after, args=(parent,), name="astyqueue:parent", daemon=True).start()


def _exit_after(parent: socket.socket) -> None:
    with contextlib.suppress(OSError):
        parent.recv(1)
    os._exit(1)


class EndsIgnored(threading.local):
    """The signals that end other processes: this one takes no notice of them, and a process that it forks ends.

    A thread that forks blocks them until the new process has set its handlers: the interpreter drops the signals that
    reach it before, and `terminate` of a process that has just started would be lost.
    """

    _ENDS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        """Install nothing yet. Each thread has the signals that it blocked before it forks."""
        self._blocked: set[int] = set()

    def install(self) -> None:
        """From now on, in this process and in those that it forks."""
        for number in self._ENDS:
            signal.signal(number, _ignore)
        os.register_at_fork(before=self._block, after_in_parent=self._unblock, after_in_child=self._end_again)

    def _block(self) -> None:
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, self._ENDS)

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)

    def _end_again(self) -> None:
        for number in self._ENDS:
            if signal.getsignal(number) is _ignore:
                signal.signal(number, signal.SIG_DFL)
        self._unblock()


def _ignore(_signal: int, _frame: FrameType | None) -> None:
    """Do nothing. Unlike SIG_IGN this is not inherited by a program that a handler starts."""


def main(incoming: int, outgoing: int, child_end: int) -> None:
    """Run this process: it inherits two pipes, and a socket whose other end is closed when its parent ends."""
    EndsIgnored().install()
    for end in (incoming, outgoing, child_end):
        os.set_inheritable(end, False)  # noqa: FBT003 - the name of the function says what
    end_with(socket.socket(fileno=child_end))
    channel = Channel(incoming, outgoing)
    # What handlers start may outlive this process, whose end the parent sees by the end of the pipe.
    os.register_at_fork(after_in_child=channel.close)
    setup = channel.receive()
    if setup is None:
        return
    level, report_memory, addresses = setup
    logging.getLogger().setLevel(level)
    functions = Functions()
    for address in addresses:
        with contextlib.suppress(BaseException):  # also SystemExit: the error is that of each attempt
            functions.at(address)
    with contextlib.suppress(BrokenPipeError):  # the parent has ended it, perhaps before it was ready
        channel.send(("ready",))
        serve(channel, functions, report_memory=report_memory)
    # Whatever a handler left behind, such as a thread: the parent looks after this process only with its next message.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, EXITS_WITHIN)
    sys.stdout.flush()
