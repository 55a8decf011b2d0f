"""A stream to be killed at any moment: `python stream_job.py URL SOURCE TARGET CHECKPOINT ROWS_PER_BATCH`.

It follows the history of one queue and sends each event to another, until its standard input ends or nothing is left.
"""

from __future__ import annotations

import sys

from astyqueue.spark import session
from tests.spark.conftest import SETTINGS


def main(url: str, *names: str) -> None:
    source, target, checkpoint, most = names
    spark = session("local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    place = {"url": url, "queue": source}
    events = (
        spark.readStream.format("astyqueue")
        .options(**place, table="history", since="30d", lag="0s", rows_per_batch=most)
        .load()
    )
    rows = events.selectExpr("concat(message, ' ', kind, ' ', at) AS event", "kind", "attempt")
    sink = rows.writeStream.format("astyqueue").options(
        url=url, queue=target, id_column="event", checkpointLocation=checkpoint
    )
    sys.stdout.write("ready\n")
    sink.trigger(availableNow=True).start().awaitTermination()
    sys.stdout.write("ended\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
