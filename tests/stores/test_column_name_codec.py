"""Encoded names sort as Cassandra sorts the columns they stand for."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from astyqueue import ids
from astyqueue.errors import BadInput
from astyqueue.store import Name, Slice
from astyqueue.stores import column_name_codec

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
def test_bounds_at_the_very_id_of_a_name(*, name: Name, beyond: bool) -> None:
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
def test_a_name_that_does_not_fit_is_refused(kind: int, priority: int, state: int) -> None:
    with pytest.raises(BadInput, match="0 to 255"):
        column_name_codec.encode(Name(kind, priority, ids.LEAST, state))
