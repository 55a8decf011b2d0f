"""Import the app that a worker runs: `pkg.mod:app`."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Final

from astyqueue.cli.config import here
from astyqueue.cli.errors import ExitCode, Failure, trace_if_verbose

if TYPE_CHECKING:
    from types import ModuleType

    from astyqueue.tasks.app import App

#: Default name of the app in its module.
_USUAL: Final = "app"


def load_app(place: str) -> App:
    """The app at `module:name` (`module` alone means `module:app`); the current directory is searched first.

    Raises Failure if the module cannot be imported or has no app of that name.
    """
    from astyqueue.tasks.app import App

    module_name, _, name = place.partition(":")
    module = _module(module_name)
    found = getattr(module, name or _USUAL, None)
    if isinstance(found, App):
        return found
    others = [other for other, value in vars(module).items() if isinstance(value, App)]
    hint = f"; did you mean {module_name}:{others[0]}?" if others else ": expected an astyqueue.App"
    what = "does not exist" if found is None else f"is of type {type(found).__name__}"
    message = f"{module_name}:{name or _USUAL} {what}{hint}"
    raise Failure(message, ExitCode.BAD_INPUT)


def _module(name: str) -> ModuleType:
    folder = str(here())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except Exception as error:
        trace_if_verbose()
        message = _why_not(name, error)
        raise Failure(message, ExitCode.BAD_INPUT) from error


def _why_not(name: str, error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
        return f"no module {error.name!r} in {here()} or among the installed packages; name an app as pkg.mod:app"
    return f"{name} cannot be imported: {type(error).__name__}: {error}; -v shows where"
