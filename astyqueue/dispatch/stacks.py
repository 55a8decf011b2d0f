"""Where threads and coroutines of this process are now: their stacks as text, for the log.

A stack names files, lines and functions, and no values.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator
from types import FrameType

from astyqueue.text import counted


def stack_of(thread: int) -> str:
    """The stack of the thread of this identifier, the innermost call last; empty if it has ended."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the only way to the stack of another thread
    return "".join(traceback.format_stack(frame)).rstrip("\n") if frame else ""


def stack_of_coroutine(coroutine: object) -> str:
    """The stack of a coroutine that waits, from itself to what it awaits last; empty if it has ended."""
    frames = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in _frames_of(coroutine))
    return "".join(frames.format()).rstrip("\n")


def _frames_of(coroutine: object) -> Iterator[FrameType]:
    awaited: object = coroutine
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if isinstance(frame, FrameType):
            yield frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def stacks_of(threads: Iterable[threading.Thread] | None = None) -> str:
    """The stacks of these threads (Default: all but the calling one); threads that wait at the same place share one."""
    frames = sys._current_frames()  # noqa: SLF001 - the only way to the stacks of other threads
    alike: defaultdict[str, list[str]] = defaultdict(list)
    others = [one for one in threading.enumerate() if one is not threading.current_thread()]
    for thread in others if threads is None else threads:
        if (frame := frames.get(thread.ident or 0)) is not None:
            alike["".join(traceback.format_stack(frame)).rstrip("\n")].append(thread.name)
    return "\n".join(
        f"{counted(len(names), 'thread')} ({', '.join(names)}):\n{stack}" for stack, names in alike.items()
    )
