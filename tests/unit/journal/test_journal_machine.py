"""A journal against a list: appends, syncs, reopening, clocks that step, reclaim, and readers in the middle of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from astyqueue.clock import instant
from astyqueue.findings import Severity
from astyqueue.journal import BYTES, Journal, Reader, Record
from astyqueue.testing import TimeMachine
from tests.support.simulated_disk import SimulatedDisk

FOLDER: Final = Path("/journal")
PAGE: Final = 256
payloads = st.one_of(st.binary(max_size=40), st.binary(max_size=3 * PAGE))


class JournalMachine(RuleBasedStateMachine):
    """`all` is every record that was appended, `latest` the greatest moment of the clock.

    Pages go from the oldest on, once all their records are older than an hour: so what arrived in the hour before
    `latest` must be there, and the last record always.
    """

    readers = Bundle("readers")

    @initialize(durability=st.sampled_from(["none", "batch", "each"]))
    def open(self, durability: str) -> None:
        self.clock, self.disk, self.durability = TimeMachine(), SimulatedDisk(), durability
        self.all: list[Record[bytes]] = []
        self.latest, self.least_first = self.clock.now(), 1
        self.journal = self.opened()

    def opened(self) -> Journal[bytes]:
        return Journal.open(
            FOLDER,
            codec=BYTES,
            disk=self.disk,
            clock=self.clock,
            page_size=PAGE,
            durability=self.durability,
            batch_records=3,
            retain="1h",
        )

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.journal.close()

    @property
    def first(self) -> int:
        """The first sequence that reclaim left; `everything_kept_is_read` checks it."""
        return next((record.sequence for record in self.journal.read()), len(self.all) + 1)

    @rule(values=st.lists(payloads, max_size=6))
    def append(self, values: list[bytes]) -> None:
        for value in values:
            position = self.journal.append(value)
            assert position.sequence == len(self.all) + 1
            assert position.arrived_us == max(self.clock.now(), self.all[-1].arrived_us if self.all else 0)
            self.all.append(Record(*position, value))

    @rule(values=st.lists(payloads, max_size=9))
    def append_many(self, values: list[bytes]) -> None:
        last = self.journal.append_many(values)
        now = max(self.clock.now(), self.all[-1].arrived_us if self.all else 0)
        self.all += [Record(len(self.all) + number, now, value) for number, value in enumerate(values, 1)]
        assert last == (self.all[-1][:2] if values else None)

    @rule(microseconds=st.integers(0, 2 * 3_600_000_000))
    def advance(self, microseconds: int) -> None:
        self.clock.advance(microseconds / 1_000_000)
        self.latest = max(self.latest, self.clock.now())

    @rule(back=st.integers(0, 3_600_000_000))
    def step_back(self, back: int) -> None:
        self.clock.set(self.clock.now() - back)

    @rule()
    def sync(self) -> None:
        self.journal.sync()
        assert self.journal.stat().synced_sequence == len(self.all)

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = self.opened()

    @rule()
    def reopen_after_a_killed_process(self) -> None:
        self.journal.sync()
        self.disk = self.disk.rebooted(keep_unsynced=True)
        self.journal.close()
        self.journal = self.opened()

    @rule(deleted=st.sets(st.sampled_from([".index", ".meta"]), min_size=1))
    def reopen_without_hints(self, deleted: set[str]) -> None:
        self.journal.close()
        for name in self.disk.names(FOLDER):
            if Path(name).suffix in deleted:
                self.disk.remove(FOLDER / name)
        self.journal = self.opened()

    @rule()
    def reclaim(self) -> None:
        before = self.first
        self.journal.reclaim()
        gone = self.all[before - 1 : self.first - 1]
        assert all(record.arrived_us < self.clock.now() - 3_600_000_000 for record in gone)

    @rule(target=readers, at=st.floats(0, 1))
    def start_reading(self, at: float) -> tuple[Reader[bytes], int]:
        after = max(self.first - 1, int(at * len(self.all)))
        return self.journal.read(after=after), after

    @rule(reading=readers, count=st.integers(1, 9), target=readers)
    def read_on(self, reading: tuple[Reader[bytes], int], count: int) -> tuple[Reader[bytes], int]:
        reader, after = reading
        if reader.position is not None:
            after = reader.position.sequence
        is_new = reader.position is None
        found = reader.take(count)
        if found:
            first = found[0].sequence
            assert found == self.all[first - 1 : first - 1 + len(found)]
            if first - 1 > after:  # reclaimed before this reader opened its first page, in which it stays
                assert is_new
                assert after == 0 or [(loss.after, loss.before) for loss in reader.skipped] == [(after, first)]
            else:
                assert first - 1 == after
                assert not is_new or reader.skipped == []
        return reader, after

    @rule(reading=consumes(readers))
    def stop_reading(self, reading: tuple[Reader[bytes], int]) -> None:
        reading[0].close()
        assert reading[0].take(1) == []

    @rule(at=st.floats(0, 1))
    def read_since(self, at: float) -> None:
        if self.all:
            since = self.all[int(at * (len(self.all) - 1))].arrived_us
            expected = [record for record in self.all[self.first - 1 :] if record.arrived_us >= since]
            assert list(self.journal.read(since=instant(since))) == expected
            assert list(self.journal.read(until=instant(since))) == [
                record for record in self.all[self.first - 1 :] if record.arrived_us < since
            ]

    @invariant()
    def everything_kept_is_read(self) -> None:
        if hasattr(self, "journal"):
            found = list(self.journal.read())
            if self.all:
                young = (r.sequence for r in self.all if r.arrived_us >= self.latest - 3_600_000_000)
                assert self.least_first <= found[0].sequence <= next(young, len(self.all))
                self.least_first = found[0].sequence
            assert found == self.all[self.least_first - 1 :]
            assert all(finding.severity is Severity.OK for finding in self.journal.verify())


JournalMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestJournal = JournalMachine.TestCase
