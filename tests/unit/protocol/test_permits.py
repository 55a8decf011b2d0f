"""Permits of a queue: in every order of the requests of several processes, no more have one than the queue allows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from astyqueue.errors import Undecodable
from astyqueue.model.settings import Behaviour, Settings
from astyqueue.model.views import ActiveProcess
from astyqueue.protocol.coordination.permits import delete_permit, new_permit, put_permit, read_permits, report_standby
from astyqueue.protocol.layout.rows import permits_row
from astyqueue.protocol.steps import Client, run
from astyqueue.queue.consuming import process_permit
from astyqueue.queue.consuming.process_permit import ProcessPermit
from astyqueue.queue.settings_sync import SettingsSync
from astyqueue.store import Batch, Name, Put, Store
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import History, Scenario, deterministic_client
from tests.modelcheck.explorer import Exploration, explore
from tests.modelcheck.schedule import Actor, Work, advancing
from tests.stores.conformance.defective_stores import Unguarded

LEASE = 3 * SECOND
NAMES = ("ann", "bob", "cyd")


@pytest.fixture
def store(clock: TimeMachine) -> Store:
    return MemoryStore(clock)


class Processes:
    """Some processes that want a permit of one queue, and the most that had one when one of them was about to claim."""

    def __init__(self, count: int, limit: int, *, behind: int = 0, unguarded: bool = False) -> None:
        self.clock = TimeMachine()
        self.most = 0
        self._limit = limit
        behaviour = Behaviour(max_active_processes=limit, permit_lease_us=LEASE)
        settings = Settings(name="mail", behaviour=behaviour)
        self._permits = {
            name: self._permit(name, settings, behind if name == NAMES[0] else 0) for name in NAMES[:count]
        }
        store = MemoryStore(self.clock)
        self._store = Unguarded(store) if unguarded else store

    def _permit(self, name: str, settings: Settings, behind: int) -> ProcessPermit:
        known = deterministic_client(name, self.clock)
        process = Client(name, lambda: self.clock.now() - behind, known.id_at, known.nonce)
        return ProcessPermit(process, self.clock, SettingsSync(process, settings, self.clock))

    def life(self, name: str, turns: int, *, leaves: bool) -> Actor:
        """A process that wants a permit for some turns, claims some time after each, and may leave then."""
        permit = self._permits[name]

        def live() -> Work:
            for _ in range(turns):
                yield from permit.keep(wanting=True, needed=True, working=False)
                if permit.granted:
                    yield self._claim
            if leaves:
                permit.leave(for_good=True)
                yield from permit.keep(wanting=True, needed=True, working=False)
                assert not permit.granted

        return live

    def _claim(self) -> None:
        self.most = max(self.most, sum(one.granted for one in self._permits.values()))

    def scenario(self, turns: int, *pauses: str, leaves: bool) -> Scenario:
        actors = {name: self.life(name, turns, leaves=leaves) for name in self._permits}
        return Scenario(self._store, actors | {"time": advancing(self.clock, *pauses)}, self._check)

    def _check(self, history: History) -> str | None:
        del history
        return None if self.most <= self._limit else f"{self.most} processes had a permit at a time"


def explored(
    count: int,
    limit: int,
    turns: int,
    *pauses: str,
    leaves: bool = False,
    behind: int = 0,
    unguarded: bool = False,
    crashes: int = 0,
    unknowns: int = 0,
) -> Exploration:
    def scenario() -> Scenario:
        return Processes(count, limit, behind=behind, unguarded=unguarded).scenario(turns, *pauses, leaves=leaves)

    return explore(scenario, crashes=crashes, unknowns=unknowns, limit=LIMIT)


#: Schedules that are explored at most: none of these reaches it.
LIMIT = 200_000


@pytest.mark.parametrize("behind", [0, 700_000])
def test_no_two_processes_have_the_only_permit_in_any_order(behind: int) -> None:
    found = explored(2, 1, 2, "1100ms", "2100ms", behind=behind).require_none()
    assert found.complete
    assert found.schedules > 500


def test_nor_when_they_leave_in_order() -> None:
    assert explored(2, 1, 1, "3100ms", leaves=True).require_none().complete


def test_three_processes_share_two_permits_in_any_order() -> None:
    found = explored(3, 2, 1).require_none()
    assert found.complete


@pytest.mark.parametrize("turns", [1, pytest.param(2, marks=pytest.mark.full)])
@pytest.mark.parametrize(("crashes", "unknowns"), [(1, 0), (0, 1)])
def test_also_when_one_dies_or_does_not_learn_what_became_of_a_commit(turns: int, crashes: int, unknowns: int) -> None:
    found = explored(2, 1, turns, "3100ms", leaves=True, crashes=crashes, unknowns=unknowns).require_none()
    assert found.complete


def test_without_the_guard_of_their_commits_two_would_have_it() -> None:
    assert explored(2, 1, 1, unguarded=True).violations


@contextmanager
def changed(name: str, value: object) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_permit, name, value)
        yield


def test_with_clocks_that_differ_two_would_have_it_if_a_holder_claimed_to_the_end_of_its_lease() -> None:
    def none(_: int) -> int:
        return 0

    with changed("margin_of", none):
        assert explored(2, 1, 1, "2900ms", behind=700_000).violations


@pytest.mark.parametrize("value", [b"", b"\xff{}", b"\x01[]", b"\x01{", b'\x01{"process": "ann"}'])
def test_a_permit_that_cannot_be_read_is_named_and_a_stand_by_is_left_out(store: Store, value: bytes) -> None:
    row = permits_row("mail")
    store.send(Batch(row, (Put(Name(1, 0, bytes(16), 0), value),)))
    assert run(read_permits("mail"), store).standby == []
    store.commit(Batch(row, (Put(Name(0, 0, bytes(16), 3), value),)), ())
    with pytest.raises(Undecodable, match="mail:permits: permit 3 cannot be read"):
        run(read_permits("mail"), store)


def test_a_release_leaves_a_permit_that_was_renewed_or_taken_since(store: Store, clock: TimeMachine) -> None:
    ann, bob = (deterministic_client(name, clock) for name in NAMES[:2])
    first, renewed, other = (new_permit(one, 0, 0, clock.now() + LEASE) for one in (ann, ann, bob))
    assert first.value != renewed.value
    assert run(put_permit("mail", first, None, clock.now()), store)
    assert not run(put_permit("mail", other, None, clock.now()), store)
    assert run(put_permit("mail", renewed, first.value, clock.now()), store)
    assert not run(delete_permit("mail", first), store)
    assert run(read_permits("mail"), store).permits == {0: renewed}
    assert run(delete_permit("mail", renewed), store)
    assert run(read_permits("mail"), store).free(1, clock.now()) == [0]


def test_columns_of_processes_that_are_gone_expire(store: Store, clock: TimeMachine) -> None:
    ann = deterministic_client("ann", clock)
    assert run(put_permit("mail", new_permit(ann, 0, 0, clock.now() + LEASE), None, clock.now()), store)
    run(report_standby("mail", ActiveProcess("bob", 0, clock.now() + LEASE), clock.now()), store)
    clock.advance("62s")
    table = run(read_permits("mail"), store)
    assert len(table.permits) == len(table.standby) == 1
    assert table.free(1, clock.now()) == [0]
    assert not table.waiting(clock.now())
    clock.advance("2s")
    assert run(read_permits("mail"), store) == ({}, [])
