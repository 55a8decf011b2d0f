"""Ids in the order of time, as Cassandra orders them."""

from __future__ import annotations

import itertools
import os
import random
import threading
import uuid
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue import ids
from astyqueue.ids import IdSource
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND

MOMENTS = st.integers(min_value=0, max_value=100_000_000_000 * SECOND)
RESTS = st.binary(min_size=8, max_size=8)


def cassandra_key(value: uuid.UUID) -> tuple[int, ...]:
    """Its rule for timeuuids, from the UUID alone: the time, then the other eight bytes, each taken as signed."""
    low, middle, high = value.fields[:3]
    time = (high & 0x0FFF) << 48 | middle << 32 | low
    return (time, *(byte - 256 if byte > 127 else byte for byte in value.bytes[8:]))


def made_at(moment: int, rest: bytes) -> uuid.UUID:
    """A version 1 UUID of this moment with these eight bytes but for the variant, put together by hand."""
    ticks = moment * 10 + 0x01B21DD213814000
    head = (ticks & 0xFFFFFFFF).to_bytes(4) + (ticks >> 32 & 0xFFFF).to_bytes(2) + (ticks >> 48 | 0x1000).to_bytes(2)
    return uuid.UUID(bytes=head + bytes([rest[0] & 0x3F | 0x80]) + rest[1:])


def ascending(made: list[bytes]) -> bool:
    return all(before < after for before, after in itertools.pairwise(made))


def test_ids_of_one_source_ascend_strictly_while_the_clock_stands_still(clock: TimeMachine) -> None:
    source = IdSource(clock)
    made = [id_ for _ in range(100) for id_ in source.block(7)]
    assert ascending(made)
    assert ids.moment(made[0]) == clock.now()


