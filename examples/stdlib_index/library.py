"""The library that is indexed: the standard library of this interpreter."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
#: Folders of installed packages, which are not part of the library.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def sources() -> list[str]:
    """Every source file of the library, as a path relative to it, in order."""
    found = (path.relative_to(LIBRARY) for path in LIBRARY.rglob("*.py") if path.is_file())
    return sorted(path.as_posix() for path in found if _INSTALLED.isdisjoint(path.parts))


def package_of(path: str) -> str:
    """The top-level package or module that a file belongs to."""
    return path.partition("/")[0].removesuffix(".py")
