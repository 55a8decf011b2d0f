"""Raises KeyboardInterrupt where Python may handle a signal, at one place after another."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from opcode import opmap
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from _typeshed import TraceFunction

#: The instruction that begins a round of a `for` loop. It begins a line only after the jump back: at the first round
#: others of its line are before it.
_NEXT_ROUND: Final = opmap["FOR_ITER"]


class Interrupting:
    """Raises KeyboardInterrupt at one of the points of a call at which Python may handle a signal.

    These are the beginnings of functions, the returns from what is written in C, and the jumps back of `for` loops.
    With a `package` only those in its modules count; what they call elsewhere is taken to be written in C.
    """

    def __init__(self, at: int, *, package: str = "") -> None:
        self._at = at
        self._package = package
        self.points = 0

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> TraceFunction | None:  # noqa: ANN401 - as `sys.settrace` has it
        if event == "line" and frame.f_code.co_code[frame.f_lasti] == _NEXT_ROUND:
            self._pass()
        return self._trace if self._is_inside(frame) else None

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        is_inside = self._is_inside(frame)
        if event in ("call", "c_return") if is_inside else event == "return" and self._is_inside(frame.f_back):
            self._pass()

    def _is_inside(self, frame: FrameType | None) -> bool:
        return frame is not None and str(frame.f_globals["__name__"]).startswith(self._package)

    def _pass(self) -> None:
        self.points += 1
        if self.points == self._at:
            self._end()
            raise KeyboardInterrupt


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """No point of what is done inside counts."""
    profile, trace = sys.getprofile(), sys.gettrace()
    sys.setprofile(None)
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(trace)
        sys.setprofile(profile)
