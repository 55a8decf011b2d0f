"""The library that is indexed: that of the interpreter this runs on."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(sysconfig.get_path("stdlib"))
#: What was installed beside the library is not part of it.
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})


def sources() -> list[str]:
    """Every source file of the library, as a path inside it."""
    found = (path.relative_to(LIBRARY) for path in LIBRARY.rglob("*.py") if path.is_file())
    return sorted(path.as_posix() for path in found if _INSTALLED.isdisjoint(path.parts))


def package_of(path: str) -> str:
    """The package, or the module, at the top of the library that a file belongs to."""
    return path.partition("/")[0].removesuffix(".py")
