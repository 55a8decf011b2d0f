"""What a cluster is asked to do: `python cluster_job.py MASTER URL MARKS ROWS`.

Its first task is slow: it hands on half of its rows and waits until another attempt, on the worker that is free by
then, has done so too. So two attempts send the same rows at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from astyqueue.clock import SystemClock
from astyqueue.spark import session
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


def main(master: str, url: str, marks: str, rows: str) -> None:
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


if __name__ == "__main__":
    main(*sys.argv[1:])
