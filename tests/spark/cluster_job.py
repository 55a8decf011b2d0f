"""What a test asks of Spark: `cluster_job.py speculate MASTER URL MARKS ROWS`, or `cluster_job.py connect URL`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.spark import register, session
from astyqueue.spark.pipeline.streaming import Stream
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.task.duration.threshold": "2s",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
}


def speculate(master: str, url: str, marks: str, rows: str) -> None:
    """Send rows from a cluster, of which two attempts of a task send the same at once.

    The first task is slow: it hands on half of its rows and waits until another attempt, on the worker that is free by
    then, has done so too.
    """

    def hand_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(list(batches))
        context = TaskContext.get()
        assert context is not None
        half = table.num_rows // 2
        yield from table.slice(0, half).to_batches(100)
        if context.attemptNumber() > 0:
            Path(marks, "other").touch()
        elif context.partitionId() == 0:
            wait_for(Path(marks, "other"))
        yield from table.slice(half).to_batches(100)

    spark = session(master, settings=SPECULATION)
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.range(0, int(rows), 1, 2).selectExpr("id", "concat('user-', id) AS name")
    options = {"url": url, "queue": "emails", "id_column": "id"}
    frame.mapInArrow(hand_on, frame.schema).write.format("astyqueue").mode("append").options(**options).save()
    found = spark.read.format("astyqueue").options(url=url, queue="emails").load()
    sys.stdout.write(f"messages {found.count()}\n")
    spark.stop()


def wait_for(mark: Path) -> None:
    """Wait until another attempt says that it has begun; not for ever, for there may be none."""
    clock = SystemClock()
    deadline = clock.monotonic() + 60 * SECOND
    while not mark.exists() and clock.monotonic() < deadline:
        Wakeup(clock).wait(clock.monotonic() + SECOND // 20)


def connect(url: str) -> None:
    """Send and read as anybody does, by a client of Spark Connect."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of the server, which is started here
    spark = register(SparkSession.builder.remote("local[2]").config("spark.driver.memory", "512m").getOrCreate())
    place = {"url": url, "queue": "emails"}
    rows = spark.range(0, 100, 1, 2).selectExpr("id", "concat('user-', id) AS name")
    rows.write.format("astyqueue").mode("append").options(**place, id_column="id", query="connect").save()
    rows.write.format("astyqueue").mode("append").options(**place, id_column="id", query="connect").save()
    found = spark.read.format("astyqueue").options(**place).load()
    sys.stdout.write(f"{type(spark).__module__} messages {found.count()}\n")
    try:
        Stream(spark, Path("lake"))
    except BadSetting as refused:
        sys.stdout.write(f"{refused}\n")
    spark.stop()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["speculate", master, url, marks, rows]:
            speculate(master, url, marks, rows)
        case ["connect", url]:
            connect(url)
        case _:
            sys.exit(__doc__)
