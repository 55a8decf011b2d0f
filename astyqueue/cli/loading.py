"""Finding the app that a worker is to run: `pkg.mod:app`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from astyqueue.cli.failures import ExitCode, Failure, trace_if_verbose

if TYPE_CHECKING:
    from types import ModuleType

    from astyqueue.tasks.app import App

#: What the app is called in its module when nobody says.
_USUAL: Final = "app"


def load_app(place: str) -> App:
    """The app at `module:name` (`module` alone means `module:app`), looked for in the current directory first.

    A module that cannot be imported, or that has no app there, ends the command.
    """
    from astyqueue.tasks.app import App

    module_name, _, name = place.partition(":")
    module = _module(module_name)
    found = getattr(module, name or _USUAL, None)
    if isinstance(found, App):
        return found
    others = [other for other, value in vars(module).items() if isinstance(value, App)]
    hint = f"; did you mean {module_name}:{others[0]}?" if others else ": it should be an astyqueue.App"
    what = "is not there" if found is None else f"is of type {type(found).__name__}"
    message = f"{module_name}:{name or _USUAL} {what}{hint}"
    raise Failure(message, ExitCode.BAD_INPUT)


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:
        trace_if_verbose()
        message = _why_not(name, error)
        raise Failure(message, ExitCode.BAD_INPUT) from error


def _why_not(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"there is no module {error.name!r} in {Path.cwd()} or among what is installed; an app is named pkg.mod:app"
    return f"{name} cannot be imported: {type(error).__name__}: {error}; -v shows where"
