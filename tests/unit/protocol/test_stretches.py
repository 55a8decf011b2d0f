"""Rows full of what was deleted, on a store that gives up a read for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from astyqueue import ids
from astyqueue.clock import SECOND
from astyqueue.errors import SliceTooLong
from astyqueue.ids import Id
from astyqueue.protocol.browse import counts
from astyqueue.protocol.columns import HEADER, LOOKS, Type, decode_header, message_name
from astyqueue.protocol.outcomes import ACK
from astyqueue.protocol.sight import Sight
from astyqueue.protocol.steps import Commit, Read, Request, run
from astyqueue.protocol.stretches import read_through
from astyqueue.store import Batch, Column, Name, Put, Slice, Store, Wanted
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.testing.faults import Faulty
from tests.unit.protocol.watched import ROW
from tests.unit.protocol.worlds import Scene

MOST = 50


class Cemetery(Faulty):
    """Remembers what was deleted, and gives up a slice that passes too much of it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.graves: set[Name] = set()
        self.failed = 0

    def perform(self, request: Request) -> object:
        answer = super().perform(request)
        if isinstance(request, Commit):
            self.graves |= set(request.batch.deletes)
        for wanted in request.wanted if isinstance(request, Read) else ():
            self._pass(wanted)
        return answer

    def _pass(self, wanted: Wanted) -> None:
        if not isinstance(wanted, Slice):
            return
        columns: list[Column] = self._store.read((wanted,))[0]
        end = columns[-1].name.id if wanted.limit is not None and len(columns) == wanted.limit else wanted.until
        passed = [name for name in self.graves if name.type == wanted.type and wanted.after <= name.id < end]
        if len(passed) > MOST:
            self.failed += 1
            message = f"{len(passed)} deleted columns"
            raise SliceTooLong(message)


class Buried(Scene):
    """A row in which much was settled over an hour, and a little waits."""

    def __init__(self, *, settled: int, waiting: int) -> None:
        super().__init__()
        self.cemetery = Cemetery(MemoryStore(self.clock))
        self.store = self.cemetery  # type: ignore[assignment]  # a store, whatever else the scene's own could do
        for _ in range(settled // 20):
            self.send(20)
            [taken] = self.do("ann", want=20).claims
            self.settle(taken, {held.entry.id: ACK for held in taken.held})
            self.clock.advance("30s")
        self.waiting = self.send(waiting)

    def forget_cursors(self) -> None:
        """Delete the cursors from the header, as an accident would."""
        [[column]] = self.store.read((Slice(ROW, Type.LOCK, 0),))
        header = decode_header(ROW, column.value)
        blank = replace(header, cursors=tuple((ids.LEAST,) * LOOKS for _ in header.cursors))
        self.store.commit(Batch(ROW, (Put(HEADER, blank.encode()),)), ())


@pytest.fixture
def scene() -> Buried:
    return Buried(settled=1_000, waiting=3)


def test_a_slice_that_passes_too_much_is_read_in_stretches(scene: Buried) -> None:
    wanted = Slice(ROW, Type.MESSAGE, 0, limit=10)
    with pytest.raises(SliceTooLong):
        scene.store.read((wanted,))
    columns, long = run(read_through(wanted, scene.now), scene.store)
    assert ([column.name.id for column in columns], long) == (scene.waiting, True)


@pytest.mark.parametrize("limit", [1, 2, 3, None])
def test_no_more_is_read_than_was_asked_for_and_nothing_twice(scene: Buried, limit: int | None) -> None:
    columns, _ = run(read_through(Slice(ROW, Type.MESSAGE, 0, limit=limit), scene.now), scene.store)
    assert [column.name.id for column in columns] == scene.waiting[:limit]


def test_what_lies_ahead_of_the_clock_is_read_as_well(scene: Buried) -> None:
    later: Id = ids.at(scene.now + 3_600 * SECOND)
    scene.store.send(Batch(ROW, (Put(message_name(0, later), b"later"),)))
    columns, _ = run(read_through(Slice(ROW, Type.MESSAGE, 0), scene.now), scene.store)
    assert [column.name.id for column in columns] == [*scene.waiting, later]


def test_what_no_stretch_is_short_enough_for_is_told(clock: TimeMachine) -> None:
    cemetery = Cemetery(MemoryStore(clock))
    cemetery.graves = {message_name(0, ids.at(clock.now())) for _ in range(MOST + 1)}
    with pytest.raises(SliceTooLong):
        run(read_through(Slice(ROW, Type.MESSAGE, 0), clock.now()), cemetery)


def test_a_row_whose_cursors_are_lost_is_slower_once_and_loses_nothing(scene: Buried) -> None:
    scene.forget_cursors()
    [taken] = scene.do("bob", sight=Sight(ROW, 1)).claims
    assert [held.entry.id for held in taken.held] == scene.waiting
    assert scene.cemetery.failed > 0
    scene.clock.advance("1s")
    more = scene.send(2)
    [taken] = scene.do("cid", sight=Sight(ROW, 1)).claims
    assert [held.entry.id for held in taken.held] == more


def test_a_walk_that_finds_nothing_to_claim_is_stored_for_the_others() -> None:
    """Four looks, as at every stretch of ids; then nobody goes there again."""
    scene = Buried(settled=1_000, waiting=0)
    scene.forget_cursors()
    sight = Sight(ROW, 1)
    for _ in range(3):
        assert scene.do("bob", sight=sight).claims == []
        scene.clock.advance("11m")
    failed = scene.cemetery.failed
    assert failed > 0
    assert scene.do("cid", sight=Sight(ROW, 1)).claims == []
    assert scene.cemetery.failed == failed


def test_counting_goes_through_it_too(scene: Buried) -> None:
    scene.forget_cursors()
    assert run(counts(scene.process("bob"), [ROW], levels=1), scene.store).waiting == 3
