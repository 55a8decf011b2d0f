"""Sorted names are a sorted set, in chunks."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from astyqueue.stores.sorted_keys import SortedNames

NAMES = st.integers(0, 50).map(lambda number: b"%03d" % number)


@given(st.lists(st.tuples(st.booleans(), NAMES)), NAMES, NAMES)
def test_they_hold_what_a_set_would_hold(changes: list[tuple[bool, bytes]], low: bytes, high: bytes) -> None:
    names, plain = SortedNames(), set[bytes]()
    for adding, name in changes:
        if adding and name not in plain:
            names.add(name)
            plain.add(name)
        elif not adding and name in plain:
            names.remove(name)
            plain.remove(name)
    assert list(names.between(b"", b"9")) == sorted(plain)
    assert list(names.between(low, high)) == sorted(name for name in plain if low <= name < high)


def test_many_names_come_and_go_in_any_order() -> None:
    chance = random.Random(7)
    every = [b"%05d" % number for number in range(20_000)]
    for order in (every, every[::-1], chance.sample(every, len(every))):
        names = SortedNames()
        for name in order:
            names.add(name)
        assert list(names.between(b"", b"~")) == every
        assert list(names.between(every[1500], every[9000])) == every[1500:9000]
        for name in chance.sample(every, len(every)):
            names.remove(name)
        assert list(names.between(b"", b"~")) == []
