"""Ends the child processes that a handler forked and that come back from it.

The message, its lease and the threads that settle belong to the parent. A child that went on would log and settle
outcomes of its own, and then wait for threads that a fork does not copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import NoReturn

from astyqueue.dispatch.handlers import Call
from astyqueue.dispatch.worker_log import log_event
from astyqueue.queue.delivery import Delivery
from astyqueue.queue.retry_policy import reason_of


def end_forked_children(delivery: Delivery, call_next: Call) -> object:
    """A middleware: a child process that leaves the handler exits with 0, with the code of `sys.exit`, or with 1."""
    process = os.getpid()
    try:
        result = call_next(delivery)
    except BaseException as error:
        if os.getpid() != process:
            _exit(_code(delivery, error))
        raise
    if os.getpid() != process:
        _exit(0)
    return result


def _code(delivery: Delivery, error: BaseException) -> int:
    """The exit code that Python gives this error, which is logged unless it is the code itself."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    log_event(logging.ERROR, "child", id=delivery.message_id, error=reason_of(error))
    return 1


def _exit(code: int) -> NoReturn:
    """End this process without the rest of the program: no exit handlers, no other threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
