from __future__ import annotations

import importlib
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

import pyspark_astyqueue
from astyqueue import connect
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput, BadSetting
from astyqueue.protocol.sending.idempotent import BatchRecord
from astyqueue.spark import connections
from astyqueue.spark.connections import Pace, open_read_only
from astyqueue.spark.data_source import AstyqueueSource
from astyqueue.spark.options import BatchReadOptions, StreamReadOptions, WriteOptions, everywhere
from astyqueue.spark.pipeline.batch import stretch_options
from astyqueue.spark.row_mapping import Addressing
from astyqueue.store import Store
from astyqueue.stores import open_store
from astyqueue.stores.cassandra.connection.settings import ANY_ONE, Levels
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND, MonotonicUs

PLACE = {"url": "cassandra://host/work", "queue": "emails"}


def test_a_relative_file_is_the_same_file_for_workers_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert everywhere("sqlite:///work.db?synchronous=normal") == f"sqlite:///{tmp_path}/work.db?synchronous=normal"
    assert everywhere("SQLite:///my%20work.db?a=%2F") == f"sqlite:///{tmp_path}/my%20work.db?a=%2F"
    assert everywhere("sqlite:////var/work.db") == "sqlite:////var/work.db"
    assert everywhere("cassandra://host/work") == "cassandra://host/work"


def test_a_moment_is_written_or_so_long_ago(clock: TimeMachine) -> None:
    reading = BatchReadOptions.of({**PLACE, "since": "2h", "UNTIL": "2026-11-21T09:00:00+01:00"}, clock)
    assert reading.since == clock.now() - 7_200 * SECOND
    assert reading.until == 1_795_248_000 * SECOND


def test_a_stream_begins_now_and_stays_a_minute_behind(clock: TimeMachine) -> None:
    options = StreamReadOptions.of(PLACE)
    assert (options.begin(clock.now()), options.lag, options.most) == (clock.now(), 60 * SECOND, None)
    assert StreamReadOptions.of({**PLACE, "since": "2h"}).begin(clock.now()) == clock.now() - 7_200 * SECOND
    with pytest.raises(BadSetting, match="option since: 'soon' is not a moment"):
        StreamReadOptions.of({**PLACE, "since": "soon"})


def test_a_moment_without_a_zone_is_refused(clock: TimeMachine) -> None:
    with pytest.raises(BadSetting, match="option since: '2026-11-21T09:00:00' has no time zone"):
        BatchReadOptions.of({**PLACE, "since": "2026-11-21T09:00:00"}, clock)


def test_a_lag_that_is_no_duration_is_refused_by_its_name() -> None:
    with pytest.raises(BadSetting, match="option lag: 'soon' is not a duration"):
        StreamReadOptions.of({**PLACE, "lag": "soon"})


def test_names_of_options_are_read_as_spark_spells_its_own_too() -> None:
    options = StreamReadOptions.of({**PLACE, "rowsPerBatch": "7", "fail_on_data_loss": "False"})
    assert (options.most, options.complete) == (7, False)
    assert StreamReadOptions.of(PLACE).complete
    assert [
        StreamReadOptions.of({**PLACE, "failOnDataLoss": word}).complete for word in ("on", "off", "yes", "no")
    ] == [
        True,
        False,
    ] * 2
    with pytest.raises(BadSetting, match="failOnDataLoss='maybe' is not one of true, 1, yes, on, false, 0, no, off"):
        StreamReadOptions.of({**PLACE, "failOnDataLoss": "maybe"})


