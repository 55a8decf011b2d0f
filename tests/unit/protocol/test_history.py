"""Events as columns: their names, their order, what is read back, and what normalising makes alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue import ids
from astyqueue.durations import LATEST
from astyqueue.model.envelope import MessageId
from astyqueue.model.event import FLAT, KEPT, Event, Kind, normalised
from astyqueue.model.settings import Layout
from astyqueue.protocol.history import (
    DAY,
    HistoryCursor,
    HistoryFilter,
    HistorySlice,
    batches_of,
    decode_event,
    encode_event,
    event_name,
    history_slices,
    record_events,
)
from astyqueue.protocol.layout.rows import Ring, history_row
from astyqueue.protocol.steps import run
from astyqueue.store import Column
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND

NOON = 1_767_268_800 * SECOND
RING = Ring("emails", Layout(concurrency_shards=3))
MESSAGE = MessageId("emails:0:0", 0, ids.at(NOON))
EVENT = Event(
    NOON, Kind.DONE, "emails", MESSAGE, "ada", 2, "host:1:abc", "welcome", sent=NOON - 5, due=NOON - 4, began=NOON - 1
)


def column(event: Event) -> Column:
    return Column(event_name(event), encode_event(event), 0)


@given(
    some.builds(
        Event,
        at=some.integers(0, 4_000_000_000 * SECOND),
        kind=some.sampled_from([kind for kind in Kind if kind is not Kind.UNKNOWN]),
        queue=some.just("emails"),
        message=some.just(MESSAGE) | some.none(),
        key=some.text(min_size=1, max_size=20) | some.none(),
        attempt=some.integers(0, 9),
        until=some.integers(1, LATEST) | some.none(),
        reason=some.text(max_size=50),
        lost=some.booleans(),
    )
)
def test_an_event_is_read_back_as_it_was_written(event: Event) -> None:
    row = history_row("emails", event.at, 0)
    assert decode_event(row, column(event)) == event


def test_the_same_event_has_the_same_name_whoever_writes_it_and_whatever_else_it_says() -> None:
    assert event_name(EVENT) == event_name(replace(EVENT, worker="other:2:def", lost=True))
    others = (
        replace(EVENT, attempt=3),
        replace(EVENT, kind=Kind.DEAD),
        replace(EVENT, at=NOON + 1),
        replace(EVENT, message=None),
    )
    assert len({event_name(EVENT), *map(event_name, others)}) == 5


def test_occurrences_that_are_skipped_at_one_moment_are_an_event_each() -> None:
    skipped = Event(NOON, Kind.SKIPPED, "emails", key="digest", schedule="digest")
    assert len({event_name(replace(skipped, slot=NOON - order)) for order in range(3)}) == 3


@pytest.mark.parametrize("text", ["no such file: \udcff.txt", "half of \ud83d"])
def test_what_json_cannot_write_is_told_all_the_same(text: str) -> None:
    found = decode_event("emails:2026-01-01:0", column(replace(EVENT, reason=text, trace=text)))
    assert found.reason == found.trace == text.encode(errors="backslashreplace").decode()


def test_names_are_in_the_order_of_time() -> None:
    events = [replace(EVENT, at=NOON + order, attempt=9 - order) for order in range(9)]
    assert sorted(map(event_name, events)) == list(map(event_name, events))


def test_what_is_listed_under_a_text_lies_together_in_the_order_of_time() -> None:
    places = [
        (text, at, ids.listed(text, at, int.from_bytes(event_name(replace(EVENT, at=at)).id)))
        for text in ("a", "b")
        for at in (NOON, NOON + 1)
    ]
    ordered = sorted(places, key=lambda place: place[2])
    assert [place[:2] for place in ordered] in (
        [(text, at) for text in pair for at in (NOON, NOON + 1)] for pair in (("a", "b"), ("b", "a"))
    )
    assert all(ids.listed(text, at) <= id_ < ids.listed(text, at + 1) for text, at, id_ in places)
    assert all(ids.from_uuid(ids.as_uuid(id_)) == id_ for *_, id_ in places)


def test_messages_that_are_sent_together_are_listed_each_in_a_place_of_its_own() -> None:
    """Of these two the names of the events end alike, and one of them was listed where the other is."""
    first = int.from_bytes(ids.first_at(NOON))
    pair = [
        replace(EVENT, kind=Kind.SENT, attempt=0, message=MessageId("emails:0:0", 0, (first + n).to_bytes(16)))
        for n in (10_913, 14_622)
    ]
    assert len({int.from_bytes(event_name(event).id[-4:]) >> 2 for event in pair}) == 1
    store = MemoryStore(TimeMachine(NOON))
    ring = Ring("emails", Layout())
    run(record_events(ring, pair, DAY), store)
    assert (
        sorted(
            run(HistoryCursor(ring, HistoryFilter(NOON, NOON + 1, key="ada")).go_on(), store),
            key=lambda event: event.message or MESSAGE,
        )
        == pair
    )


def test_many_messages_and_attempts_of_one_moment_are_listed_each_in_a_place_of_its_own() -> None:
    first = int.from_bytes(ids.at(NOON))
    messages = [MessageId("emails:0:0", 0, (first + number).to_bytes(16)) for number in range(5_000)]
    events = [replace(EVENT, message=message, attempt=attempt) for message in messages for attempt in range(5)]
    by_key = [
        put.name
        for batch in batches_of(Ring("emails", Layout()), events, DAY)
        for put in batch.puts
        if put.name.type == 2
    ]
    assert len(by_key) == len(set(by_key)) == 25_000


def test_all_columns_of_an_event_go_into_one_row_in_one_batch() -> None:
    [batch] = batches_of(RING, [EVENT], 90 * SECOND)
    assert batch.row == history_row("emails", NOON, RING.shard_of_key(str(MESSAGE)))
    assert [put.name.type for put in batch.puts] == [0, 1, 2]
    assert {put.ttl for put in batch.puts} == {90}


def test_batches_stay_within_the_bounds_of_a_batch() -> None:
    events = [replace(EVENT, at=NOON + order, trace="x" * 4_000) for order in range(300)]
    batches = batches_of(RING, events, SECOND)
    assert sum(len(batch.puts) for batch in batches) == 900
    assert max(len(batch.puts) for batch in batches) <= 200
    assert max(sum(len(put.value) for put in batch.puts) for batch in batches) <= 300 * 1024


def test_of_a_long_traceback_the_end_is_kept() -> None:
    found = decode_event("emails:2026-01-01:0", column(replace(EVENT, trace="x" * 99_999 + "the end")))
    assert (len(found.trace), found.trace[-7:]) == (16 * 1024, "the end")


def test_parts_are_the_buckets_of_each_day_within_the_stretch() -> None:
    found = history_slices(RING, NOON, NOON + DAY)
    assert [part.row for part in found] == [f"emails:2026-01-0{day}:{bucket}" for day in (1, 2) for bucket in range(3)]
    assert found[0] == HistorySlice("emails:2026-01-01:0", ids.first_at(NOON), ids.first_at(NOON // DAY * DAY + DAY))
    assert history_slices(RING, NOON, NOON) == []


@pytest.mark.parametrize("value", [b"", b"\x02{}", b"\x01", b"\x01[1]", b'\x01{"message": "none"}', b"\x01{"])
def test_what_cannot_be_read_is_an_event_that_says_so(value: bytes) -> None:
    found = decode_event("emails:2026-01-01:0", Column(event_name(EVENT), value, 0))
    assert found.at == NOON
    assert "cannot be read" in found.reason


def test_what_a_newer_one_tells_besides_is_kept_as_it_was_written() -> None:
    name, value = event_name(EVENT), encode_event(EVENT)[:-1] + b',"mood":"fine"}'
    found = decode_event("emails:2026-01-01:0", Column(name, value, 0))
    assert (replace(found, raw=""), found.raw) == (EVENT, f"{name.state} {value[1:].decode()}")
    assert decode_event("emails:2026-01-01:0", Column(name, encode_event(EVENT), 0)).raw == ""
    unknown = decode_event("emails:2026-01-01:0", Column(name._replace(state=99), value, 0))
    assert (unknown.kind, unknown.message, unknown.raw) == (Kind.UNKNOWN, EVENT.message, f"99 {value[1:].decode()}")
    damaged = decode_event("emails:2026-01-01:0", Column(name, b"\x99\xff{", 0))
    assert damaged.raw == f"{name.state} \\x99\\xff{{"
    assert encode_event(found) == encode_event(EVENT)


def test_plain_values_have_the_names_and_types_that_are_reported() -> None:
    types = {"text": str, "instant": int, "number": int, "length": int, "flag": bool}
    flat = EVENT.flat()
    assert list(flat) == list(FLAT)
    assert all(value is None or isinstance(value, types[FLAT[name]]) for name, value in flat.items())
    assert (flat["ran"], flat["took"], flat["waited"], flat["host"]) == (1, 5, None, "host")


@pytest.mark.parametrize(
    ("reason", "normal"),
    [
        ("KeyError: 'ada@example.org'", "KeyError: <quoted>"),
        ("no user 4711 in 12.5 s", "no user <number> in <number> s"),
        ("at 0x7f00a9f02410", "at <hex>"),
        ("job 9d3d3ddc-e59b-11f1-8fbf-bd1965e21e21 is gone", "job <id> is gone"),
        ("it doesn't and can't", "it doesn't and can't"),
        ("", ""),
    ],
)
def test_failures_of_one_cause_are_alike(reason: str, normal: str) -> None:
    assert normalised(reason) == normal


def test_each_setting_keeps_what_the_one_before_it_does() -> None:
    assert KEPT["none"] == set()
    assert KEPT["failures"] == {Kind.FAILED, Kind.RETRIED, Kind.DEAD, Kind.REDRIVEN, Kind.SKIPPED}
    assert KEPT["all"] == set(Kind)
