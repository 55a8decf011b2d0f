"""How a child process finds a function of its parent: by the module it is imported from and its name there."""

from __future__ import annotations

import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Final

from astyqueue.errors import BadSetting

_MAIN: Final = "__main__"


def import_path_of(call: object) -> str:
    """The path of a function, such as "shop.mail:send".

    BadSetting for one that another process could not import: a lambda, a function inside a function, a method of an
    object, or anything that another object hides under its name.
    """
    module, name = getattr(call, "__module__", None), getattr(call, "__qualname__", None)
    if not module or not name or "<" in name or hasattr(call, "__self__"):
        message = f"{call!r} cannot run in another process, which imports it by name: give a function of a module"
        raise BadSetting(message)
    imported = imported_name(module)
    if imported == _MAIN:
        message = f"{name} cannot run in another process, which cannot import this program: put it into a module"
        raise BadSetting(message)
    path = f"{imported}:{name}"
    try:
        found = attrgetter(name)(sys.modules[module])
    except (AttributeError, KeyError):
        found = None
    if found is not call:
        message = f"{path} resolves to {found!r} in a child process, not to {call!r}: give the function of that name"
        raise BadSetting(message)
    return path


def find(path: str) -> object:
    """The object at a path; ImportError or AttributeError if there is none."""
    module, _, name = path.partition(":")
    return attrgetter(name)(import_module(module))


def imported_name(module: str) -> str:
    """The name under which another process imports a module; that of the main program is found from its file."""
    return _imported_as(sys.modules[module]) if module == _MAIN else module


def _imported_as(main: ModuleType) -> str:
    """The import name of the main module: from its spec after `python -m`, else from the path of the script."""
    if main.__spec__ is not None:
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    return _dotted(Path(file).resolve()) if file else main.__name__


def _dotted(file: Path) -> str:
    """The name of the module in this file, imported from the current directory, or else from the file's own."""
    here = Path.cwd().resolve()
    inside = file.relative_to(here) if file.is_relative_to(here) else Path(file.name)
    return ".".join(inside.with_suffix("").parts)
