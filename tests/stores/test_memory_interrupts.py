"""Ctrl-C in a change of the store in memory: the next verb sees all of it or nothing, and the rows stay whole."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Final

import pytest

from astyqueue.store import Batch, Put, Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.conformance.examples import KIND, ROW, found, name, names, put_all
from tests.support.interrupting import Interrupting

OLD: Final = names(3)
NEW: Final = tuple(name(number) for number in range(10, 13))
CHANGE: Final = Batch(ROW, tuple(Put(one, b"new") for one in NEW), OLD)
ALL: Final = Slice(ROW, KIND)


def commit(store: MemoryStore) -> None:
    store.commit(CHANGE, ())


def send(store: MemoryStore) -> None:
    store.send(CHANGE)


@pytest.mark.parametrize("change", [commit, send])
def test_a_change_that_is_interrupted_at_any_point_is_carried_out_whole_or_not_at_all(
    clock: TimeMachine, change: Callable[[MemoryStore], None]
) -> None:
    for at in itertools.count(1):
        store = MemoryStore(clock)
        put_all(store, clock, OLD)
        interrupting = Interrupting(at, package="astyqueue.stores")
        with contextlib.suppress(KeyboardInterrupt), interrupting:
            change(store)
        assert found(store, ALL) in (list(OLD), list(NEW))
        change(store)
        assert found(store, ALL) == list(NEW)
        if interrupting.points < at:
            return
