"""A Spark session on this machine or on a master that the caller names: its Java, and its output while it starts.

It needs local paths in the form that Hadoop takes: file:// is the local disk, also where Hadoop's default is another
file system.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Event, Thread
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from astyqueue.errors import BadSetting
from astyqueue.java import DoesNotRun, asked, homes, java_in
from astyqueue.spark.data_source import AstyqueueSource

#: The variable with the default master: local[*], spark://host:7077, k8s://… or sc://host:15002.
MASTER: Final = "ASTYQUEUE_SPARK_MASTER"
_HERE: Final = "local[*]"
_CONNECT: Final = "sc://"
#: Days of the tables are in UTC, also where a session has another time zone.
UTC: Final = {"spark.sql.session.timeZone": "UTC"}
_SETTINGS: Final = UTC | {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: The versions of Java that Spark 4 runs on.
VERSIONS: Final = ("17", "21")
#: Spark needs this module, which trimmed runtimes (jlink) lack.
_MODULE: Final = "jdk.incubator.vector"
_STDERR: Final = 2
#: Lines that end the hidden output. They go through the same pipe, after it, so that order is kept.
_DROP: Final = b"\x00astyqueue: it started\n"
_SHOW: Final = b"\x00astyqueue: it did not start\n"
_GLOB: Final = re.compile(r"[\\*?\[\]{}]")


def session(
    master: str | None = None,
    *,
    name: str = "astyqueue",
    settings: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> SparkSession:
    """A session with the data source `astyqueue`: the one that this process has, or a new one.

    `master` is a Spark master, or `sc://host:15002` for a Spark Connect server. Default: ASTYQUEUE_SPARK_MASTER, else
    `local[*]`. `settings` are Spark's own. `quiet` hides the output of Java while it starts, unless the start fails.
    NoJava, if Java is needed and missing, says what to install; BadSetting if PYSPARK_PYTHON does not exist.
    """
    where = master or os.environ.get(MASTER) or _HERE
    if not where.startswith(_CONNECT):
        _prepare(where)
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(where) if where.startswith(_CONNECT) else builder.master(where)
    configured = _SETTINGS | dict(settings or {})
    for key, value in configured.items():
        builder = builder.config(key, value)
    if not quiet or where.startswith(_CONNECT) or _has_java():
        return register(builder.getOrCreate())
    conf = SparkConf().setMaster(where).setAppName(name).setAll(list(configured.items()))
    with kept_back() as stderr:
        SparkContext(conf=conf, gateway=launch_gateway(conf, {"stderr": stderr}))  # type: ignore[no-untyped-call]  # PySpark gives it no types
        return register(builder.getOrCreate())


def is_elsewhere(spark: SparkSession) -> bool:
    """Whether a session is a client of a Spark Connect server, whose workers see neither this process nor its disk."""
    return "connect" in type(spark).__module__


def _has_java() -> bool:
    """Whether this process has started a Java already, whose stderr cannot be redirected afterwards."""
    return SparkContext._gateway is not None  # noqa: SLF001 - PySpark has no public name for it


def _prepare(master: str) -> None:
    """Make Spark find Java, and its workers this Python: another one that is first in PATH may lack the data source."""
    os.environ["JAVA_HOME"] = str(java_home())
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if shutil.which(python := os.environ["PYSPARK_PYTHON"]) is None:
        message = (
            f"PYSPARK_PYTHON is {python!r}, which does not exist on this machine. The driver too plans reads and "
            "writes with it, so it must have the same name here as on the workers: "
            "unpack an archive that they get into the current directory"
        )
        raise BadSetting(message)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """These settings in the caller's session during the block; afterwards the earlier values are set again."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def register(spark: SparkSession) -> SparkSession:
    """Register the data source `astyqueue` in an existing session; returns that session."""
    spark.dataSource.register(AstyqueueSource)
    return spark


class NoJava(BadSetting):
    """This machine has no Java that Spark runs on."""

    def __init__(self, found: Mapping[str, str]) -> None:
        """`found` has the home of each Java that was found, and why Spark does not run on it."""
        self.found = dict(found)
        rejected = "; ".join(f"{home}: {why}" for home, why in self.found.items()) or "no java was found"
        super().__init__(
            f"Spark 4 needs a full Java 17 or 21, and this machine has none ({rejected}). Install one (for example "
            "openjdk-17-jre-headless), or set JAVA_HOME. "
            "Only the machine that starts the session and its workers need it"
        )


def java_home() -> Path:
    """The home of a Java that Spark runs on: JAVA_HOME if it is set, else the first found. NoJava if there is none."""
    found: dict[str, str] = {}
    for home in dict.fromkeys(islice(homes(), 1 if os.environ.get("JAVA_HOME") else None)):
        wrong = _wrong_with(home)
        if wrong is None:
            return home
        found[str(home)] = wrong
    raise NoJava(found)


def _wrong_with(home: Path) -> str | None:
    """Why Spark does not run on the Java in this folder; None if it does."""
    try:
        java = java_in(home)
        if java.version not in VERSIONS:
            return f"it is Java {java.version or 'of an unknown version'}"
        modules = asked(java.program, "--list-modules")
    except DoesNotRun as error:
        return f"it does not run ({error})"
    return None if _MODULE in modules else f"it is a trimmed runtime without the module {_MODULE}"


@contextmanager
def kept_back() -> Iterator[int]:
    """A descriptor to use as the stderr of a process that is started in this block.

    Output before the end of the block is dropped, or shown if the block raises; later output goes to our own stderr.
    """
    reading, writing = os.pipe()
    shown = Event()
    Thread(target=_pass_on, args=(reading, shown), name="astyqueue:stderr", daemon=True).start()
    try:
        yield writing
    except BaseException:
        os.write(writing, _SHOW)
        shown.wait()
        raise
    else:
        os.write(writing, _DROP)
    finally:
        os.close(writing)


def _pass_on(reading: int, shown: Event) -> None:
    with os.fdopen(reading, "rb") as lines:
        *kept, last = _until_decided(lines)
        try:
            _write(b"" if last.endswith(_DROP) else b"".join(kept) + last.removesuffix(_SHOW))
        finally:
            shown.set()
        for line in lines:
            _write(line)


def _until_decided(lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield line
        if line.endswith((_DROP, _SHOW)):
            return


def _write(text: bytes) -> None:
    """Write to stderr; what cannot be written is dropped, so that Java does not wait for it."""
    with suppress(OSError):
        while text:
            text = text[os.write(_STDERR, text) :]


def on_disk(path: Path) -> str:
    """An absolute path to write to, or to compare with. It is not percent-encoded: Hadoop does not decode it."""
    return f"file://{path}"


def literally(path: Path) -> str:
    """An absolute path to read, with the characters of glob patterns escaped by a backslash."""
    return on_disk(Path(_GLOB.sub(r"\\\g<0>", str(path))))
