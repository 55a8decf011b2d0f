"""Runs handlers for messages: in threads, on an event loop or in processes, with outcomes settled in batches.

Names are imported when they are first used: a child process that runs handlers needs no dispatcher.
"""

from typing import TYPE_CHECKING, Final

from astyqueue.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from astyqueue.dispatch.dispatcher import Dispatcher

__all__ = ["Dispatcher"]

_HOMES: Final = {"Dispatcher": "dispatcher"}

__getattr__ = lazy_imports(globals(), _HOMES)
