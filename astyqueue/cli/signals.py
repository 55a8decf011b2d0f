"""Ctrl-C for commands that stop between two commits."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """A function that returns whether Ctrl-C was pressed inside the block, where it raises no KeyboardInterrupt."""
    pressed: list[int] = []

    def press(number: int, _: FrameType | None) -> None:
        pressed.append(number)

    before = signal.signal(signal.SIGINT, press)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)
