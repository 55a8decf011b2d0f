"""The rows of a queue: which of them are written to at a moment, and which were."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.rows import Ring
from astyqueue.units import SECOND

MINUTE = 60 * SECOND


@given(
    time_shards=st.integers(1, 5),
    shards=st.integers(1, 3),
    since=st.integers(0, 20 * MINUTE),
    later=st.integers(0, 12 * MINUTE),
)
def test_a_row_ended_if_it_was_written_to_since_a_moment_and_is_not_now(
    time_shards: int, shards: int, since: int, later: int
) -> None:
    ring = Ring("mail", Layout(time_shards=time_shards, time_shard_us=MINUTE, concurrency_shards=shards))
    now = since + later
    written = {row for moment in [*range(since, now, MINUTE), now] for row in ring.current(moment)}
    ended = ring.ended(since, now)
    assert set(ended) == written - set(ring.current(now))
    assert sorted(ended) == sorted(row for row in ring.rows() if ring.has_ended(row, since, now))


def test_no_row_ended_since_a_moment_that_is_still_to_come() -> None:
    """As after the clock was set back."""
    ring = Ring("mail", Layout(time_shards=3))
    assert ring.ended(10 * MINUTE, 0) == []
    assert not any(ring.has_ended(row, 10 * MINUTE, 0) for row in ring.rows())
