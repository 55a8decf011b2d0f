"""Where threads and coroutines of this process are now, and where an error comes from: stacks as text, for the log.

A stack names files, lines and functions, and no values.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

from astyqueue.errors import HandlerFailed
from astyqueue.text import counted

#: The most characters of a traceback.
_TRACE: Final = 16_000
_PACKAGE: Final = f"{Path(__file__).parent.parent}{os.sep}"


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


def traceback_text(error: BaseException) -> str:
    """The traceback without the frames of astyqueue, which are the same in each, and without its middle if it is long.

    So are those of its causes, and of the errors in a group.

    The text of an error may hold all that a task was given. Of an error in another process it is the one made there.
    """
    if isinstance(error, HandlerFailed):
        return error.traceback
    shown = traceback.TracebackException.from_exception(error)
    chained: list[traceback.TracebackException | None] = [shown]
    while chained:
        if (one := chained.pop()) is not None:
            one.stack = traceback.StackSummary.from_list(
                [frame for frame in one.stack if not frame.filename.startswith(_PACKAGE)]
            )
            chained += [one.__cause__, one.__context__, *(one.exceptions or ())]
    return without_middle("".join(shown.format()).rstrip("\n"), _TRACE)


def without_middle(text: str, most: int) -> str:
    """The text without its middle if it is longer than `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n... {len(text) - most} characters are left out here ...\n{text[-most // 2 :]}"
