"""What a task is called: the same name in the process that sends it and in the one that runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType


def name_of(function: Callable[..., object]) -> str:
    """The module and the qualified name of a function, as a worker that imports the module would see them."""
    module = function.__module__
    if module == "__main__":
        module = _imported_as(sys.modules[module])
    return f"{module}.{function.__qualname__}"


def _imported_as(main: ModuleType) -> str:
    """How the module that was started would be imported: `python -m` says so, a script's path from here tells."""
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return _dotted(Path(file).resolve()) if file else main.__name__


def _dotted(file: Path) -> str:
    """The module in this file, for somebody who imports from the current directory, or else from the file's own."""
    here = Path.cwd().resolve()
    inside = file.relative_to(here) if file.is_relative_to(here) else Path(file.name)
    return ".".join(inside.with_suffix("").parts)
