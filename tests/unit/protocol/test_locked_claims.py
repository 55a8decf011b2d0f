"""Claims under the column lock, in every order: the guard keeps them apart, and the lock takes nothing away from it."""

from __future__ import annotations

from dataclasses import dataclass

from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.coordination.column_lock import ColumnLock
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.settle import SettleRequest, settle
from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import explore
from tests.modelcheck.schedule import Work
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, Told, acking


@dataclass(frozen=True)
class Locked:
    """An actor that acquires a row, claims from it and acks; or finds it busy, and gives up."""

    scene: Scene
    name: str

    def __call__(self) -> Work:
        process, told, row = self.scene.process(self.name), Told(), self.scene.row
        grip = yield from ColumnLock(process, 5_000_000).acquire(row)
        if grip is None:
            return told
        order = ClaimRequest(10, LEASE, ATTEMPTS, leases=False, unlocks=grip.columns)
        claimed = yield from claim(process, RowSnapshot(row, 1), order)
        for taken in claimed.claims:
            told.handed += [(held.entry.id, held.entry.spent) for held in taken.held]
            outcomes = {held.entry.id: acking(held) for held in taken.held}
            settled = yield from settle(process, row, SettleRequest(taken.timer, outcomes))
            told.settled(outcomes, settled)
        return told


def two(unguarded: tuple[int, ...] = ()) -> Scenario:
    scene = Scene(messages=1, unguarded=unguarded)
    return scene.world(ann=Locked(scene, "ann"), bob=Locked(scene, "bob"))


def test_two_who_lock_and_claim_lose_nothing_and_double_nothing_in_any_order() -> None:
    assert explore(two, isolated=True).require_none().schedules > 30


def test_nor_if_one_of_them_dies_or_a_write_has_an_unknown_outcome() -> None:
    explore(two, crashes=1, unknowns=1, isolated=True, limit=1_500).require_none()


def test_the_lock_does_not_stand_in_for_the_guard() -> None:
    """Two may both acquire: without the guard a message is acked twice in some order."""
    assert explore(lambda: two((Type.LOCK,)), isolated=True).violations
