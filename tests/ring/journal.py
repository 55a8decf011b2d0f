"""The journals of producers and workers: one line for each event, in a file that outlives the process.

A line is a word, a moment of the machine's monotonic clock, and details. Each is one write to a file opened with
O_APPEND, so a line that was written stays, whatever happens to the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from astyqueue.clock import SystemClock
from astyqueue.errors import OutcomeUnknown, StoreError
from astyqueue.ids import Id
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.layout.columns import State, Type, decode_timer
from astyqueue.protocol.steps import Commit, Request
from astyqueue.queue.delivery.base_delivery import BaseDelivery
from astyqueue.store import Committed, Store
from astyqueue.testing.faults import Faulty

_ID: Final = 16
CLOCK: Final = SystemClock()


class Line(NamedTuple):
    """One line of a journal."""

    word: str
    at: int
    details: list[str]


class Journal:
    """A file to which any thread may add lines."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, word: str, *details: object) -> None:
        os.write(self._file, " ".join((word, str(CLOCK.monotonic()), *map(str, details), "\n")).encode())

    def delivered(self, number: int, delivery: BaseDelivery) -> None:
        """Note that a handler got this delivery."""
        receipt = delivery.receipt
        self.write("delivered", number, receipt.message.id.hex(), receipt.attempt, receipt.nonce.hex())

    def settle(self, word: str, number: int, delivery: BaseDelivery, *, outcome: str) -> None:
        """Note `settle` when an outcome is requested, and `settled` when it is in the store, or its lease was lost."""
        self.write(word, number, delivery.receipt.message.id.hex(), delivery.receipt.nonce.hex(), outcome)


def lines(path: Path) -> Iterator[Line]:
    """The lines of a journal, without a last one that was cut short."""
    with path.open() as written:
        for word, at, *details in (line.split() for line in written if line.endswith("\n")):
            yield Line(word, int(at), details)


def joined(ids: list[MessageId]) -> str:
    """The ids of messages as one word."""
    return b"".join(each.id for each in ids).hex()


def parted(word: str) -> list[Id]:
    """The ids in a word."""
    packed = bytes.fromhex(word)
    return [packed[at : at + _ID] for at in range(0, len(packed), _ID)]


class JournalingStore(Faulty):
    """A store that writes its claims and errors to a journal.

    It writes a claim before it requests it, so the claim is in the journal even if its outcome never becomes known.
    """

    def __init__(self, store: Store, journal: Journal) -> None:
        super().__init__(store)
        self._journal = journal
        self._nonces: set[bytes] = set()

    def perform(self, request: Request) -> object:
        claims = self._claims(request) if isinstance(request, Commit) else []
        try:
            outcome = super().perform(request)
        except StoreError as error:
            unknown = isinstance(error, OutcomeUnknown)
            self._journal.write(
                "failed", "unknown" if unknown else "undone", type(request).__name__, type(error).__name__
            )
            self._record_outcome(claims, "unknown" if unknown else "undone")
            raise
        self._record_outcome(claims, "done" if isinstance(outcome, Committed) else "refused")
        return outcome

    def _claims(self, commit: Commit) -> list[bytes]:
        """Write down the claims of a commit, and return their nonces: leased timers whose nonce was not seen before."""
        leased = [put for put in commit.batch.puts if put.name.type == Type.TIMER and put.name.state == State.LEASED]
        timers = [decode_timer(commit.batch.row, put.name, put.value) for put in leased]
        new = [timer for timer in timers if timer.nonce not in self._nonces]
        for timer in new:
            self._nonces.add(timer.nonce)
            packed = b"".join(entry.id for entry in timer.entries).hex()
            self._journal.write("claim", timer.nonce.hex(), packed or "-")
        return [timer.nonce for timer in new]

    def _record_outcome(self, claims: list[bytes], how: str) -> None:
        for nonce in claims:
            self._journal.write("claimed", nonce.hex(), how)
