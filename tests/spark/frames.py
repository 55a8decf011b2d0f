"""What tests ask of Spark, in short."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession

from astyqueue import Connection, MessageQueue, connect

QUEUE: Final = "emails"


@dataclass
class Frames:
    """A Spark session and a store."""

    spark: SparkSession
    url: str
    connection: Connection = field(init=False)

    def __post_init__(self) -> None:
        self.connection = connect(self.url)

    def queue(self, name: str = QUEUE, **settings: object) -> MessageQueue:
        """A queue of few rows: Spark has a task for each, and each begins a worker."""
        return self.connection.queue(name, **{"time_shards": 2, "concurrency_shards": 2, **settings})

    def read(self, table: str, queue: str = QUEUE, **options: object) -> DataFrame:
        told = self._options(queue, {"table": table, **options})
        return self.spark.read.format("astyqueue").options(**told).load()

    def send(self, frame: DataFrame, queue: str = QUEUE, **options: object) -> None:
        frame.write.format("astyqueue").mode("append").options(
            **self._options(queue, {"id_column": "id", **options})
        ).save()

    def follow(self, **options: object) -> DataFrame:
        told = self._options(QUEUE, {"table": "history", "lag": "0s", **options})
        return self.spark.readStream.format("astyqueue").options(**told).load()

    def rows(self, count: int, tasks: int = 2) -> DataFrame:
        return self.spark.range(0, count, 1, tasks).selectExpr("id", "concat('user-', id) AS name")

    def close(self) -> None:
        self.connection.close()

    def _options(self, queue: str, options: dict[str, object]) -> dict[str, str]:
        return {"url": self.url, "queue": queue, **{name: str(value) for name, value in options.items()}}


def drained(queue: MessageQueue) -> list[object]:
    """The bodies of all that can be claimed now, each acked."""
    bodies: list[object] = []
    while True:
        with queue.receive(500) as batch:
            found = [delivery.body for delivery in batch]
        if not found:
            return bodies
        bodies += found


def by(frame: DataFrame, column: str) -> dict[object, Row]:
    """The rows of a frame by one of their columns, each of which has another value there."""
    rows = frame.collect()
    found = {row[column]: row for row in rows}
    assert len(found) == len(rows)
    return found
