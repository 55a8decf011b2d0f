"""Names become the bytes that Cassandra keeps, and come back as they were."""

from __future__ import annotations

import uuid

import pytest
from cassandra.cqltypes import ByteType, ListType, TimeUUIDType, TupleType
from hypothesis import given
from hypothesis import strategies as st

from astyqueue import ids
from astyqueue.errors import BadInput
from astyqueue.store import Column, Name
from astyqueue.stores.cassandra.requests import codec

IDS = st.integers(0, (1 << 124) - 1).map(lambda number: number.to_bytes(16))
TINY = st.integers(0, 127)
NAMES = st.builds(Name, TINY, TINY, IDS, TINY)


@given(IDS)
def test_an_id_becomes_the_bytes_of_its_timeuuid_and_comes_back(id_: bytes) -> None:
    assert codec.timeuuid(id_) == ids.as_uuid(id_).bytes
    assert codec.id_of(codec.timeuuid(id_)) == id_


@pytest.mark.parametrize("bound", [ids.LEAST, ids.GREATEST, ids.first_at(0), ids.first_at(1_700_000_000_000_000)])
def test_bounds_of_slices_are_timeuuids_too(bound: bytes) -> None:
    kept = uuid.UUID(bytes=codec.timeuuid(bound))
    assert kept.bytes[6] >> 4 == 1
    assert codec.id_of(kept.bytes) == bound


@given(st.lists(NAMES, max_size=5))
def test_a_list_of_names_is_written_as_the_driver_would_write_it(names: list[Name]) -> None:
    key = TupleType.apply_parameters([ByteType, ByteType, TimeUUIDType, ByteType])
    as_driver = ListType.apply_parameters([key]).serialize(
        [(n.type, n.priority, ids.as_uuid(n.id), n.state) for n in names], 5
    )
    assert codec.key_list(names) == as_driver


@given(NAMES)
def test_what_was_found_has_the_name_it_was_kept_under(name: Name) -> None:
    found = (name.type, name.priority, ids.as_uuid(name.id), name.state, b"value", 7)
    assert codec.columns([found]) == [Column(name, b"value", 7)]


@pytest.mark.parametrize("wrong", [Name(128, 0, ids.LEAST, 0), Name(0, 128, ids.LEAST, 0), Name(0, 0, ids.LEAST, -1)])
def test_a_number_that_does_not_fit_is_refused(wrong: Name) -> None:
    with pytest.raises(BadInput, match="0 to 127"):
        codec.key(wrong)
