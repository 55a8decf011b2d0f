"""The names of columns as bytes: on this machine they sort as Cassandra sorts, for Cassandra they are its driver's."""

from __future__ import annotations

import uuid

import pytest
from cassandra.cqltypes import ByteType, ListType, TimeUUIDType, TupleType
from hypothesis import given
from hypothesis import strategies as st

from astyqueue import ids
from astyqueue.errors import BadInput
from astyqueue.store import Column, Name, Slice
from astyqueue.stores import column_name_codec
from astyqueue.stores.cassandra.requests import codec

BYTES = st.integers(0, 255)
TIMEUUIDS = st.builds(
    lambda ticks, rest: uuid.UUID(
        fields=(
            ticks & 0xFFFFFFFF,
            ticks >> 32 & 0xFFFF,
            ticks >> 48 | 0x1000,
            rest[0] & 0x3F | 0x80,
            rest[1],
            int.from_bytes(rest[2:]),
        )
    ),
    st.one_of(st.integers(0, (1 << 60) - 1), st.integers(1 << 59, (1 << 59) + 2)),
    st.binary(min_size=8, max_size=8),
)
CASSANDRA_NAMES = st.tuples(st.integers(0, 6), BYTES, TIMEUUIDS, BYTES)
NAMES = CASSANDRA_NAMES.map(lambda parts: Name(parts[0], parts[1], ids.from_uuid(parts[2]), parts[3]))
IDS = st.integers(0, (1 << 124) - 1).map(lambda number: number.to_bytes(16))
#: What a column of type tinyint holds of names: no negative numbers.
TINY = st.integers(0, 127)
TINY_NAMES = st.builds(Name, TINY, TINY, IDS, TINY)


def as_cassandra_compares(parts: tuple[int, int, uuid.UUID, int]) -> tuple[object, ...]:
    """Type, priority descending, the id's time and then its other bytes as signed numbers, state."""
    kind, priority, id_, state = parts
    return kind, -priority, id_.time, [byte - 256 if byte > 127 else byte for byte in id_.bytes[8:]], state


@given(st.lists(CASSANDRA_NAMES, max_size=20))
def test_encoded_names_sort_as_cassandra_sorts_them(some: list[tuple[int, int, uuid.UUID, int]]) -> None:
    encoded = {
        column_name_codec.encode(Name(kind, priority, ids.from_uuid(id_), state)): (kind, priority, id_, state)
        for kind, priority, id_, state in some
    }
    assert [encoded[name] for name in sorted(encoded)] == sorted(set(some), key=as_cassandra_compares)


@given(NAMES)
def test_a_name_is_nineteen_bytes_and_comes_back(name: Name) -> None:
    encoded = column_name_codec.encode(name)
    assert len(encoded) == 19
    assert column_name_codec.decode(encoded) == name
    ((decoded, value, written),) = column_name_codec.columns([(encoded, b"value", 7)])
    assert (decoded, value, written) == (name, b"value", 7)
    assert isinstance(decoded, Name)


@given(
    name=NAMES,
    kind=st.integers(0, 6),
    priority=st.none() | BYTES,
    after=TIMEUUIDS,
    until=TIMEUUIDS,
    beyond=st.booleans(),
)
def test_bounds_hold_exactly_the_names_of_a_slice(
    *, name: Name, kind: int, priority: int | None, after: uuid.UUID, until: uuid.UUID, beyond: bool
) -> None:
    first, last = ids.from_uuid(after), ids.from_uuid(until)
    low, high, by_id = column_name_codec.bounds(Slice("row", kind, priority, first, last, beyond=beyond))
    within = low <= column_name_codec.encode(name) < high and (by_id is None or by_id[0] <= name.id < by_id[1])
    wanted = (
        name.type == kind
        and priority in {None, name.priority}
        and first <= name.id < last
        and not (beyond and name.id == first)
    )
    assert within == wanted


@given(name=NAMES, beyond=st.booleans())
def test_a_slice_after_an_id_holds_the_name_with_that_id_unless_it_begins_beyond(*, name: Name, beyond: bool) -> None:
    for priority in (None, name.priority):
        low, high, by_id = column_name_codec.bounds(Slice("row", name.type, priority, after=name.id, beyond=beyond))
        within = low <= column_name_codec.encode(name) < high and (by_id is None or by_id[0] <= name.id < by_id[1])
        assert within == (not beyond)


def test_every_name_of_a_type_is_in_its_whole_slice() -> None:
    for kind in (0, 6, 255):
        low, high, by_id = column_name_codec.bounds(Slice("row", kind))
        assert by_id is None
        for name in (Name(kind, 255, ids.LEAST, 0), Name(kind, 0, ids.GREATEST, 255)):
            assert low <= column_name_codec.encode(name) < high


@pytest.mark.parametrize(
    ("kind", "priority", "state"), [(256, 0, 0), (-1, 0, 0), (0, 256, 0), (0, -1, 0), (0, 0, 256), (0, 0, -1)]
)
def test_a_name_with_a_number_that_does_not_fit_a_byte_is_refused(kind: int, priority: int, state: int) -> None:
    with pytest.raises(BadInput, match="0 to 255"):
        column_name_codec.encode(Name(kind, priority, ids.LEAST, state))


@given(IDS)
def test_an_id_becomes_the_bytes_of_its_timeuuid_and_comes_back(id_: bytes) -> None:
    assert codec.timeuuid(id_) == ids.as_uuid(id_).bytes
    assert codec.id_of(codec.timeuuid(id_)) == id_


@pytest.mark.parametrize("bound", [ids.LEAST, ids.GREATEST, ids.first_at(0), ids.first_at(1_700_000_000_000_000)])
def test_bounds_of_slices_are_timeuuids_too(bound: bytes) -> None:
    kept = uuid.UUID(bytes=codec.timeuuid(bound))
    assert kept.bytes[6] >> 4 == 1
    assert codec.id_of(kept.bytes) == bound


@given(st.lists(TINY_NAMES, max_size=5))
def test_a_list_of_names_is_written_as_the_driver_would_write_it(names: list[Name]) -> None:
    key = TupleType.apply_parameters([ByteType, ByteType, TimeUUIDType, ByteType])
    as_driver = ListType.apply_parameters([key]).serialize(
        [(n.type, n.priority, ids.as_uuid(n.id), n.state) for n in names], 5
    )
    assert codec.key_list(names) == as_driver


@given(TINY_NAMES)
def test_a_row_that_the_driver_returns_becomes_the_column_with_its_name(name: Name) -> None:
    found = (name.type, name.priority, ids.as_uuid(name.id), name.state, b"value", 7)
    assert codec.columns([found]) == [Column(name, b"value", 7)]


@pytest.mark.parametrize("wrong", [Name(128, 0, ids.LEAST, 0), Name(0, 128, ids.LEAST, 0), Name(0, 0, ids.LEAST, -1)])
def test_a_name_with_a_number_that_does_not_fit_a_tinyint_is_refused(wrong: Name) -> None:
    with pytest.raises(BadInput, match="0 to 127"):
        codec.key(wrong)
