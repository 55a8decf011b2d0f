"""Paths as Hadoop takes them, whose own file system may be another than the one that Python sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PATTERN: Final = re.compile(r"[\\*?\[\]{}]")


def on_disk(path: Path) -> str:
    """A whole path to be written to, or compared with: it reads no percent signs."""
    return f"file://{path}"


def literally(path: Path) -> str:
    """A whole path to be read, in which what would be a pattern is written with a backslash."""
    return on_disk(Path(_PATTERN.sub(r"\\\g<0>", str(path))))
