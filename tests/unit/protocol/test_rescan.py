"""Rescans: what landed behind all looks is found, listed once, and handed out once; all else is left as it is."""

from __future__ import annotations

from functools import partial

import pytest

from astyqueue import ids
from astyqueue.errors import OutcomeUnknown, StoreUnavailable
from astyqueue.model.envelope import MessageId
from astyqueue.protocol.admin.delete import clear, delete
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import Type, message_name
from astyqueue.protocol.row.bounded_reads import ReadWindow
from astyqueue.protocol.row.rescan import (
    RESCANNED,
    LastRescan,
    RowRescan,
    last_rescan_in,
    list_stranded,
    write_last_rescan,
)
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.settling.outcomes import Reject
from astyqueue.protocol.steps import Commit, Read, Send, Steps, run
from astyqueue.store import Column, Slice, Store
from astyqueue.testing import Failing, Recording
from astyqueue.units import SECOND
from tests.modelcheck.executor import Scenario
from tests.modelcheck.explorer import explore
from tests.modelcheck.schedule import Work
from tests.unit.protocol.checked_store import ROW, Meanwhile, picture
from tests.unit.protocol.test_bounded_reads import Buried
from tests.unit.protocol.worlds import Scene, Taking, begin, put_at

HOUR = 3_600 * SECOND


def read_long_ago(*, messages: int = 1) -> Scene:
    """A row in which every look has passed the moment two hours ago."""
    scene = Scene()
    for pause in ("2h", "30m"):
        scene.clock.advance(pause)
        scene.send(messages)
        for taken in scene.do("ann", want=200).claims:
            scene.acked(taken)
    scene.clock.advance("1h")
    return scene


