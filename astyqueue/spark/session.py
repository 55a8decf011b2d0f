"""A Spark session: on this machine unless somebody says otherwise."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from astyqueue.spark.java import java_home
from astyqueue.spark.source import AstyqueueSource

#: Where the session runs, unless it is said in the call: a master (local[*], spark://host:7077, k8s://…) or sc://host:15002.
MASTER: Final = "ASTYQUEUE_SPARK_MASTER"
_HERE: Final = "local[*]"
_CONNECT: Final = "sc://"
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def session(master: str | None = None, *, name: str = "astyqueue", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with the data source `astyqueue`, made now or joined if this process has one.

    `master` is a Spark master, or `sc://host:15002` for a Spark Connect server; without it ASTYQUEUE_SPARK_MASTER says, and else
    it is `local[*]`. `settings` are Spark's own. Where Java is needed and missing, NoJava says what to install.
    """
    where = master or os.environ.get(MASTER) or _HERE
    if not where.startswith(_CONNECT):
        _prepare(where)
    builder = SparkSession.builder.appName(name)
    builder = builder.remote(where) if where.startswith(_CONNECT) else builder.master(where)
    for key, value in (_SETTINGS | dict(settings or {})).items():
        builder = builder.config(key, value)
    return register(builder.getOrCreate())


def _prepare(master: str) -> None:
    """Have Spark find Java, and its workers this very Python: another one that is found first would not have the data source."""
    os.environ["JAVA_HOME"] = str(java_home())
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def register(spark: SparkSession) -> SparkSession:
    """Make the data source `astyqueue` known to a session that is there already; the same session."""
    spark.dataSource.register(AstyqueueSource)
    return spark
