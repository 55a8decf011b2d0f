"""What was sent of some files, kept in a file of its own."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from astyqueue.errors import BadInput
from astyqueue.stores.location import locate


@dataclass
class Manifest:
    """What a run has sent so far, kept in a file."""

    path: Path
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    target: dict[str, str] = field(default_factory=dict)
    done: dict[str, dict[str, int]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, target: dict[str, str]) -> Manifest:
        """The manifest in this file, or a new one; BadInput if the file is of a run to somewhere else, or no manifest."""
        if not path.exists():
            return cls(path, target=target)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            loaded = cls(path, kept["run"], kept["target"], kept["done"])
        except (ValueError, KeyError, TypeError) as error:
            message = f"{path} is no manifest of an enqueue ({error!r}): name another file, or remove it"
            raise BadInput(message) from error
        if loaded.target != target:
            message = f"{path} is the manifest of another run ({loaded.target}): name another file, or remove it to begin anew"
            raise BadInput(message)
        return loaded

    def has(self, file: Path) -> bool:
        """Whether all of this file was sent, as it is now."""
        return self.done.get(str(file), {}).items() >= _state(file).items()

    def note(self, file: Path, rows: int) -> None:
        """Remember that all of it was sent."""
        self.done[str(file)] = _state(file) | {"rows": rows}
        self.save()

    def save(self) -> None:
        """Write it, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        aside = self.path.with_name(f"{self.path.name}.new")
        aside.write_text(json.dumps({"run": self.run, "target": self.target, "done": self.done}, indent=1), encoding="utf-8")
        aside.replace(self.path)


def place_of(url: str) -> str:
    """Which store a URL names, without names and passwords, and without how it is talked to."""
    location = locate(url)
    return f"{location.scheme}://{location.place.rpartition('@')[2]}"


def _state(file: Path) -> dict[str, int]:
    """What tells a file that was changed since."""
    told = file.stat()
    return {"bytes": told.st_size, "changed": told.st_mtime_ns}