def asks_any_one(options: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> bool:
    """Whether the store that these options open answers reads from any one copy."""
    asked: list[bool] = []

    def opened(url: str, *, clock: SystemClock, relaxed: bool = False) -> Store:
        asked.append(relaxed)
        return open_store(url, clock=clock, relaxed=relaxed)

    url = f"sqlite:///{tmp_path}/{len(list(tmp_path.iterdir()))}.db"
    connect(url).queue("emails")
    monkeypatch.setattr(connections, "open_store", opened)
    open_read_only(BatchReadOptions.of(options | {"url": url}).place)
    [relaxed] = asked
    return relaxed


def test_any_one_copy_may_answer_a_read_at_once_but_not_the_pipeline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert asks_any_one(PLACE, monkeypatch, tmp_path)
    assert not asks_any_one({**PLACE, "consistency": "QUORUM"}, monkeypatch, tmp_path)
    assert not asks_any_one(stretch_options("", "emails", since=0, until=1), monkeypatch, tmp_path)
    with pytest.raises(BadSetting, match="consistency='two' is not one of one, quorum"):
        BatchReadOptions.of({**PLACE, "consistency": "two"})


class Noting(Pace):
    """Notes until when it would wait."""

    def __init__(self, rate: float | None, clock: TimeMachine) -> None:
        super().__init__(rate, clock)
        self.waited: list[MonotonicUs] = []

    def wait(self, until: MonotonicUs) -> None:
        self.waited.append(until)


def test_a_pace_lets_no_more_rows_pass_than_its_rate(clock: TimeMachine) -> None:
    pace, begun = Noting(100, clock), clock.monotonic()
    for _ in range(3):
        pace.keep(50)
    assert pace.waited == [begun + half * SECOND // 2 for half in (1, 2, 3)]


def test_a_wait_of_a_pace_ends_soon_after_it_is_cancelled(clock: TimeMachine) -> None:
    class Passing(Noting):
        def wait(self, until: MonotonicUs) -> None:
            super().wait(until)
            clock.advance((until - clock.monotonic()) / SECOND)

    pace, begun = Passing(0.01, clock), clock.monotonic()
    pace.keep(1, lambda: clock.monotonic() - begun >= SECOND)
    assert SECOND <= clock.monotonic() - begun < 2 * SECOND
    pace.keep(1, lambda: False)
    assert clock.monotonic() - begun >= 200 * SECOND


def test_who_waited_for_something_else_makes_up_for_a_second_and_no_more(clock: TimeMachine) -> None:
    pace = Noting(100, clock)
    clock.advance("1h")
    for _ in range(4):
        pace.keep(50)
    assert pace.waited == [clock.monotonic() + half * SECOND // 2 for half in (-1, 0, 1, 2)]


def test_a_pace_without_a_rate_waits_for_nobody(clock: TimeMachine) -> None:
    pace = Noting(None, clock)
    pace.keep(10**9)
    assert pace.waited == []


def test_any_one_replica_may_answer_reads_and_nothing_else() -> None:
    assert Levels(reads=ANY_ONE).consistency == "local_quorum"
    with pytest.raises(BadSetting, match="consistency='local_one'"):
        Levels(consistency=ANY_ONE)


def test_the_source_is_found_by_the_name_of_its_module() -> None:
    assert pyspark_astyqueue.DefaultSource is AstyqueueSource


def test_where_the_source_cannot_be_had_those_of_others_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "astyqueue.spark.data_source", None)
    monkeypatch.delitem(sys.modules, "pyspark_astyqueue")
    assert not hasattr(importlib.import_module("pyspark_astyqueue"), "DefaultSource")


def test_a_stream_that_would_send_all_its_rows_again_in_each_batch_is_refused() -> None:
    schema = StructType([StructField("id", StringType())])
    source = AstyqueueSource({**PLACE, "id_column": "id"})
    with pytest.raises(BadSetting, match=r'never overwritten: \.outputMode\("append"\)'):
        source.streamWriter(schema, overwrite=True)
    source.streamWriter(schema, overwrite=False)


def test_a_delay_may_be_a_decimal_as_a_number_in_a_statement_is(clock: TimeMachine) -> None:
    schema = StructType([StructField("id", StringType()), StructField("delay", DecimalType(2, 1))])
    sinking = WriteOptions.of({**PLACE, "id_column": "id", "delay_column": "delay"}, schema)
    settings = connect("memory://").queue("emails").settings
    addressing = Addressing(settings, sinking, source="nightly", begun=BatchRecord(clock.now(), ended=False))
    [sent] = addressing.of(pa.RecordBatch.from_pylist([{"id": "7", "delay": Decimal("5.5")}]))
    assert sent.prepared.due == clock.now() + 11 * SECOND // 2


def test_a_row_whose_body_cannot_be_read_is_named_without_its_body(clock: TimeMachine) -> None:
    schema = StructType([StructField("id", StringType()), StructField("body", StringType())])
    sinking = WriteOptions.of({**PLACE, "id_column": "id", "json_column": "body"}, schema)
    settings = connect("memory://").queue("emails").settings
    addressing = Addressing(settings, sinking, source="nightly", begun=BatchRecord(clock.now(), ended=False))
    rows = pa.RecordBatch.from_pylist([{"id": "7", "body": "{TOPSECRET"}])
    with pytest.raises(BadInput, match=r"the row with id '7' cannot be sent: its body is not JSON") as refused:
        list(addressing.of(rows))
    assert "SECRET" not in str(refused.value)