def stranded(scene: Scene, count: int = 1, *, ago: int = 2 * HOUR) -> list[ids.Id]:
    """Messages of two hours ago that land now."""
    puts = tuple(put_at(scene.now - ago + number // 200, number % 200) for number in range(count))
    for first in range(0, count, 200):
        scene.put(*puts[first : first + 200])
    return [put.name.id for put in puts]


def rescan(scene: Scene, store: Store | None = None, *, since: int | None = None) -> RowRescan:
    """One rescan of the row, from its beginning to its end."""
    scanning = RowRescan(scene.process("rex"), ROW, 1, since)
    run(to_its_end(scanning), store or scene.store)
    return scanning


def to_its_end(scanning: RowRescan) -> Steps[None]:
    while not scanning.over:
        yield from scanning.go_on()


def handed_out(scene: Scene) -> list[ids.Id]:
    return [held.entry.id for taken in scene.do("bob", want=200).claims for held in taken.held]


@pytest.mark.parametrize("back", [None, 3 * HOUR])
def test_what_landed_behind_all_scans_is_delivered_after_a_rescan_and_once(back: int | None) -> None:
    scene = read_long_ago()
    lost = stranded(scene, 3)
    assert not handed_out(scene)
    for expected in (3, 0):
        done = rescan(scene, since=None if back is None else scene.now - back)
        assert (done.looked, done.listed) == (3, expected)
    assert handed_out(scene) == lost
    assert not handed_out(scene)
    scene.store.require_lawful()


def test_a_clear_removes_what_landed_behind_all_scans_too() -> None:
    """A rescan would bring it back: into a queue that was cleared, or into one that was made anew."""
    scene = read_long_ago()
    stranded(scene, 450)
    scene.send(3)
    assert run(clear(scene.process("ann"), ROW, 1), scene.store) == 453
    assert rescan(scene).looked == 0
    scene.store.require_lawful()


def test_a_clear_passes_what_all_scans_have_passed_once() -> None:
    scene = read_long_ago()
    for _ in range(3):
        scene.send(150)
        scene.clock.advance("1s")
    seen = Recording(scene.store)
    assert run(clear(scene.process("ann"), ROW, 1), seen) == 450
    walks = [
        wanted
        for each in seen.requests
        if isinstance(each, Read)
        for wanted in each.wanted
        if isinstance(wanted, Slice)
    ]
    assert sum(wanted.type == Type.MESSAGE and wanted.after == ids.LEAST for wanted in walks) == 1


def test_what_is_older_than_was_asked_for_is_left() -> None:
    scene = read_long_ago()
    stranded(scene)
    assert rescan(scene, since=scene.now - HOUR).looked == 0


def test_what_waits_is_hidden_dead_or_young_is_left_as_it_is() -> None:
    scene = read_long_ago(messages=3)
    old = [put_at(scene.now - 2 * HOUR, 100 + number) for number in range(2)]
    scene.put(*old)
    rescan(scene)
    [taken] = scene.do("ann").claims
    scene.settle(taken, {old[0].name.id: Reject("rejected", "no", 1)})
    scene.send(1)
    assert scene.do("ann", want=1).claims
    scene.clock.advance("5m")
    young = put_at(scene.now - 400 * SECOND)
    scene.put(young)
    scene.send(3)
    before = picture(scene.store)
    assert rescan(scene).listed == 0
    assert picture(scene.store) == before


def test_a_row_that_nobody_read_has_nothing_behind_its_scans() -> None:
    scene = Scene(messages=5)
    scene.clock.advance("3h")
    seen = Recording(scene.store)
    assert rescan(scene, seen).looked == 0
    assert len(seen.requests) == 1


def test_many_are_listed_in_commits_of_a_bounded_size() -> None:
    scene = read_long_ago()
    lost = stranded(scene, 2_300)
    seen = Recording(scene.store)
    done = rescan(scene, seen)
    assert (done.looked, done.listed) == (2_300, 2_300)
    timers = picture(scene.store).timers
    assert max(len(timer.entries) for timer in timers) == 200
    assert sorted(entry.id for timer in timers for entry in timer.entries) == sorted(lost)
    reads = [wanted for request in seen.requests if isinstance(request, Read) for wanted in request.wanted]
    assert len(reads) <= 3 + 2 * 4 + 3 * 13


def test_tombstones_of_any_number_are_passed_in_stretches() -> None:
    scene = Buried(settled=600, waiting=0)
    scene.clock.advance("30m")
    [lost] = stranded(scene, ago=40 * 60 * SECOND)
    for back in (None, 24 * HOUR):
        assert rescan(scene, since=None if back is None else scene.now - back).looked == 1
    assert handed_out(scene) == [lost]
    assert 2 <= scene.cemetery.failed <= 20


def test_where_the_rate_of_ids_is_known_no_stretch_of_a_rescan_passes_more_of_them_than_a_scan_does() -> None:
    scene, window = read_long_ago(), ReadWindow()
    [lost] = stranded(scene)
    window.saw(60_000, ids.first_at(scene.now - 60 * SECOND), ids.first_at(scene.now))
    seen = Recording(scene.store)
    scanning = RowRescan(scene.process("rex"), ROW, 1, scene.now - 2 * HOUR, window=window)
    run(to_its_end(scanning), seen)
    walks = [
        wanted
        for each in seen.requests
        if isinstance(each, Read)
        for wanted in each.wanted
        if isinstance(wanted, Slice)
    ]
    stretches = [ids.moment(wanted.until) - ids.moment(wanted.after) for wanted in walks if wanted.type == Type.MESSAGE]
    assert max(stretches) <= window.longest == 40 * SECOND
    assert handed_out(scene) == [lost]


@pytest.mark.parametrize("mode", ["applied", "lost"])
def test_a_listing_of_unknown_outcome_lists_once(mode: str) -> None:
    scene = read_long_ago()
    lost = stranded(scene, 2)
    rescan(scene, Failing(scene.store, OutcomeUnknown("no answer"), applied=mode == "applied", of=(Commit,)))
    assert [[entry.id for entry in timer.entries] for timer in picture(scene.store).timers] == [lost]
    scene.store.require_lawful()


def test_a_rescan_that_failed_goes_on_where_it_was() -> None:
    scene = read_long_ago()
    lost = stranded(scene, 1_500)
    scanning = RowRescan(scene.process("rex"), ROW, 1)
    for at in range(3, 20):
        store = Failing(scene.store, StoreUnavailable("away"), at=at)
        try:
            run(to_its_end(scanning), store)
        except StoreUnavailable:
            continue
        break
    run(to_its_end(scanning), scene.store)
    assert sorted(entry.id for timer in picture(scene.store).timers for entry in timer.entries) == sorted(lost)
    scene.store.require_lawful()


@pytest.mark.parametrize("at", range(1, 12))
def test_a_message_that_another_process_lists_or_removes_meanwhile_is_listed_once(at: int) -> None:
    for other in (partial(rescanned_and_taken, "taken"), partial(rescanned_and_taken, "dead"), removed):
        scene = read_long_ago()
        stranded(scene)
        rescan(scene, Meanwhile(scene.store, partial(other, scene), at=at))
        scene.store.require_lawful()


def rescanned_and_taken(became: str, scene: Scene) -> None:
    rescan(scene)
    for taken in scene.do("eve").claims:
        if became == "dead":
            scene.settle(taken, {held.entry.id: Reject("rejected", "no", 1) for held in taken.held})


def removed(scene: Scene) -> None:
    for id_ in picture(scene.store).waiting:
        run(delete(scene.process("dan"), MessageId(ROW, 0, id_)), scene.store)


def meeting(unguarded: tuple[int, ...] = ()) -> Scenario:
    """A rescan lists what it found, and a newcomer comes to whom what landed late is a message like any other."""
    scene = Scene(unguarded=unguarded)
    scene.send(1)
    scene.acked(scene.do("ann").claims[0])
    scene.clock.advance("1h")
    scene.sent = stranded(scene)

    def lists() -> Work:
        yield begin
        return (yield from list_stranded(scene.process("rex"), ROW, [message_name(0, id_) for id_ in scene.sent]))

    return scene.world(rex=lists, bob=Taking(scene, "bob"))


@pytest.mark.parametrize(
    "faults", [{}, *(pytest.param(faults, marks=pytest.mark.full) for faults in ({"crashes": 1}, {"unknowns": 1}))]
)
def test_in_whatever_order_a_rescan_and_a_claim_go_a_message_has_one_holder(faults: dict[str, int]) -> None:
    explore(meeting, isolated=True, **faults).require_none()


def test_without_the_guard_of_the_header_a_listing_would_make_a_second_holder() -> None:
    assert explore(partial(meeting, (Type.LOCK,)), isolated=True).violations


def test_a_cell_that_cannot_be_read_or_is_ahead_of_its_time_says_nothing_untrue() -> None:
    [request] = write_last_rescan(ROW, LastRescan(900, 800))
    assert isinstance(request, Send)
    [put] = request.batch.puts
    assert last_rescan_in(Column(put.name, put.value, 1_000), 2_000) == LastRescan(900, 800)
    assert last_rescan_in(Column(put.name, put.value, 850), 2_000) == LastRescan(850, 800)
    assert last_rescan_in(Column(put.name, put.value, 1_000), 700) == LastRescan(700, 700)
    for value in (b"", b"\x02" + put.value[1:], put.value + b"more"):
        assert last_rescan_in(Column(RESCANNED, value, 1_000), 2_000) == LastRescan()
    assert last_rescan_in(None, 2_000) == LastRescan()


def test_no_commit_touches_the_cell_and_an_older_release_does_not_read_it() -> None:
    """It lies behind the header, among the columns of locks, which are looked for by their own states and moments."""
    scene = read_long_ago()
    run(write_last_rescan(ROW, LastRescan(scene.now)), scene.store)
    scene.send(2)
    seen = Recording(scene.store)
    claimed = run(claim(scene.process("ann"), RowSnapshot(ROW, 1), ClaimRequest(10, HOUR, 5)), seen)
    assert len(claimed.claims[0].held) == 2
    assert RESCANNED not in {put.name for each in seen.requests if isinstance(each, Commit) for put in each.batch.puts}
    assert run(clear(scene.process("ann"), ROW, 1), scene.store) == 2