def visit(_frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - a tracer returns a tracer, and so on
    """Called before every line: lets another thread go on there."""
    os.sched_yield()
    return visit


@pytest.fixture
def _threads_that_change_over_at_any_line() -> Iterator[None]:
    threading.settrace(visit)
    yield
    threading.settrace(None)


@pytest.mark.usefixtures("_threads_that_change_over_at_any_line")
def test_ids_of_eight_threads_ascend_strictly_in_each_and_never_collide(clock: TimeMachine) -> None:
    source = IdSource(clock)
    start = threading.Barrier(8)
    made: list[list[bytes]] = [[] for _ in range(8)]

    def draw(mine: list[bytes]) -> None:
        start.wait(60)
        for count in range(90):
            mine.extend(source.block(count % 3 + 1))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(map(ascending, made))
    together = [id_ for mine in made for id_ in mine]
    assert len(set(together)) == len(together) == 8 * 180
    after_all = source.block(1)[0]
    assert after_all > max(together)


def test_ids_follow_the_clock_forward(clock: TimeMachine) -> None:
    source = IdSource(clock)
    first = source.block(1)[0]
    assert source.block(1)[0] > first
    assert ids.moment(source.block(1)[0]) == clock.now()
    clock.advance("1h")
    assert ids.moment(source.block(1)[0]) == clock.now()


@pytest.mark.parametrize("back", [1, SECOND // 2, SECOND])
def test_ids_still_ascend_when_the_clock_goes_back_a_second_or_less(clock: TimeMachine, back: int) -> None:
    source = IdSource(clock)
    first = source.block(1)[0]
    clock.set(clock.now() - back)
    made = source.block(3)
    assert ascending([first, *made])
    assert made[0][8:11] == first[8:11], "another tail was drawn, as for a clock that was set back"


def test_ids_start_anew_from_a_clock_that_was_set_back_further(clock: TimeMachine) -> None:
    source = IdSource(clock)
    before = source.block(5)
    clock.set(clock.now() - SECOND - 1)
    after = source.block(5)
    assert ids.moment(after[0]) == clock.now()
    assert ascending(after)
    assert after[0] < before[0]
    assert after[0][8:] != before[0][8:]
    assert ascending([*after, *source.block(5)])


def test_going_over_the_same_time_again_makes_no_id_twice(clock: TimeMachine) -> None:
    source = IdSource(clock)
    moment = clock.now()
    made: list[bytes] = []
    for _ in range(20):
        made += source.block(50)
        clock.advance("1h")
        made += source.block(50)
        clock.set(moment)
    assert len(set(made)) == len(made)


def test_two_sources_at_the_same_moment_never_make_the_same_id(clock: TimeMachine) -> None:
    sources = [IdSource(clock) for _ in range(20)]
    made = [id_ for source in sources for id_ in source.block(50)]
    assert len(set(made)) == len(made)


def test_ids_for_the_future_stand_for_their_due_moment_in_the_order_of_the_list(clock: TimeMachine) -> None:
    due = clock.now() + 60 * SECOND
    made = IdSource(clock).block(9, due)
    assert ascending(made)
    assert {ids.moment(id_) for id_ in made} == {due}


def test_two_blocks_for_the_same_due_moment_do_not_collide(clock: TimeMachine) -> None:
    source = IdSource(clock)
    due = clock.now() + SECOND
    made = [id_ for _ in range(20) for id_ in source.block(20, due)]
    assert len(set(made)) == len(made)


def test_ids_for_the_future_do_not_put_off_those_for_now(clock: TimeMachine) -> None:
    source = IdSource(clock)
    source.block(5, clock.now() + 3_600 * SECOND)
    assert ids.moment(source.block(1)[0]) == clock.now()


def test_a_due_moment_that_has_passed_is_now(clock: TimeMachine) -> None:
    source = IdSource(clock)
    first = source.block(1)[0]
    late = source.block(2, clock.now() - SECOND)
    assert ascending([first, *late])
    assert ids.moment(late[0]) == clock.now()


@given(st.lists(st.tuples(MOMENTS, RESTS), min_size=2, max_size=20))
def test_ids_sort_as_cassandra_sorts_timeuuids(parts: list[tuple[int, bytes]]) -> None:
    values = [made_at(moment, rest) for moment, rest in parts]
    by_bytes = sorted(map(ids.from_uuid, values))
    by_rule = [ids.from_uuid(value) for value in sorted(values, key=cassandra_key)]
    assert by_bytes == by_rule


def test_ids_of_one_moment_sort_by_signed_bytes() -> None:
    rests = [bytes([0, byte]) + bytes(6) for byte in (0x80, 0xFF, 0x00, 0x7F)]
    made = [ids.from_uuid(made_at(0, rest)) for rest in rests]
    assert ascending(made)
    assert sorted(rests) != rests


@given(MOMENTS, RESTS)
def test_an_id_is_a_timeuuid_and_comes_back_from_one(moment: int, rest: bytes) -> None:
    value = made_at(moment, rest)
    id_ = ids.from_uuid(value)
    assert ids.as_uuid(id_) == value
    assert ids.parse(ids.text(id_)) == id_
    assert ids.moment(id_) == moment
    assert len(id_) == 16


def test_the_ids_we_make_are_version_1_uuids_of_a_node_that_is_no_network_card(clock: TimeMachine) -> None:
    made = [*IdSource(clock).block(50), *IdSource(clock).block(50, clock.now() + SECOND), ids.at(clock.now())]
    for value in map(ids.as_uuid, made):
        assert value.version == 1
        assert value.variant == uuid.RFC_4122
        assert value.node >> 40 & 1  # the multicast bit, which no card's address has


def test_only_timeuuids_are_ids() -> None:
    for wrong in (str(uuid.UUID(int=random.Random(3).getrandbits(128), version=4)), "not an id", ""):
        with pytest.raises(ValueError, match=r"TimeUUID|badly formed"):
            ids.parse(wrong)


@given(MOMENTS, RESTS)
def test_the_first_of_a_moment_lies_between_all_before_it_and_all_from_it_on(moment: int, rest: bytes) -> None:
    bound = ids.first_at(moment)
    assert bound <= ids.from_uuid(made_at(moment, rest))
    assert bound < ids.from_uuid(made_at(moment + 1, rest))
    assert ids.from_uuid(made_at(moment, rest)) < ids.first_at(moment + 1)
    latest_before = (int.from_bytes(bound[:8]) - 1).to_bytes(8) + b"\xff" * 8
    assert latest_before < bound
    assert ids.moment(bound) == moment


def test_the_least_and_the_greatest_enclose_every_id() -> None:
    earliest = uuid.UUID(bytes=b"\x00" * 6 + b"\x10\x00" + b"\x80" * 8)
    latest = uuid.UUID(bytes=b"\xff" * 6 + b"\x1f\xff" + b"\xbf" + b"\x7f" * 7)
    assert ids.LEAST <= ids.from_uuid(earliest) < ids.from_uuid(latest) <= ids.GREATEST
    assert ids.first_at(-(10**18)) == ids.LEAST


def test_any_number_of_ids_is_drawn_while_the_clock_stands_still_and_none_is_ahead_of_it(clock: TimeMachine) -> None:
    made = IdSource(clock).block(100_000)
    assert ascending(made)
    assert {ids.moment(id_) for id_ in made} == {clock.now()}
