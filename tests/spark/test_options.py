from __future__ import annotations

import importlib
import json
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, BinaryType, DateType, DecimalType, StringType, StructField, StructType

import pyspark_astyqueue
from astyqueue import MessageQueue, connect
from astyqueue.clock import SystemClock
from astyqueue.errors import BadInput, BadSetting, NotFound
from astyqueue.protocol.sending.idempotent import BatchRecord
from astyqueue.spark import connections
from astyqueue.spark.connections import Pace, open_for_sending, open_read_only
from astyqueue.spark.data_source import AstyqueueSource
from astyqueue.spark.options import BatchReadOptions, Place, StreamReadOptions, WriteOptions, everywhere
from astyqueue.spark.pipeline.batch import stretch_options
from astyqueue.spark.row_mapping import Addressed, Addressing
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


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "nan"])
def test_a_rate_that_is_no_number_of_rows_is_refused(rate: str) -> None:
    with pytest.raises(BadSetting, match=f"option rate='{rate}' is not a number of rows a second, greater than zero"):
        BatchReadOptions.of({**PLACE, "rate": rate})


def test_a_place_that_is_not_named_is_asked_for_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTYQUEUE_URL", raising=False)
    with pytest.raises(BadSetting, match=r"needs the option 'url': sqlite:////var/work.db, cassandra://host/keyspace"):
        BatchReadOptions.of({"queue": "emails"})
    with pytest.raises(BadSetting, match="needs the option 'queue': the name of a queue"):
        BatchReadOptions.of({"url": PLACE["url"], "queue": ""})


def test_a_queue_that_does_not_exist_is_created_only_by_a_write_that_asks_for_it(tmp_path: Path) -> None:
    place = Place(f"sqlite:///{tmp_path}/work.db", "letters")
    with pytest.raises(NotFound, match=r"this store has no queue 'letters'$"):
        open_read_only(place)
    with pytest.raises(NotFound, match=r"""has no queue 'letters'; \.option\("create", "true"\) makes it"""):
        open_for_sending(place, create=False)
    open_for_sending(place, create=True)
    assert open_read_only(place).settings.name == "letters"


def test_a_stream_of_anything_but_history_and_a_column_that_a_table_lacks_are_refused() -> None:
    with pytest.raises(BadSetting, match=r'only history can be followed: \.option\("table", "history"\)'):
        AstyqueueSource({**PLACE, "table": "dead"}).streamReader(StructType())
    with pytest.raises(BadInput, match=r"table dead has no column died string; its columns are id string, .*died"):
        AstyqueueSource({**PLACE, "table": "dead"}).reader(StructType([StructField("died", StringType())]))


def addressed(queue: MessageQueue, schema: StructType, row: dict[str, object], **options: str) -> Addressed:
    """What the row of a DataFrame with this schema becomes."""
    sinking = WriteOptions.of({**PLACE, "id_column": "id", **options}, schema)
    begun = BatchRecord(SystemClock().now(), ended=False)
    [found] = Addressing(queue.settings, sinking, source="nightly", begun=begun).of(pa.RecordBatch.from_pylist([row]))
    return found


def test_rows_for_a_queue_of_one_row_go_to_the_row_that_its_own_clients_send_to() -> None:
    queue = connect("memory://").queue("emails", placement="single", time_shards=4, concurrency_shards=4)
    schema = StructType([StructField("id", StringType()), StructField("to", StringType())])
    sent = addressed(queue, schema, {"id": "7", "to": "ada"}, key_column="to")
    assert sent.row == addressed(queue, schema, {"id": "8", "to": "bob"}).row == queue.send("hello").id.row


def test_a_queue_that_a_function_of_its_clients_places_messages_of_is_refused() -> None:
    store = open_store("memory://", clock=SystemClock())
    queue = MessageQueue.builder().store(store).name("emails").placement(lambda _: 0).build()
    with pytest.raises(BadSetting, match="'emails' uses a custom placement function, which Spark lacks: send from a"):
        addressed(queue, StructType([StructField("id", StringType())]), {"id": "7"})


def test_bytes_are_the_same_text_in_a_column_and_inside_of_one() -> None:
    parts = StructType([StructField("keys", ArrayType(BinaryType())), StructField("on", DateType())])
    schema = StructType([StructField("id", StringType()), StructField("key", BinaryType()), StructField("more", parts)])
    row: dict[str, object] = {"id": "7", "key": b"\xfb\xff", "more": {"keys": [b"\xfb\xff"], "on": date(2026, 11, 21)}}
    sent = addressed(connect("memory://").queue("emails"), schema, row)
    assert json.loads(sent.prepared.value[1:])[-1] == {
        "id": "7",
        "key": "+/8=",
        "more": {"keys": ["+/8="], "on": "2026-11-21"},
    }


def test_a_date_may_be_a_body_and_no_id() -> None:
    schema = StructType([StructField("id", StringType()), StructField("day", DateType())])
    row: dict[str, object] = {"id": "7", "day": date(2026, 11, 21)}
    sent = addressed(connect("memory://").queue("emails"), schema, row, body_column="day")
    assert json.loads(sent.prepared.value[1:])[-1] == "2026-11-21"
    with pytest.raises(BadSetting, match="id_column='day': the column is date and must be string or a whole number"):
        WriteOptions.of({**PLACE, "id_column": "day"}, schema)
