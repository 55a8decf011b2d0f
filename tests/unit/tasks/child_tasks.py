"""Apps whose tasks run in child processes."""

from __future__ import annotations

import os
from pathlib import Path

from astyqueue import App, aio, current_delivery

app = App()
awaited = aio.App()
replaced = App()


@app.task(kind="process")
def write_down(notes: str, text: str) -> None:
    """Note who handles this, and send another call from there, if there is none yet."""
    with Path(notes).open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getpid()} {current_delivery().attempt} {text}\n")
    if text == "first":
        write_down.send(notes, "second")


@awaited.task(kind="process")
def awaited_write(notes: str) -> None:
    """The same in an app whose sends are awaited."""
    Path(notes).write_text("written", encoding="utf-8")


@replaced.task(kind="process")
def note_process(notes: str) -> None:
    """Note which process handles this."""
    with Path(notes).open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getpid()}\n")
