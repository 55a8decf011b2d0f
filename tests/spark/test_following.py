"""How far a stream of history goes with each batch, asked as Spark asks it."""

from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from astyqueue import connect
from astyqueue.clock import SECOND, SystemClock
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record
from astyqueue.spark.following import HistoryStream
from astyqueue.spark.options import Following
from tests.places import Place

pytestmark = pytest.mark.stores("sqlite", "cassandra")
MINUTE = 60 * SECOND


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)])
def test_a_stream_on_which_nothing_happens_has_no_batches_but_one_in_an_hour(place: Place, limit: ReadLimit) -> None:
    with connect(place.url) as connection:
        queue = connection.queue("calls", time_shards=1, concurrency_shards=2)
        stream = HistoryStream(Following.of({"url": place.url, "queue": "calls", "lag": "0s"}), StructType())
        now = SystemClock().now()
        quiet = {"0": now - 50 * MINUTE, "1": now - 50 * MINUTE}
        assert stream.latestOffset(quiet, limit) == quiet
        long_quiet = {"0": now - 61 * MINUTE, "1": now - 50 * MINUTE}
        assert min(stream.latestOffset(long_quiet, limit).values()) >= now
        queue.run(record(queue.core.ring, [Event(now - MINUTE, Kind.DONE, "calls", queue.send("hello").id)], 10**13))
        assert min(stream.latestOffset(quiet, limit).values()) >= now
