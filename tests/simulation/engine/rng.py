"""One seeded random source in place of all others, so that a simulation is the same each time."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterator
from typing import Final
from unittest import mock

from astyqueue import ids
from astyqueue.queue import runtime
from astyqueue.queue.delivery.base_delivery import Lease
from astyqueue.queue.row_sharing.row_state import RowState

_HASH_BITS: Final = 60


class SeededRandom(random.Random):
    """A seeded source that also serves where ids and names are otherwise drawn from the operating system."""

    def __init__(self, first: int | str) -> None:
        """Sources with the same `first` draw the same values."""
        super().__init__(first)
        self.first = first

    def derive(self, name: str) -> SeededRandom:
        """The source of one component: its values do not depend on what other components draw."""
        return SeededRandom(f"{self.first}/{name}")

    def randbits(self, bits: int) -> int:
        """As `secrets.randbits`."""
        return self.getrandbits(bits)

    def token_bytes(self, count: int) -> bytes:
        """As `secrets.token_bytes`."""
        return self.getrandbits(8 * count).to_bytes(count)

    def token_hex(self, count: int) -> str:
        """As `secrets.token_hex`."""
        return self.token_bytes(count).hex()


@contextlib.contextmanager
def repeatable(seed: int) -> Iterator[SeededRandom]:
    """The source of everything drawn inside this block; afterwards the process's own randomness continues undisturbed.

    Leases and rows are kept in sets, by identity: inside the block their hashes depend on their contents, or the order
    in such a set would depend on addresses.
    """
    rng = SeededRandom(seed)
    before = random.getstate()
    random.seed(rng.getrandbits(64))
    try:
        with (
            mock.patch.object(ids, "secrets", rng),
            mock.patch.object(runtime, "secrets", rng),
            mock.patch.object(Lease, "__hash__", _hash_of_lease),
            mock.patch.object(RowState, "__hash__", _hash_of_row),
        ):
            yield rng
    finally:
        random.setstate(before)


def _hash_of_lease(lease: Lease) -> int:
    return int.from_bytes(lease.timer.nonce) % (1 << _HASH_BITS)


def _hash_of_row(row: RowState) -> int:
    return zlib.crc32(row.name.encode())
