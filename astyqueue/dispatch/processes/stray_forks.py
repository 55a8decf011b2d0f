"""Ends the child processes that a handler forked and that come back from it.

The message, its lease and the threads that settle belong to the parent. A child that went on would log and settle
outcomes of its own, and then wait for threads that a fork does not copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn

from astyqueue.dispatch.worker_log import log_event, some
from astyqueue.queue.delivery.delivery import Delivery
from astyqueue.text import reason_of


class _Forks:
    """Counts the forks between the first process and this one; reading it takes a sixth of a call of `os.getpid`."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._count_one)

    def _count_one(self) -> None:
        self.count += 1


_FORKS: Final = _Forks()


def ending_forked_children(call: Callable[[Any], object]) -> Callable[[Any], object]:
    """The same call, except that a child process that comes back from it exits: with 0, its `sys.exit` code, or 1.

    The call gets a delivery or, if it handles batches, a list.
    """

    def call_in_this_process(given: Delivery | list[Delivery]) -> object:
        before = _FORKS.count
        try:
            result = call(given)
        except BaseException as error:
            if _FORKS.count != before:
                _exit(_code(given, error))
            raise
        if _FORKS.count != before:
            _exit(0)
        return result

    return call_in_this_process


def _code(given: Delivery | list[Delivery], error: BaseException) -> int:
    """The exit code that Python gives this error, which is logged unless it is the code itself."""
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    deliveries = given if isinstance(given, list) else [given]
    ids = some(str(delivery.message_id) for delivery in deliveries)
    log_event(logging.ERROR, "forked_child_failed", id=ids, error=reason_of(error))
    return 1


def _exit(code: int) -> NoReturn:
    """End this process without the rest of the program: no exit handlers, no other threads."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)
