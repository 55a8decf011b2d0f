"""`worker --reload`: notices changes of the source files of an app, without importing it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from astyqueue.cli.config import here


class SourceWatch:
    """The `.py` files of the package that an app is in, or beside the module that it is in."""

    def __init__(self, app: str) -> None:
        """`app` is given as module:name. The current directory is searched first, as for the app itself."""
        self._folders = list(_folders(app.partition(":")[0].partition(".")[0]))
        self._seen = self._times()

    def changed(self) -> str | None:
        """A file that was changed, added or removed since the last call; None if there is none."""
        before, self._seen = self._seen, self._times()
        different = dict(before.items() ^ self._seen.items())
        return min(different, default=None)

    def _times(self) -> dict[str, int]:
        return {str(path): time for folder, deep in self._folders for path, time in _sources(folder, deep=deep)}


def _folders(package: str) -> Iterator[tuple[Path, bool]]:
    """The folders to watch, and whether those below them count too."""
    folder = str(here())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found = importlib.util.find_spec(package) if package else None
    if found is not None and found.submodule_search_locations is not None:
        yield from ((Path(place), True) for place in found.submodule_search_locations)
    else:
        origin = found.origin if found is not None else None
        yield Path(origin).parent if origin else here(), False


def _sources(folder: Path, *, deep: bool) -> Iterator[tuple[Path, int]]:
    """The files and the times of their last change."""
    for path in folder.rglob("*.py") if deep else folder.glob("*.py"):
        try:
            yield path, path.stat().st_mtime_ns
        except OSError:  # removed since it was listed
            continue
