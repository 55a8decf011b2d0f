"""What every store promises, as tests.

An adapter's test class inherits them and says how to open its store:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def store(self, clock):
            store = MyStore(..., clock=clock)
            yield store
            store.close()

A store keeps several tables, and its promises hold in each: `InTable(store, HISTORY)` as the `store` of one more class tries
the other one.

Each test gets a store of its own, or one that has none of the rows left that it uses. A store that lives by a clock of
its own brings a `clock` fixture as well: something with `now()` close to the store's time and `advance(seconds)`.
Nothing here sleeps, and nothing asks for what the port does not promise.
"""

from __future__ import annotations

import pytest

# The tests speak by `assert`. Rewritten by pytest, assertions hold under `python -O` too; that has to be asked for
# before these modules are imported, so it is asked for here, and whoever inherits the suite need not think of it.
pytest.register_assert_rewrite(*(f"{__name__}.{room}" for room in ("batches", "commits", "many", "slices", "tables", "times")))

from astyqueue.testing import TimeMachine  # noqa: E402 - after the rewriting was asked for
from astyqueue.testing.conformance.batches import BatchPromises  # noqa: E402 - as above
from astyqueue.testing.conformance.commits import CommitPromises  # noqa: E402 - as above
from astyqueue.testing.conformance.many import SharingPromises  # noqa: E402 - as above
from astyqueue.testing.conformance.slices import SlicePromises  # noqa: E402 - as above
from astyqueue.testing.conformance.tables import InTable, TablePromises  # noqa: E402 - as above
from astyqueue.testing.conformance.times import TimePromises  # noqa: E402 - as above

__all__ = ["InTable", "StoreConformance"]


class StoreConformance(BatchPromises, CommitPromises, SlicePromises, TablePromises, TimePromises, SharingPromises):
    """Everything a store promises; inherit it and give a `store` fixture."""

    @pytest.fixture
    def clock(self) -> TimeMachine:
        """The clock that the store is opened with; time stands still until a test moves it."""
        return TimeMachine()
