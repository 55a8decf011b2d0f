"""Imports the public names of a package when they are first used, to keep its import quick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module


def lazy_imports(package: MutableMapping[str, object], homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package: `package` is its `globals()`, and `homes` maps each name to its module.

    A module is named from the package; one that begins with a dot, from the package around it.
    """

    def imported(name: str) -> object:
        if name not in homes:
            message = f"module {package['__name__']!r} has no attribute {name!r}"
            raise AttributeError(message)
        value: object = getattr(import_module(f".{homes[name]}", str(package["__name__"])), name)
        package[name] = value
        return value

    return imported
