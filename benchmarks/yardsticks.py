"""What a store does without astyqueue, whichever it is: what all else is compared with."""

from __future__ import annotations

from benchmarks import bare, bare_driver
from benchmarks.cassandra import OnCassandra
from benchmarks.place import Embedded, Place


def raw_send_per_s(place: Place, messages: int, size: int) -> float | None:
    """Bare inserts a second, in the best of batches; None in memory."""
    if isinstance(place, OnCassandra):
        return bare_driver.raw_send_per_s(place, messages, size)
    return bare.raw_send_per_s(place, messages, size) if isinstance(place, Embedded) and place.shared else None


def raw_bytes_per_s(place: Place, messages: int, size: int) -> float | None:
    """The same of rows that need no binding; only on Cassandra, where that is a part worth telling apart."""
    return bare_driver.raw_bytes_per_s(place, messages, size) if isinstance(place, OnCassandra) else None


def store_write_ms(place: Place, samples: int, *, size: int, seed: int) -> float | None:
    """The median of one bare write, milliseconds; None in memory."""
    if isinstance(place, OnCassandra):
        return bare_driver.store_write_ms(place, samples, size=size, seed=seed)
    return bare.store_write_ms(place, samples, size=size, seed=seed) if isinstance(place, Embedded) and place.shared else None


def fsync_ms(place: Place, samples: int, *, seed: int) -> float | None:
    """The median of one `fdatasync`, milliseconds, where the store waits for one."""
    return bare.fsync_ms(place, samples, seed=seed) if isinstance(place, Embedded) and place.shared else None
