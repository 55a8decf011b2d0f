"""What was sent of some files, kept in a file of its own.

A file is known by what is in it, so that one that was moved, copied back or touched is not sent again. The ids of messages are
made from the name under which a file was sent first, so that of a file that grew only what is new is sent.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from astyqueue.errors import BadInput
from astyqueue.files import replace_file
from astyqueue.stores.location import locate


class Known(NamedTuple):
    """A file as a manifest knows it: a hash of what is in it, the name that stands for it in ids, and whether all of it was sent."""

    content: str
    source: str
    done: bool


@dataclass
class Manifest:
    """What a run has sent so far, kept in a file.

    `files` has, by what is in them, the names that stand for them, with how many rows were sent; None where it was begun only.
    """

    path: Path
    run: str = field(default_factory=lambda: secrets.token_hex(8))
    target: dict[str, str] = field(default_factory=dict)
    files: dict[str, dict[str, int | None]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, target: dict[str, str]) -> Manifest:
        """The manifest in this file, or a new one; BadInput if the file is of a run to somewhere else, or no manifest."""
        if not path.exists():
            return cls(path, target=target)
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            loaded = cls(path, kept["run"], kept["target"], kept.get("files", {}))
            of_paths = "done" in kept
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            message = f"{path} is no manifest of an enqueue ({error!r}): name another file, or remove it"
            raise BadInput(message) from error
        if of_paths:
            message = (
                f"{path} was written by an earlier version, which knew files by their paths: finish that run with the earlier version, or "
                "name another manifest and give it only files that were not sent yet"
            )
            raise BadInput(message)
        if loaded.target != target:
            message = f"{path} is the manifest of another run ({loaded.target}): name another file, or remove it to begin anew"
            raise BadInput(message)
        return loaded

    def known(self, files: Iterable[Path]) -> dict[Path, Known]:
        """What is known of these files. One that was renamed goes by the name that it was sent under."""
        alike: dict[str, list[Path]] = {}
        for file in dict.fromkeys(files):
            alike.setdefault(_content(file), []).append(file)
        return {file: known for content, some in alike.items() for file, known in self._of_content(content, some)}

    def _of_content(self, content: str, files: list[Path]) -> Iterator[tuple[Path, Known]]:
        """The same of all files that have this in them: a name that none of them has now is that of one that was renamed."""
        sent = self.files.get(content, {})
        names = [self._name(file) for file in files]
        unused = [name for name in sent if name not in names]
        for file, name in zip(files, names, strict=True):
            source = name if name in sent or not unused else unused.pop(0)
            yield file, Known(content, source, sent.get(source) is not None)

    def _name(self, file: Path) -> str:
        """Its name from where the manifest is, so that both may be moved together."""
        return Path(os.path.relpath(file, self.path.parent.resolve())).as_posix()

    def note(self, file: Known, rows: int | None = None) -> None:
        """Remember that it was begun, or that so many rows were sent and no more are to come."""
        self.files.setdefault(file.content, {})[file.source] = rows
        self.save()

    def save(self) -> None:
        """Write it, whole or not at all, for its owner alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path, json.dumps({"run": self.run, "target": self.target, "files": self.files}, indent=1).encode())


def place_of(url: str) -> str:
    """Which store a URL names, without names and passwords, and without how it is talked to."""
    location = locate(url)
    return f"{location.scheme}://{location.place.rpartition('@')[2]}"


def _content(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
