"""Paths in the form that Hadoop takes: file:// is the local disk, also where its default is another file system."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")


def on_disk(path: Path) -> str:
    """An absolute path to write to, or to compare with. It is not percent-encoded: Hadoop does not decode it."""
    return f"file://{path}"


def literally(path: Path) -> str:
    """An absolute path to read, with the characters of glob patterns escaped by a backslash."""
    return on_disk(Path(_PATTERN.sub(r"\\\g<0>", str(path))))
