"""What is read "up to now" is read up to the store's now: the clock of this machine may be hours ahead of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from astyqueue import connect
from astyqueue.cli import main
from astyqueue.clock import Clock, CorrectedClock, SystemClock, instant
from astyqueue.ids import Nonce
from astyqueue.model.event import Event
from astyqueue.protocol.coordination.store_time import clock_offset
from astyqueue.protocol.steps import Steps
from astyqueue.queue import settings_sync
from astyqueue.spark import connections
from astyqueue.spark.history_stream import HistoryStream
from astyqueue.spark.options import StreamReadOptions
from astyqueue.spark.pipeline import batch
from astyqueue.spark.pipeline.batch import Job
from astyqueue.spark.schemas import HISTORY, schema_of
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.spark.pipeline.histories import NOON, QUEUE, Life, frame, told
from tests.spark.pipeline.snapshots import HOUR, Tables

#: How far the clock of this machine is ahead of the store's.
AHEAD: Final = timedelta(hours=2) // timedelta(microseconds=1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> TimeMachine:
    """The clock of the store."""
    server = TimeMachine(instant(NOON))

    def opened(url: str, *, clock: Clock, relaxed: bool = False) -> Store:
        assert isinstance(clock, SystemClock)
        return open_store(url, clock=server, relaxed=relaxed)

    monkeypatch.setattr(SystemClock, "now", lambda _: server.now() + AHEAD)
    monkeypatch.setattr(CorrectedClock, "now", lambda clock: server.now() + AHEAD + clock.ahead)
    monkeypatch.setattr(connections, "open_store", opened)
    return server


@pytest.fixture
def url(server: TimeMachine, tmp_path: Path) -> str:
    """A store with a queue that keeps all of its history."""
    made = f"sqlite:///{tmp_path}/work.db?synchronous=normal"
    with connect(made, clock=server) as connection:
        connection.queue(QUEUE, history="all")
    return made


@pytest.mark.full
def test_a_machine_whose_clock_stays_ahead_loses_nothing(
    spark: SparkSession, server: TimeMachine, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history: list[Event] = []

    def read(spark: SparkSession, _: str, __: str, *, since: int, until: int) -> DataFrame:
        return frame(spark, [event for event in history if since <= event.at < until])

    monkeypatch.setattr(batch, "events", read)
    job, tables = Job(spark, tmp_path / "lake"), Tables(tmp_path / "lake")
    history += told(Life("a").claimed(1).done(2))
    server.advance("100s")
    job.run(url, [QUEUE])
    history += told(Life("b", HOUR / 2).claimed(HOUR / 2).done(HOUR / 2 + 1))
    server.advance("1h")
    built = job.run(url, [QUEUE])
    assert tables.figures().counts()["done"] == 2
    assert abs(built.read[QUEUE][1] - server.now()) < SECOND


def spoilt(times: int) -> Callable[..., Steps[int | None]]:
    """Comparisons with the store's clock, of which the first fail: another process compared at the same moment."""
    left = itertools.count(1)

    def compared(now: Callable[[], int], known: int, *, nonce: Nonce) -> Steps[int | None]:
        if next(left) <= times:
            return None
        return (yield from clock_offset(now, known, nonce=nonce))

    return compared


@pytest.mark.parametrize("times", [0, 1, 4])
def test_the_stores_time_is_read_though_other_processes_compare_at_the_same_moment(
    server: TimeMachine, url: str, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    monkeypatch.setattr(settings_sync, "clock_offset", spoilt(100))
    monkeypatch.setattr(connections, "clock_offset", spoilt(times))
    assert abs(connections.time_of_store(url, [QUEUE]) - server.now()) < SECOND


def test_it_is_logged_if_the_clock_of_this_machine_counts(
    server: TimeMachine, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(settings_sync, "clock_offset", spoilt(100))
    monkeypatch.setattr(connections, "clock_offset", spoilt(100))
    assert connections.time_of_store(url, [QUEUE]) == server.now() + AHEAD
    assert f"store_time_unknown queue={QUEUE}" in caplog.text


@pytest.mark.parametrize(("options", "before"), [({}, 0), ({"since": "1h"}, HOUR), ({"since": "2h"}, 2 * HOUR)])
def test_a_stream_begins_at_the_stores_now_or_so_long_before_it(
    server: TimeMachine, url: str, options: dict[str, str], before: int
) -> None:
    following = HistoryStream(StreamReadOptions.of({"url": url, "queue": QUEUE, **options}), schema_of(HISTORY))
    began = int(following.initialOffset()["until"])
    assert abs(began - (server.now() - before * SECOND)) < SECOND


def test_the_first_stream_into_a_folder_begins_an_hour_before_the_stores_now(
    spark: SparkSession, server: TimeMachine, url: str, tmp_path: Path, starts_asked_for: list[int]
) -> None:
    ended = CliRunner().invoke(
        main, ["pipeline", "stream", "--out", str(tmp_path / "lake"), "--once", "--url", url], prog_name="astyqueue"
    )
    assert ended.exit_code == 0, ended.output
    [began] = starts_asked_for
    assert abs(began - (server.now() - HOUR * SECOND)) < SECOND
    assert spark.range(1).count() == 1
