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
def test_rows_ended_if_they_were_written_to_since_a_moment_and_are_not_now(
    time_shards: int, shards: int, since: int, later: int
) -> None:
    ring = Ring("mail", Layout(time_shards=time_shards, time_shard_us=MINUTE, concurrency_shards=shards))
    now = since + later
    moments = [*range(since, now, MINUTE), now]
    written = {row for moment in moments for row in ring.current(moment)}
    ended = ring.ended(since, now)
    assert set(ended) == written - set(ring.current(now))
    assert len(ended) == len(set(ended))


def test_no_row_ended_since_a_moment_that_is_still_to_come() -> None:
    """As after the clock was set back."""
    assert Ring("mail", Layout(time_shards=3)).ended(10 * MINUTE, 0) == []
