"""The Javas of this machine, for Spark and for a local Cassandra: where they are, and what each says of itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

#: Where systems install Java; of several versions in one of these places the newest is tried last.
INSTALLED: Final = ("/usr/lib/jvm/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
_SETTING: Final = re.compile(r"^ +(java\.(?:home|specification\.version)) = (.*)$", re.MULTILINE)
_SECONDS: Final = 30


class Java(NamedTuple):
    """A Java: its executable, its JAVA_HOME, and its version ("17"; before 9 it is "1.8"), empty if it does not say."""

    program: Path
    home: Path
    version: str


class DoesNotRun(Exception):
    """A program is not a Java, or not one that runs on this machine."""


def homes() -> Iterator[Path]:
    """The folders to look for a Java in: JAVA_HOME first if it is set, then that of `java` on the path, then others."""
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
    if command := shutil.which("java"):
        yield Path(command).resolve().parent.parent
    for pattern in INSTALLED:
        root = Path(pattern.partition("*")[0])
        found = (home for home in root.glob(pattern.removeprefix(f"{root}/")) if (home / "bin" / "java").exists())
        yield from sorted((home.resolve() for home in found), key=_by_number)


def _by_number(home: Path) -> list[str | int]:
    """The path with its numbers as numbers, so that Java 8 comes before Java 11."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(home))]


def java_in(home: Path) -> Java:
    """The Java in this folder; DoesNotRun if there is none that runs."""
    program = home / "bin" / "java"
    told = dict(_SETTING.findall(asked(program, "-XshowSettings:properties", "-version")))
    return Java(program, Path(told.get("java.home", home)), told.get("java.specification.version", ""))


def asked(program: Path, *words: str) -> str:
    """The output of a Java, on stdout and stderr; DoesNotRun if it fails, or takes longer than 30 seconds."""
    try:
        done = subprocess.run(  # noqa: S603 - found where Javas are
            [program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise DoesNotRun(str(error)) from error
    return done.stdout
