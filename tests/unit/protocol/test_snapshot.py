"""What a process knows of a row: wrong clocks, corrupted cursors and forgotten timers cost time and reads only."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from astyqueue import ids
from astyqueue.errors import Undecodable
from astyqueue.ids import Nonce
from astyqueue.protocol.claiming.claim import claim
from astyqueue.protocol.claiming.selection import ClaimRequest
from astyqueue.protocol.layout.columns import (
    HEADER,
    SCANS,
    Entry,
    Header,
    Mark,
    State,
    Timer,
    Type,
    decode_header,
    decode_timer,
    encoded,
)
from astyqueue.protocol.row.cursors import SCAN_LAGS
from astyqueue.protocol.row.snapshot import RowSnapshot, load_snapshot, read_all_timers
from astyqueue.protocol.settling.outcomes import Release
from astyqueue.protocol.steps import Read, run
from astyqueue.store import Batch, Name, Named, Put, Slice
from astyqueue.stores.memory import MemoryStore
from astyqueue.testing import Recording, TimeMachine
from astyqueue.units import SECOND
from tests.modelcheck.executor import deterministic_client
from tests.unit.protocol.checked_store import ROW, picture
from tests.unit.protocol.worlds import ATTEMPTS, LEASE, Scene, put_at, warm

HOUR = 3_600 * SECOND


def header_with(scene: Scene, cursor: ids.Id) -> None:
    """Let the stored header say that everything up to here was looked at."""
    (column,) = scene.store.read((Named(ROW, (HEADER,)),))[0]
    header = decode_header(ROW, column.value)
    wrong = replace(header, version=header.version + 1, cursors=((cursor,) * SCANS,))
    scene.store.commit(Batch(ROW, (Put(HEADER, wrong.encode()),)), ())


@pytest.mark.parametrize("newcomer", [False, True])
def test_a_clock_set_back_an_hour_strands_nothing(*, newcomer: bool) -> None:
    scene = Scene(messages=2)
    snapshot = RowSnapshot(ROW, 1)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    scene.clock.set(scene.now - HOUR)
    scene.clock.advance(1)
    early = put_at(scene.now, 7)
    scene.clock.advance(1)
    sent = scene.send(2)
    looking = RowSnapshot(ROW, 1) if newcomer else snapshot
    taken = scene.do("ann", snapshot=looking).claims[0]
    assert [held.entry.id for held in taken.held] == sent
    scene.acked(taken, snapshot=looking)
    scene.put(early)
    scene.clock.advance("11s")
    assert [held.entry.id for one in scene.do("ann", snapshot=looking).claims for held in one.held] == [
        early.name.id
    ], "late looks go on too"


@pytest.mark.parametrize("levels", [1, 2])
def test_what_was_settled_before_a_clock_was_set_back_is_scanned_once(levels: int) -> None:
    scene = Scene(messages=2)
    snapshot = RowSnapshot(ROW, levels)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    scene.clock.set(scene.now - 60 * SECOND)
    scene.do("ann", snapshot=snapshot)
    walked = [ids.moment(head) for head in snapshot.scans.heads[:1]]
    assert walked == [scene.now - SCAN_LAGS[1]]
    early = put_at(scene.now - 10 * SECOND, 7)
    scene.put(early)
    scene.clock.advance("11s")
    assert [held.entry.id for one in scene.do("ann", snapshot=snapshot).claims for held in one.held] == [
        early.name.id
    ], "late looks meet it"


@pytest.mark.parametrize("levels", [1, 2])
def test_a_head_that_the_header_of_another_process_set_back_is_back_once_nothing_waits(levels: int) -> None:
    scene = Scene(messages=2)
    snapshot = RowSnapshot(ROW, levels)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    passed = snapshot.scans.heads[0]
    for _ in range(2):
        scene.clock.advance("1m")
        header_with(scene, ids.first_at(scene.now - SCAN_LAGS[-1]))
        snapshot.forget()
    waiting = scene.send(1)
    taken = scene.do("ann", snapshot=snapshot).claims[0]
    assert [held.entry.id for held in taken.held] == waiting, "the head moves only where nothing waits"
    scene.acked(taken, snapshot=snapshot)
    header_with(scene, ids.first_at(scene.now - SCAN_LAGS[-1]))
    snapshot.forget()
    scene.do("ann", snapshot=snapshot)
    assert snapshot.scans.heads[0] == waiting[0] > passed


def test_a_head_does_not_pass_the_present_for_what_a_timer_listed_before_the_clock_was_set_back() -> None:
    scene = Scene(messages=1)
    snapshot = RowSnapshot(ROW, 1)
    given_back = scene.do("ann", snapshot=snapshot).claims[0]
    scene.settle(given_back, {scene.sent[0]: Release(scene.now, 1)}, snapshot=snapshot)
    scene.acked(scene.do("ann", snapshot=snapshot).claims[0], snapshot=snapshot)
    scene.clock.set(scene.now - 60 * SECOND)
    scene.do("ann", snapshot=snapshot)
    assert ids.moment(snapshot.scans.heads[0]) == scene.now - SCAN_LAGS[1]


def test_cursors_set_ahead_by_a_wrong_clock_are_held_back_by_the_write_time_of_their_header() -> None:
    scene = Scene(messages=1)
    scene.acked(scene.do("ann").claims[0])
    header_with(scene, ids.first_at(scene.now + HOUR))
    sent = []
    for _ in range(3):
        scene.clock.advance("10m")
        sent += scene.send(1)
    assert [held.entry.id for held in scene.do("bob").claims[0].held] == sent


@pytest.mark.parametrize("cursor", [ids.LEAST, ids.first_at(0), ids.GREATEST])
def test_corrupted_cursors_in_a_header_hide_nothing_that_is_sent_from_now_on(cursor: ids.Id) -> None:
    scene = Scene(messages=3)
    taken = scene.do("ann", want=1).claims[0]
    header_with(scene, cursor)
    scene.clock.advance(1)
    sent = scene.send(2)
    found = [held.entry.id for _ in range(3) for one in scene.do("bob", want=3).claims for held in one.held]
    assert set(sent) <= set(found)
    assert taken.held[0].entry.id not in found
    assert len(found) == len(set(found))


@pytest.mark.parametrize("spoil", ["cursors", "timers", "dead", "all", "looked"])
def test_a_corrupted_snapshot_delivers_the_same_messages(spoil: str) -> None:
    scene = Scene(messages=6)
    taken = scene.do("eve", want=2).claims[0]
    snapshot = warm(scene, "ann")
    match spoil:
        case "cursors":
            snapshot.scans.cursors = [[ids.LEAST] * SCANS]
            snapshot.forget_dead()
        case "timers":
            snapshot.timers = None
        case "dead":
            snapshot.forget_dead()
        case "looked":
            snapshot.scans.scanned_at = [1 << 60] * SCANS
        case _:
            snapshot.forget()
    found = [
        held.entry.id
        for _ in range(3)
        for one in scene.do("ann", snapshot=snapshot, want=3).claims
        for held in one.held
    ]
    assert found == scene.sent[2:]
    assert not scene.acked(taken).lost
    scene.store.require_lawful()


def test_a_read_of_the_header_tells_whether_others_changed_the_row() -> None:
    scene = Scene(messages=2)
    snapshot = warm(scene, "ann")
    scene.do("ann", snapshot=snapshot, want=1)
    scene.survey(snapshot)
    assert snapshot.header is not None
    scene.do("bob", want=1)
    scene.survey(snapshot)
    assert snapshot.header is None


def test_more_timers_than_a_page_are_all_known() -> None:
    machine = TimeMachine()
    store, process = MemoryStore(machine), deterministic_client("ann", machine)
    names = [Name(Type.TIMER, 0, process.id_at(machine.now() + number), State.SNOOZED) for number in range(2_300)]
    timers = [encoded(Timer(name, (Entry(name.id, 0, 0),), Nonce(b"a claim."), "", 1)) for name in names]
    store.send(Batch(ROW, tuple(Put(timer.name, timer.value) for timer in timers)))
    assert run(read_all_timers(ROW, machine.now()), store) == timers
    assert run(read_all_timers(ROW, machine.now() + 2_000), store) == timers[2_000:]
    snapshot = RowSnapshot(ROW, 1)
    run(load_snapshot(snapshot, machine.now()), store)
    assert snapshot.loaded_timers.next_due() == machine.now()


#: Without the version that an id has, which is not stored.
ID = some.binary(min_size=16, max_size=16).map(lambda drawn: bytes([drawn[0] & 0x0F]) + drawn[1:])
GROUPS = some.just(0) | some.integers(1, (1 << 64) - 1)
ENTRIES = some.lists(
    some.builds(Entry, ID, some.integers(0, 9), some.integers(0, 10_000), some.booleans(), GROUPS), max_size=5
).map(tuple)
MARKS = some.lists(
    some.builds(Mark, ID, some.integers(0, 9), some.integers(0, 10_000), some.integers(0, 1 << 52), GROUPS), max_size=3
).map(tuple)
TIMERS = some.builds(
    Timer,
    some.just(Name(Type.TIMER, 0, ids.first_at(5), State.LEASED)),
    ENTRIES,
    some.binary(min_size=8, max_size=8),
    some.text("abc-é", max_size=40),
    some.integers(0, 200),
    some.booleans(),
    some.booleans(),
    MARKS,
)


@given(TIMERS)
def test_a_timer_reads_as_it_was_written(timer: Timer) -> None:
    assert decode_timer(ROW, timer.name, timer.encode()) == timer


@given(TIMERS, some.data())
def test_a_timer_cut_short_is_an_error_or_ends_between_two_marks(timer: Timer, data: some.DataObject) -> None:
    value = timer.encode()
    short = value[: data.draw(some.integers(0, len(value) - 1))]
    with suppress(Undecodable):
        read = decode_timer(ROW, timer.name, short)
        assert read.entries == timer.entries
        assert read.marks == timer.marks[: len(read.marks)]


@given(
    some.integers(0, 1 << 60),
    some.integers(0, 1 << 60),
    some.lists(some.lists(ID, min_size=SCANS, max_size=SCANS).map(tuple), max_size=3),
)
def test_a_header_reads_as_it_was_written(version: int, floor: int, cursors: list[tuple[ids.Id, ...]]) -> None:
    header = Header(version, floor, Nonce(b"a commit"), "host-1", tuple(cursors))
    assert decode_header(ROW, header.encode()) == header
    with pytest.raises(Undecodable):
        decode_header(ROW, header.encode() + b"x")


def test_a_timer_below_the_floor_would_be_missed_so_every_commit_lowers_the_floor_for_it() -> None:
    scene = Scene(messages=2)
    taken = scene.do("ann", want=1).claims[0]
    scene.clock.advance(5)
    scene.do("bob", want=1)
    due = scene.now + SECOND
    scene.settle(taken, {taken.held[0].entry.id: Release(due, 1)})
    header = picture(scene.store).header
    assert header is not None
    assert header.floor == due
    scene.store.require_lawful()


def test_a_release_of_our_own_that_raised_the_header_forgets_nothing() -> None:
    """With thousands backing off, reading all timers again for each of them would be most of the work."""
    scene = Scene(messages=4)
    snapshot = warm(scene, "ann")
    [taken] = scene.do("ann", snapshot=snapshot, want=2).claims
    scene.settle(taken, {taken.held[0].entry.id: Release(scene.now + SECOND, 1, State.BACKING_OFF)}, snapshot=snapshot)
    scene.survey(snapshot)
    assert snapshot.header is not None
    assert snapshot.timers is not None
    seen = Recording(scene.store)
    claimed = run(claim(scene.process("ann"), snapshot, ClaimRequest(2, LEASE, ATTEMPTS)), seen)
    assert len(claimed.claims[0].held) == 2
    assert claimed.refused == 0
    wanted = [one for request in seen.requests if isinstance(request, Read) for one in request.wanted]
    assert not any(isinstance(one, Slice) and one.type == Type.TIMER for one in wanted)
    scene.clock.advance("1s")
    [again] = scene.do("ann", snapshot=snapshot).claims
    assert [held.entry.id for held in again.held] == [taken.held[0].entry.id]


def test_a_release_of_our_own_on_a_header_that_others_raised_teaches_nothing() -> None:
    scene = Scene(messages=4)
    snapshot = warm(scene, "ann")
    [taken] = scene.do("ann", snapshot=snapshot, want=2).claims
    scene.do("bob", want=1)
    scene.settle(taken, {taken.held[0].entry.id: Release(scene.now + SECOND, 1, State.BACKING_OFF)}, snapshot=snapshot)
    assert snapshot.loaded_header.decoded.version < 3
    assert len(scene.do("ann", snapshot=snapshot).claims[0].held) == 1
