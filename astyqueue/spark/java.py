"""The Java that Spark runs on, which is the machine's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from astyqueue.errors import BadSetting

#: The releases that Spark 4 runs on.
RELEASES: Final = (17, 21)
#: Spark asks for it, and runtimes that were trimmed for one purpose lack it.
_MODULE: Final = "jdk.incubator.vector"
_RELEASE: Final = re.compile(r'version "(\d+)')
#: Where systems keep what they installed, newest last.
_INSTALLED: Final = ("/usr/lib/jvm/*", "/opt/java/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")
_SECONDS: Final = 30


class NoJava(BadSetting):
    """There is no Java on this machine that Spark runs on."""

    def __init__(self, found: Mapping[str, str]) -> None:
        """Say what was found in its place: what is wrong with each, by its home."""
        self.found = dict(found)
        told = "; ".join(f"{home}: {why}" for home, why in self.found.items()) or "no java was found"
        super().__init__(
            f"Spark 4 runs on a full Java 17 or 21, and this machine has none ({told}). Install one (openjdk-17-jre-headless, for "
            "example), or say with JAVA_HOME where it is. Only the machine that starts the session and its workers need it"
        )


def java_home() -> Path:
    """The home of a Java that Spark runs on: that of JAVA_HOME, else the first that is found; without any NoJava says why."""
    found: dict[str, str] = {}
    for home in dict.fromkeys(_homes()):
        wrong = _wrong_with(home)
        if wrong is None:
            return home
        found[str(home)] = wrong
    raise NoJava(found)


def _homes() -> Iterator[Path]:
    if named := os.environ.get("JAVA_HOME"):
        yield Path(named)
        return
    if command := shutil.which("java"):
        yield Path(command).resolve().parent.parent
    for pattern in _INSTALLED:
        root = Path(pattern.partition("*")[0])
        yield from sorted(home.resolve() for home in root.glob(pattern.removeprefix(f"{root}/")) if (home / "bin" / "java").exists())


def _wrong_with(home: Path) -> str | None:
    """Why Spark does not run on this Java; None if it does."""
    java = home / "bin" / "java"
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_SECONDS, check=True).stderr  # noqa: S603 - it is a java, or fails
        release = _RELEASE.search(told)
        if release is None or int(release[1]) not in RELEASES:
            return f"it is Java {release[1] if release else 'of an unknown release'}"
        modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=_SECONDS, check=True).stdout  # noqa: S603 - as above
    except (OSError, subprocess.SubprocessError) as error:
        return f"it does not run ({error})"
    return None if _MODULE in modules else f"it is a trimmed one, without the module {_MODULE}"
