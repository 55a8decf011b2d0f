"""The numbered files that create the tables of a store: the folder `schema/` of the repository.

In a wheel the folder is inside the package; in a checkout, installed editable or not, it is at the top.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, NamedTuple

_FILE: Final = re.compile(r"([0-9]{4}_\w+)\.(?:cql|sql)")
_COMMENT: Final = re.compile(r"--[^\n]*\n")


class Part(NamedTuple):
    """One of the files: the version that it brings a store to, its name without suffix, and its statements."""

    version: int
    file: str
    statements: tuple[str, ...]


@cache
def parts(store: str) -> tuple[Part, ...]:
    """The files of a store, `cassandra` or `sqlite`, in the order in which they run."""
    found = ((_FILE.fullmatch(each.name), each) for each in folder(store).iterdir())
    return tuple(sorted(_part(name[1], each.read_text(encoding="utf-8")) for name, each in found if name))


def folder(store: str) -> Traversable:
    """Where the files of a store are."""
    packaged = resources.files("astyqueue") / "schema" / store
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "schema" / store


def _part(file: str, text: str) -> Part:
    statements = (statement.strip() for statement in _COMMENT.sub("", text).split(";"))
    return Part(int(file.partition("_")[0]), file, tuple(filter(None, statements)))
