"""How far a stream of history goes with each batch, asked as Spark asks it, with offsets as a checkpoint keeps them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

from astyqueue import MessageQueue, connect
from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.model.event import Event, Kind
from astyqueue.protocol.history import record_events
from astyqueue.spark.errors import HistoryGone
from astyqueue.spark.history_stream import HistoryStream, Offset
from astyqueue.spark.options import StreamReadOptions
from astyqueue.units import SECOND
from tests.support.places import Place

pytestmark = pytest.mark.stores("sqlite", "cassandra")
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
NAME = "calls"
ATTEMPT = StructType([StructField("attempt", LongType())])


@pytest.fixture
def queue(place: Place) -> Iterator[MessageQueue]:
    with connect(place.url) as connection:
        yield connection.queue(NAME, time_shards=1, concurrency_shards=2)


def stream(place: Place, **options: str) -> HistoryStream:
    return HistoryStream(StreamReadOptions.of({"url": place.url, "queue": NAME, "lag": "0s", **options}), ATTEMPT)


def at(until: int, buckets: int = 2) -> Offset:
    return {"until": until, "queue": NAME, "buckets": buckets}


def until(offset: Offset) -> int:
    return int(offset["until"])


def tell(queue: MessageQueue, moments: Iterable[int]) -> None:
    """Events of one message at these moments, numbered."""
    id_ = queue.send("hello").id
    events = [Event(moment, Kind.DONE, NAME, id_, attempt=number) for number, moment in enumerate(moments)]
    queue.run(record_events(queue.core.ring, events, 10**13))


def batches(following: HistoryStream, limit: ReadLimit) -> list[Offset]:
    """The offsets at which batches end, from the first until there is no more; each goes through a checkpoint."""
    offsets = [following.initialOffset()]
    following.prepareForTriggerAvailableNow()
    while (end := following.latestOffset(offsets[-1], limit)) != offsets[-1]:
        offsets.append(json.loads(json.dumps(end)))
    return offsets


def read(following: HistoryStream, start: Offset, end: Offset) -> list[int]:
    """The numbers of the events of one batch."""
    found = [batch for partition in following.partitions(start, end) for batch in following.read(partition)]
    return sorted(number for batch in found for number in batch.column("attempt").to_pylist())


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)])
def test_a_stream_on_which_nothing_happens_has_no_batches_but_one_in_an_hour(
    place: Place, queue: MessageQueue, limit: ReadLimit
) -> None:
    following, now = stream(place), SystemClock().now()
    assert following.latestOffset(at(now - 50 * MINUTE), limit) == at(now - 50 * MINUTE)
    assert until(following.latestOffset(at(now - 61 * MINUTE), limit)) >= now
    tell(queue, [now - MINUTE])
    assert until(following.latestOffset(at(now - 50 * MINUTE), limit)) >= now


@pytest.mark.parametrize("lag", ["0s", "60s"])
def test_the_first_batch_records_where_a_stream_began_although_there_are_no_events_yet(
    place: Place, queue: MessageQueue, lag: str
) -> None:
    following = stream(place, lag=lag)
    start = following.initialOffset()
    began = following.latestOffset(start, ReadAllAvailable())
    assert (began != start, following.latestOffset(began, ReadAllAvailable()) == began or lag == "0s") == (True, True)
    tell(queue, [until(began) + SECOND])
    started_again = stream(place, lag=lag)
    assert read(started_again, json.loads(json.dumps(began)), at(until(began) + 2 * SECOND)) == [0]


def test_a_bucket_with_few_events_does_not_go_ahead_of_the_others(place: Place, queue: MessageQueue) -> None:
    now = SystemClock().now()
    tell(queue, [now - 8 * HOUR + number * MINUTE for number in range(300)])
    following = stream(place, since="10h")
    offsets = batches(following, ReadMaxRows(100))
    ends = [now - 8 * HOUR + number * MINUTE + 1 for number in (99, 199, 299)]
    assert [until(offset) for offset in offsets[1:4]] == ends
    assert [len(read(following, *pair)) for pair in pairwise(offsets[:4])] == [100, 100, 100]


def test_how_far_a_stream_could_be_is_reported_also_where_batches_are_limited(
    place: Place, queue: MessageQueue
) -> None:
    now = SystemClock().now()
    tell(queue, [now - HOUR + number * SECOND for number in range(300)])
    following = stream(place, since="2h", lag="10s")
    behind = following.latestOffset(following.initialOffset(), ReadMaxRows(100))
    assert now - 11 * SECOND < until(following.reportLatestOffset()) < now + MINUTE
    assert until(behind) < now - 50 * MINUTE


def test_limited_batches_hold_each_event_once_however_they_are_spread(place: Place, queue: MessageQueue) -> None:
    now = SystemClock().now()
    for start in (5 * HOUR, 4 * HOUR, 3 * HOUR):  # messages of both buckets
        tell(queue, [now - start + number // 3 * SECOND for number in range(250)])
    following = stream(place, since="6h")
    offsets = batches(following, ReadMaxRows(70))
    seen = Counter(number for pair in pairwise(offsets) for number in read(following, *pair))
    assert seen == dict.fromkeys(range(250), 3)
    assert all(len(read(following, *pair)) <= 70 + 3 for pair in pairwise(offsets))


def test_the_first_batch_holds_the_same_events_when_it_comes_again_later(place: Place, queue: MessageQueue) -> None:
    now = SystemClock().now()
    tell(queue, [now - 50 * MINUTE, now - 10 * MINUTE])
    following = stream(place, since="1h")
    start = following.initialOffset()
    end = following.latestOffset(start, ReadAllAvailable())
    started_again = stream(place, since="20m")  # as "1h" is, forty minutes later
    assert read(following, start, end) == [0, 1]
    assert read(started_again, started_again.initialOffset(), json.loads(json.dumps(end))) == [0, 1]


def test_a_checkpoint_with_an_offset_for_each_bucket_is_read_on_from(place: Place, queue: MessageQueue) -> None:
    now = SystemClock().now()
    tell(queue, [now - 3 * HOUR, now - HOUR])
    tell(queue, [now - 3 * HOUR, now - HOUR])
    following = stream(place)
    ahead: Offset = {"0": now - 2 * HOUR, "1": now - 2 * HOUR - MINUTE}
    assert read(following, {"0": now - 4 * HOUR, "1": now - 4 * HOUR}, ahead) == [0, 0]
    end = following.latestOffset(ahead, ReadAllAvailable())
    assert (set(end), until(end) >= now) == ({"until", "queue", "buckets"}, True)
    assert read(following, ahead, end) == [1, 1]
    behind = stream(place, lag="1h").latestOffset({"0": now, "1": now - 3 * HOUR}, ReadAllAvailable())
    assert (set(behind), behind["0"]) == ({"0", "1"}, now)


@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(10)])
def test_a_stream_from_the_first_moment_reads_no_day_before_those_that_may_be_kept(
    place: Place, queue: MessageQueue, limit: ReadLimit
) -> None:
    now = SystemClock().now()
    tell(queue, [now - 399 * 24 * HOUR, now - MINUTE])
    following = stream(place, since="1970-01-01T00:00:00Z")
    start = following.initialOffset()
    end = following.latestOffset(start, limit)
    assert until(start) == 0
    assert len(following.partitions(start, end)) <= 2 * 402
    assert read(following, start, end) == [0, 1]


@pytest.mark.parametrize("start", [at(0, 4), {"until": 0, "queue": "letters", "buckets": 2}, {"0": 0, "1": 0, "2": 0}])
def test_a_checkpoint_of_another_queue_or_layout_is_refused(place: Place, queue: MessageQueue, start: Offset) -> None:
    following = stream(place)
    for refused in (
        lambda: following.latestOffset(start, ReadAllAvailable()),
        lambda: following.partitions(start, start),
    ):
        with pytest.raises(BadSetting, match=r"was dropped and created again.*begin with a new checkpoint"):
            refused()
    assert queue.counts().total == 0


def test_a_stream_that_was_away_for_longer_than_history_is_kept_fails(place: Place, queue: MessageQueue) -> None:
    queue.configure(history_kept="1h")
    now = SystemClock().now()
    tell(queue, [now - MINUTE])
    away = at(now - 2 * HOUR)
    with pytest.raises(HistoryGone, match=r"is kept for 1h only.*failOnDataLoss=false"):
        stream(place).latestOffset(away, ReadAllAvailable())
    lenient = stream(place, failOnDataLoss="false")
    assert read(lenient, away, lenient.latestOffset(away, ReadAllAvailable())) == [0]


def test_a_new_stream_may_begin_before_what_is_kept(place: Place, queue: MessageQueue) -> None:
    queue.configure(history_kept="1h")
    tell(queue, [SystemClock().now() - MINUTE])
    following = stream(place, since="2h")
    start = following.initialOffset()
    assert read(following, start, following.latestOffset(start, ReadAllAvailable())) == [0]


def test_a_quiet_stream_moves_on_before_its_place_is_kept_no_longer(place: Place, queue: MessageQueue) -> None:
    queue.configure(history_kept="1h")
    now = SystemClock().now()
    moved_on = until(stream(place).latestOffset(at(now - 31 * MINUTE), ReadAllAvailable()))
    # The stream corrects its clock by the store's, so it may be a little behind this one.
    assert moved_on > now - MINUTE
