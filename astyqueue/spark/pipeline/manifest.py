"""The manifest of a folder of tables: up to when the history of each queue was read, and which days were built."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import date
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from astyqueue.errors import AstyqueueError
from astyqueue.files import replace_file

_FILE: Final = "_manifest.json"
#: Permissions of a new folder of tables: they have keys, names of tenants and tracebacks in them.
FOLDER_MODE: Final = 0o700
#: The permissions that files take over from the folder.
_READERS: Final = 0o666
_REMOVE: Final = "remove it to continue: the next run then reads the whole history again, which loses nothing"
_MEND_DISK: Final = "nothing was changed; run this again when the disk can be read"
_LET_READ: Final = "make it readable for this user (chmod), or run this as the user who writes the tables"


class BadManifest(AstyqueueError):
    """The manifest of a folder cannot be read."""

    def __init__(self, path: Path, why: str, remedy: str = _REMOVE) -> None:
        """Name the file, the problem, and what to do: by default to remove it, as its content is of no use."""
        self.path = path
        self.why = why
        super().__init__(f"{path} cannot be read: {why}; {remedy}")


class ReadSoFar(BaseModel):
    """One queue: its history was read up to a moment (microseconds), and each of these days was built up to another.

    The percentiles in the tables of the `approximate` days are approximate.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    until_us: int
    days: dict[date, int] = {}
    objective: str = ""
    approximate: tuple[date, ...] = ()


class Manifest(BaseModel):
    """Every queue that was read into a folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = 1
    queues: dict[str, ReadSoFar] = {}

    def mark(self, queue: str, now: int) -> int | None:
        """Up to when a queue was read; None if it was not, or if that is after `now`: it came from a wrong clock."""
        read = self.queues.get(queue)
        return read.until_us if read and read.until_us <= now else None

    def built(self, queue: str) -> Collection[date]:
        """The days of a queue that were built so far."""
        read = self.queues.get(queue)
        return read.days if read else ()

    def without(self, days: Iterable[tuple[str, date]]) -> Manifest:
        """The same as if these days of queues had not been built yet."""
        gone = set(days)
        queues = {
            queue: read.model_copy(
                update={"days": {day: at for day, at in read.days.items() if (queue, day) not in gone}}
            )
            for queue, read in self.queues.items()
        }
        return self.model_copy(update={"queues": queues})

    def with_percentiles(self, built: Iterable[tuple[str, date]], *, approximate: bool) -> Manifest:
        """The same after these days of queues were built with approximate or with exact percentiles."""
        days = {queue: set(read.approximate) for queue, read in self.queues.items()}
        for queue, day in built:
            if queue in days:
                (days[queue].add if approximate else days[queue].discard)(day)
        queues = {
            queue: read.model_copy(update={"approximate": tuple(sorted(days[queue]))})
            for queue, read in self.queues.items()
        }
        return self.model_copy(update={"queues": queues})


def load(folder: Path) -> Manifest:
    """The manifest of a folder, an empty one if the file is missing; BadManifest if it cannot be read."""
    path = folder / _FILE
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Manifest()
    except OSError as error:
        remedy = _LET_READ if isinstance(error, PermissionError) else _MEND_DISK
        raise BadManifest(path, error.strerror or type(error).__name__, remedy) from error
    except ValidationError as error:
        raise BadManifest(path, str(error).splitlines()[0]) from error


def store(folder: Path, manifest: Manifest) -> None:
    """Replace the manifest, whole or not at all, readable for those who may read the folder.

    Defaults are left out: an older release refuses fields that it does not know.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    path = folder / _FILE
    replace_file(path, manifest.model_dump_json(indent=2, exclude_defaults=True).encode())
    path.chmod(mode_in(folder))


def mode_in(folder: Path) -> int:
    """The permissions of files in a folder of tables: who may read it may read them."""
    return folder.stat().st_mode & _READERS
