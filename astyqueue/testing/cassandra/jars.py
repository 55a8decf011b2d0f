"""The program of a node: the jars of one Cassandra version, fetched by Maven once and kept outside the checkout."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from astyqueue.testing.cassandra.errors import JarsNotFetched, NoMaven, OtherJars
from astyqueue.testing.cassandra.java import Java

_POM: Final = Path(__file__).with_name("pom.xml")
_TOLD: Final = 15
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
#: Where distributions keep the authorities that this machine trusts, for Java. One from elsewhere has a list of its own,
#: without those that were added here, such as that of a company's proxy.
_TRUSTED: Final = (Path("/etc/ssl/certs/java/cacerts"), Path("/etc/pki/java/cacerts"))
_TRUST: Final = "-Djavax.net.ssl.trustStore"


def jars(version: str, java: Java) -> Path:
    """The folder with every jar of this version; fetched now if it is not there, by one process at a time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "astyqueue" / "cassandra"
    folder = cache / version
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f"{version}.lock"):
            _fetch(version, java, folder)
    return folder


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock, for which another process may have to be waited for."""
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fetch(version: str, java: Java, folder: Path) -> None:
    """Have Maven fill the folder; it appears complete or not at all."""
    if folder.is_dir():
        return
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{version}-") as partial:
        filled = Path(partial) / "jars"
        _run_maven(version, java, filled)
        _compare(version, filled)
        filled.rename(folder)


def _compare(version: str, folder: Path) -> None:
    """Raise OtherJars unless these are the jars, byte by byte, that this version was tried with, as far as that is listed."""
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
        raise JarsNotFetched(version, "\n".join(done.stdout.splitlines()[:_TOLD]))


def _options(given: str) -> str:
    """The options of Maven's Java: those that are given, and whom to trust if they do not say."""
    trusted = next((store for store in _TRUSTED if store.exists()), None)
    return given if trusted is None or _TRUST in given else f"{given} {_TRUST}={trusted}".strip()
