"""The baselines: what a store does without astyqueue."""

from __future__ import annotations

from benchmarks import baseline_cassandra, baseline_sqlite
from benchmarks.cassandra import OnCassandra
from benchmarks.target import Embedded, Target


def raw_send_per_s(target: Target, messages: int, size: int) -> float | None:
    """Bare inserts a second, in the best of batches; None in memory."""
    if isinstance(target, OnCassandra):
        return baseline_cassandra.raw_send_per_s(target, messages, size)
    return (
        baseline_sqlite.raw_send_per_s(target, messages, size)
        if isinstance(target, Embedded) and target.shared
        else None
    )


def raw_bytes_per_s(target: Target, messages: int, size: int) -> float | None:
    """The same of rows that need no binding; only on Cassandra, where binding takes a measurable part."""
    return baseline_cassandra.raw_bytes_per_s(target, messages, size) if isinstance(target, OnCassandra) else None


def store_write_ms(target: Target, samples: int, *, size: int, seed: int) -> float | None:
    """The median of one bare write, milliseconds; None in memory."""
    if isinstance(target, OnCassandra):
        return baseline_cassandra.store_write_ms(target, samples, size=size, seed=seed)
    return (
        baseline_sqlite.store_write_ms(target, samples, size=size, seed=seed)
        if isinstance(target, Embedded) and target.shared
        else None
    )


def fsync_ms(target: Target, samples: int, *, seed: int) -> float | None:
    """The median of one `fdatasync`, milliseconds, where the store waits for one."""
    return (
        baseline_sqlite.fsync_ms(target, samples, seed=seed) if isinstance(target, Embedded) and target.shared else None
    )
