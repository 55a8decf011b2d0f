"""Importing the public names of a package when they are first used, so that who uses few of them waits for few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from importlib import import_module


def importing(package: MutableMapping[str, object], homes: Mapping[str, str]) -> Callable[[str], object]:
    """What a package has for `__getattr__`: `package` is its `globals()`, and `homes` says in which of its modules each name lives."""

    def imported(name: str) -> object:
        if name not in homes:
            message = f"module {package['__name__']!r} has no attribute {name!r}"
            raise AttributeError(message)
        value: object = getattr(import_module(f"{package['__name__']}.{homes[name]}"), name)
        package[name] = value
        return value

    return imported
