"""The promises of `Store`, as tests.

An adapter's test class inherits them and has a fixture that opens its store:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, clock):
            store = MyStore(..., clock=clock)
            yield store
            store.close()

A store has several tables, and its promises hold in each: `InTable(store, HISTORY)` as the `store` of one more class
tests the other one.

Each test gets a new store, or one without the rows that the test uses. A store with its own clock also needs a `clock`
fixture: an object with `now()` close to the store's time and `advance(seconds)`. No test sleeps, and no test requires
what `Store` does not promise. docs/how-to/testing.md shows a suite in use.
"""

from __future__ import annotations

import pytest

# Assertions that pytest rewrites hold under `python -O` too. They must be registered before these modules are imported,
# so this package does it for all test classes that inherit the suite.
pytest.register_assert_rewrite(
    *(f"{__name__}.{room}" for room in ("batches", "commits", "concurrency", "slices", "times"))
)

from astyqueue.testing import TimeMachine  # noqa: E402 - after the registration
from astyqueue.testing.conformance.batches import BatchPromises  # noqa: E402 - as above
from astyqueue.testing.conformance.commits import CommitPromises  # noqa: E402 - as above
from astyqueue.testing.conformance.concurrency import SharingPromises  # noqa: E402 - as above
from astyqueue.testing.conformance.slices import InTable, SlicePromises, TablePromises  # noqa: E402 - as above
from astyqueue.testing.conformance.times import TimePromises  # noqa: E402 - as above

__all__ = ["InTable", "StoreConformance"]


class StoreConformance(BatchPromises, CommitPromises, SlicePromises, TablePromises, TimePromises, SharingPromises):
    """All promises of a store; inherit it and add a `store` fixture."""

    @pytest.fixture
    def clock(self) -> TimeMachine:
        """The clock that the store is opened with; only the test moves it."""
        return TimeMachine()
