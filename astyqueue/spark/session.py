"""A Spark session: on this machine unless somebody says otherwise."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from astyqueue.errors import BadSetting
from astyqueue.spark.hushing import kept_back
from astyqueue.spark.java import java_home
from astyqueue.spark.source import AstyqueueSource

#: Where the session runs, unless it is said in the call: a master (local[*], spark://host:7077, k8s://…) or sc://host:15002.
MASTER: Final = "ASTYQUEUE_SPARK_MASTER"
_HERE: Final = "local[*]"
_CONNECT: Final = "sc://"
#: A day of the tables is one of UTC, wherever a session is.
UTC: Final = {"spark.sql.session.timeZone": "UTC"}
_SETTINGS: Final = UTC | {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(
    master: str | None = None, *, name: str = "astyqueue", settings: Mapping[str, str] | None = None, quiet: bool = False
) -> SparkSession:
    """A session with the data source `astyqueue`, made now or joined if this process has one.

    `master` is a Spark master, or `sc://host:15002` for a Spark Connect server; without it ASTYQUEUE_SPARK_MASTER says, and else
    it is `local[*]`. `settings` are Spark's own. `quiet` keeps back what Java says of itself while it starts, unless it fails to.
    Where Java is needed and missing, NoJava says what to install; a PYSPARK_PYTHON that is not there is a BadSetting.
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
    """Whether a session is a client of a Spark Connect server: what works for it knows neither this process nor its disk."""
    return "connect" in type(spark).__module__


def _has_java() -> bool:
    """Whether this process has a Java already, which speaks as it was told to when it started."""
    return SparkContext._gateway is not None  # noqa: SLF001 - nothing else of PySpark tells


def _prepare(master: str) -> None:
    """Have Spark find Java, and its workers this very Python: another one that is found first would not have the data source."""
    os.environ["JAVA_HOME"] = str(java_home())
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if shutil.which(python := os.environ["PYSPARK_PYTHON"]) is None:
        message = (
            f"PYSPARK_PYTHON is {python!r}, which there is none of here. Reads and writes are planned beside the driver too, so it needs "
            "that Python under the same name as the workers: unpack an archive that they get into the current directory"
        )
        raise BadSetting(message)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """These settings in a session that is its caller's, for the length of the block; what was set before is set again after it."""
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
    """Make the data source `astyqueue` known to a session that is there already; the same session."""
    spark.dataSource.register(AstyqueueSource)
    return spark
