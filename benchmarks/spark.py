"""Rates of Spark's sink and history reader, beside the same work without Spark.

The sink is compared with the same repeatable sends by as many processes, with a plain `send_many`, and with bare
inserts. Starting the session, and the first write, which warms everything up, are not counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from astyqueue import connect, ids
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import DAY, record_events
from astyqueue.protocol.sending.idempotent import begin_batch
from astyqueue.spark import session
from astyqueue.spark.batch_sender import Outbox
from astyqueue.spark.connections import Pace, open_for_sending
from astyqueue.spark.options import WriteOptions
from astyqueue.spark.row_mapping import Addressing
from astyqueue.units import SECOND
from benchmarks import baselines
from benchmarks.figures import Run, figures, table
from benchmarks.target import CLOCK, QUEUE, ROW, Target, fresh_queue
from benchmarks.target_options import opened, parser, progress, whole_number
from benchmarks.throughput import send_per_s
from benchmarks.workload import NotMeasured

#: Of what is sent and read first, so that what is measured is warm.
_WARM: Final = 1_000
#: The sink is to keep this part of the rate of the same sends without Spark.
_AIM: Final = 0.9
_DAYS: Final = 8
_CHUNK: Final = 10_000
_ROWS: Final = StructType([StructField("id", LongType()), StructField("body", StringType())])


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if rows were lost or sent twice."""
    options = _parser().parse_args(arguments)
    spark = session(f"local[{options.tasks}]", settings={"spark.sql.execution.arrow.maxRecordsPerBatch": str(_CHUNK)})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        with opened(options) as target:
            runs = [_run(spark, target, options) for _ in range(options.runs)]
            conditions = {
                "store": target.store,
                "messages": options.messages,
                "events": options.events,
                "tasks": options.tasks,
            }
            conditions |= {
                "python": platform.python_version(),
                "spark": spark.version,
                "processors": os.cpu_count(),
                **target.conditions,
            }
    except NotMeasured as failure:
        print(f"not measured: {failure}", file=sys.stderr)
        return 1
    found = figures(runs)
    report = {**found, "conditions": conditions, "aims": {"sink_to_send_many": _AIM}}
    print(json.dumps(report, indent=2) if options.json else table(found))
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser("spark", __doc__)
    made.add_argument(
        "--messages", type=whole_number(1), default=500_000, help="rows to send, each way (default: %(default)s)"
    )
    made.add_argument(
        "--events", type=whole_number(1), default=1_000_000, help="events of history to read (default: %(default)s)"
    )
    made.add_argument("--body-bytes", type=whole_number(1), default=200, help="of a body (default: %(default)s)")
    made.add_argument(
        "--tasks",
        type=whole_number(1),
        default=2,
        help="of Spark at once, and processes without it (default: %(default)s)",
    )
    return made


def _run(spark: SparkSession, target: Target, options: argparse.Namespace) -> Run:
    messages, size, tasks = options.messages, options.body_bytes, options.tasks
    run: dict[str, float | None] = {}
    progress("bare inserts")
    run["bare_driver_per_s"] = baselines.raw_send_per_s(target, messages, size)
    with fresh_queue(target) as queue:
        progress("plain send_many")
        run["plain_send_many_per_s"] = send_per_s(queue, messages, size)
    with target.fresh() as url:
        progress("repeatable sends without Spark")
        repeated = _without_spark(url, messages, size=size, tasks=tasks)
    with target.fresh() as url:
        progress("the sink")
        sink = _with_spark(spark, url, messages, size=size, tasks=tasks)
    run |= {"sink_per_s": sink, "send_many_per_s": repeated, "sink_to_send_many": sink / repeated}
    return {**run, **_reading(spark, target, options.events)}


def _with_spark(spark: SparkSession, url: str, messages: int, *, size: int, tasks: int) -> float:
    def write(count: int, query: str) -> None:
        rows = spark.range(0, count, 1, tasks).selectExpr("id", f"repeat('x', {size}) AS body")
        _writing(rows, url, query)

    write(_WARM, "warm")
    per_s = messages / _seconds(lambda: write(messages, "measured"))
    rows = spark.read.format("astyqueue").options(url=url, queue=QUEUE).load()
    if (there := rows.count()) != messages + _WARM:
        problem = f"{messages + _WARM} rows were sent, and {there} messages are there"
        raise NotMeasured(problem)
    return per_s


def _writing(rows: DataFrame, url: str, query: str) -> None:
    options = {"url": url, "queue": QUEUE, "create": "true", "id_column": "id", "body_column": "body", "query": query}
    rows.write.format("astyqueue").mode("append").options(**options).save()


def _without_spark(url: str, messages: int, *, size: int, tasks: int) -> float:
    """The same rows, made messages and sent in the same way, by as many processes."""
    with ProcessPoolExecutor(tasks, multiprocessing.get_context("spawn")) as pool:

        def send(count: int, query: str) -> None:
            parts = [
                pool.submit(_sent, url, query, rows=range(first, count, tasks), size=size) for first in range(tasks)
            ]
            sent = sum(part.result() for part in parts)
            if sent != count:
                problem = f"{count} rows were to be sent, and {sent} were"
                raise NotMeasured(problem)

        send(_WARM, "warm")
        return messages / _seconds(lambda: send(messages, "measured"))


def _sent(url: str, query: str, *, rows: range, size: int) -> int:
    options = {"url": url, "queue": QUEUE, "create": "true", "id_column": "id", "body_column": "body", "query": query}
    sink_options = WriteOptions.of(options, _ROWS)
    queue = open_for_sending(sink_options.place, create=True)
    begun = queue.run(begin_batch(queue.core.process, queue=QUEUE, source=query, batch=""))
    addressing = Addressing(queue.settings, sink_options, source=query, begun=begun)
    outbox = Outbox(queue, in_flight=sink_options.in_flight, pace=Pace(None))
    outbox.send(one for batch in _batches(rows, size) for one in addressing.of(batch))
    return outbox.put


def _batches(rows: range, size: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(rows), _CHUNK):
        part = list(rows[first : first + _CHUNK])
        yield pa.RecordBatch.from_pydict({"id": part, "body": ["x" * size] * len(part)})


def _reading(spark: SparkSession, target: Target, events: int) -> Run:
    """How fast history is read by one task and by as many as there are."""
    with target.fresh() as url, connect(url) as connection:
        progress("writing history")
        queue = connection.queue(QUEUE)
        now, ring = CLOCK.now(), queue.core.ring
        gap = (_DAYS - 1) * DAY // events
        for first in range(0, events, _CHUNK):
            numbers = range(first, min(events, first + _CHUNK))
            queue.run(record_events(ring, [_event(now - number * gap) for number in numbers], 30 * DAY))
        progress("reading history")
        frame = spark.read.format("astyqueue").options(url=url, queue=QUEUE, table="history").load()
        _read(frame.limit(_WARM))
        one, all_ = (_seconds(partial(_read, part)) for part in (frame.coalesce(1), frame))
    return {"history_read_rows_per_s_1_core": events / one, "history_read_rows_per_s": events / all_}


def _event(at: int) -> Event:
    id_ = MessageId(ROW, 0, ids.at(at))
    return Event(
        at, Kind.DONE, QUEUE, id_, attempt=1, worker="host:1:abc", task="mail", sent=at, due=at, claimed=at, began=at
    )


def _read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _seconds(work: Callable[[], None]) -> float:
    begun = CLOCK.monotonic()
    work()
    return (CLOCK.monotonic() - begun) / SECOND
