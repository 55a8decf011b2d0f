"""What the threads of this process do now: their stacks as text, for the log."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Iterable

from astyqueue.text import counted


def stacks_of(threads: Iterable[threading.Thread] | None = None) -> str:
    """The stacks of these threads (Default: all but the calling one); threads that wait at the same place share one.

    A stack names files, lines and functions, and no values.
    """
    frames = sys._current_frames()  # noqa: SLF001 - the only way to the stacks of other threads
    alike: defaultdict[str, list[str]] = defaultdict(list)
    others = [one for one in threading.enumerate() if one is not threading.current_thread()]
    for thread in others if threads is None else threads:
        if (frame := frames.get(thread.ident or 0)) is not None:
            alike["".join(traceback.format_stack(frame)).rstrip("\n")].append(thread.name)
    return "\n".join(
        f"{counted(len(names), 'thread')} ({', '.join(names)}):\n{stack}" for stack, names in alike.items()
    )
