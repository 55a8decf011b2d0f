"""What becomes of a schedule's occurrences, by policy, after a sleep, a jump of the clock or a run without end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from pydantic import JsonValue

from astyqueue.errors import BadInput, OutcomeUnknown, Undecodable
from astyqueue.protocol.layout.columns import HEADER, decode_header
from astyqueue.protocol.layout.schedule_column import decode_schedule, encode_schedule, trigger_name
from astyqueue.protocol.row.snapshot import RowSnapshot
from astyqueue.protocol.scheduling.fire import RowSchedules
from astyqueue.protocol.scheduling.policies import AT_ONCE, SkippedOccurrences
from astyqueue.protocol.scheduling.schedule_commands import discard, pause, remove, resume, run_now
from astyqueue.protocol.settling.outcomes import Reject
from astyqueue.protocol.steps import Commit, run
from astyqueue.store import Batch, Named, Put
from astyqueue.testing import Failing
from astyqueue.triggers import Cron, Every, Triggers
from astyqueue.units import SECOND
from tests.unit.protocol.checked_store import ROW
from tests.unit.protocol.schedule_table import MINUTE, Timetable

DAY = 24 * 60
HOURS = 3_600 * SECOND


@pytest.fixture
def table() -> Timetable:
    return Timetable()


def fired(table: Timetable) -> list[float]:
    """The occurrences that are fired now, in minutes."""
    occurrences: list[int] = []
    while found := table.fire():
        occurrences += found
    return table.minutes(occurrences)


@pytest.mark.every_store
def test_an_occurrence_is_fired_once_and_the_next_one_waits_for_its_time(table: Timetable) -> None:
    table.make()
    assert fired(table) == []
    for minute in (1, 2, 3):
        table.clock.advance("1m")
        assert fired(table) == [minute]
        assert fired(table) == []
        assert len(table.work()) == 1
    assert table.sends() == [1, 2, 3]
    table.store.require_lawful()


@pytest.mark.parametrize(
    ("misfire", "occurrences"),
    [
        ("once", [1]),
        ("latest", [2 * DAY]),
        ("all 5", [2 * DAY - 4, 2 * DAY - 3, 2 * DAY - 2, 2 * DAY - 1, 2 * DAY]),
        ("skip", [2 * DAY]),
        ("skip 10s", []),
        ("within 3m", [2 * DAY - 2, 2 * DAY - 1, 2 * DAY]),
    ],
)
def test_after_two_days_asleep(table: Timetable, misfire: str, occurrences: list[float]) -> None:
    table.make(misfire=misfire)
    table.clock.advance(2 * DAY * 60 + 30)
    assert fired(table) == occurrences
    schedule = table.there()
    assert schedule.occurrences == 2 * DAY
    assert schedule.fired == len(occurrences)
    assert sum(firing.occurrences for firing in schedule.history) == 2 * DAY
    table.clock.advance("1m")
    assert fired(table) == ([2 * DAY + 1] if misfire != "skip 10s" else [])


@pytest.mark.every_store
def test_many_occurrences_are_fired_over_several_commits_none_twice(table: Timetable) -> None:
    table.make(misfire="all 400")
    table.clock.advance(400 * 60)
    assert fired(table) == list(range(1, 401))
    assert len(table.births.born) == 400
    assert set(table.births.born.values()) == {1}


def test_every_occurrence_that_is_within_the_bound_is_fired_however_many_there_are(table: Timetable) -> None:
    table.make(trigger=Every("1s", delay="1s"), misfire="within 1h")
    table.clock.advance("40m")
    raised = table.store.raised
    assert fired(table) == [second / 60 for second in range(1, 2_401)]
    assert table.store.raised - raised == 2_400 / AT_ONCE
    schedule = table.there()
    assert (schedule.occurrences, schedule.fired, schedule.skipped) == (2_400, 2_400, 0)
    assert set(table.births.born.values()) == {1}


def test_only_the_occurrences_beyond_the_bound_are_skipped_as_too_late(table: Timetable) -> None:
    skipped: list[SkippedOccurrences] = []
    table.make(trigger=Every("1s", delay="1s"), misfire="within 20m")
    table.clock.advance("400m")
    found: list[float] = []
    ann = table.scheduler("ann")
    while sent := table.run(ann.fire(RowSnapshot(ROW, 1), on_commit=lambda plan: skipped.extend(plan.skipped))):
        found += table.minutes([one.occurrence for one in sent])
    assert found == [second / 60 for second in range(380 * 60, 400 * 60 + 1)]
    assert [(one.occurrence, one.why) for one in skipped] == [(table.anchored + SECOND, "too late")]
    schedule = table.there()
    assert (schedule.last, schedule.fired) == (table.now, 20 * 60 + 1)


def test_a_schedule_that_pauses_after_a_failure_passes_over_all_that_is_due(table: Timetable) -> None:
    table.make(misfire="within 10h", after_failure="pause")
    table.clock.advance("1m")
    assert fired(table) == [1]
    [taken] = table.do("eve").claims
    table.settle(taken, {held.entry.id: Reject("failed", "no such address", 5) for held in taken.held})
    table.clock.advance("200m")
    assert fired(table) == []
    assert (table.there().last, table.there().skipped) == (table.now, 200)


def test_many_schedules_are_fired_together(table: Timetable) -> None:
    for number in range(100):
        table.make(f"digest {number}")
    table.clock.advance("1m")
    raised = table.store.raised
    assert len(fired(table)) == 100
    assert table.store.raised - raised <= 3
    assert len(table.work()) + len(table.work()) == 100
    table.store.require_lawful()


def test_millions_of_occurrences_that_were_missed_are_dealt_with_in_no_time(table: Timetable) -> None:
    table.make(trigger=Every("100ms"), misfire="latest")
    table.clock.advance(3 * DAY * 60)
    assert len(fired(table)) == 1
    assert table.there().last == table.now


OVERLAPS: dict[str, tuple[list[float], list[float], list[float]]] = {
    # The run of the first occurrence goes on until the fourth minute: what is fired meanwhile, when it ends, and in all
    # until the sixth.
    "allow": ([2, 3, 4], [], [1, 2, 3, 4, 5, 6]),
    "skip": ([], [], [1, 5]),
    "queue one": ([], [2], [1, 2]),
    "queue all": ([], [2], [1, 2]),
    "cancel running": ([2, 3, 4], [], [1, 2, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("overlap", OVERLAPS)
@pytest.mark.every_store
def test_an_occurrence_that_meets_the_run_before(table: Timetable, overlap: str) -> None:
    meanwhile, at_the_end, in_all = OVERLAPS[overlap]
    table.make(overlap=overlap)
    table.clock.advance("1m")
    assert fired(table) == [1]
    [running] = table.do("eve", lease=HOURS).claims
    seen: list[float] = []
    for _ in range(3):
        table.clock.advance("1m")
        seen += fired(table)
    assert seen == meanwhile
    settled = table.acked(running)
    assert bool(settled.lost) == (overlap == "cancel running")
    assert fired(table) == at_the_end
    for _ in range(2):
        table.clock.advance("1m")
        fired(table)
    assert table.sends() == in_all
    table.store.require_lawful()


def test_of_late_occurrences_that_cancel_each_other_the_last_is_sent_and_the_others_are_skipped(
    table: Timetable,
) -> None:
    table.make(misfire="all", overlap="cancel running")
    table.clock.advance("3m")
    assert fired(table) == [3]
    schedule = table.there()
    assert (schedule.occurrences, schedule.fired, schedule.skipped) == (3, 1, 2)
    assert [(one.run is None, one.why) for one in schedule.history] == [
        (True, "cancelled as the next occurrence came"),
        (True, "cancelled as the next occurrence came"),
        (False, ""),
    ]
    [running] = table.do("eve", lease=HOURS).claims
    table.clock.advance("2m")
    assert fired(table) == [5]
    assert table.acked(running).lost
    assert table.sends() == [3, 5]


def test_occurrences_that_wait_are_run_one_after_the_other_and_none_is_lost(table: Timetable) -> None:
    table.make(overlap="queue all", trigger=Every("1m", delay="1m", count=5))
    table.clock.advance("10m")
    order: list[float] = []
    for _ in range(5):
        order += fired(table)
        assert fired(table) == []
        assert len(table.work()) == 1
    assert order == [1, 2, 3, 4, 5]
    assert fired(table) == []
    assert table.there().ended
    assert table.occurrence_timers() == []


def test_of_occurrences_that_wait_one_is_kept(table: Timetable) -> None:
    table.make(overlap="queue one")
    table.clock.advance("5m")
    assert fired(table) == [1]
    table.work()
    assert fired(table) == [2]
    table.work()
    assert fired(table) == []
    assert table.there().skipped == 3


def test_after_a_failed_run_a_schedule_goes_on_or_pauses(table: Timetable) -> None:
    table.make("goes on")
    table.make("pauses", after_failure="pause")
    table.clock.advance("1m")
    assert fired(table) == [1, 1]
    for taken in table.do("eve").claims:
        table.settle(taken, {held.entry.id: Reject("failed", "no such address", 5) for held in taken.held})
    table.clock.advance("1m")
    assert fired(table) == [2]
    assert "its last run failed" in table.there("pauses").paused
    table.run(resume(table.handle("pauses"), lambda _: Every("1m", start=None, delay="1m").anchored(table.anchored)))
    table.clock.advance("1m")
    assert fired(table) == [3, 3]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_jump_of_the_clock_doubles_and_loses_nothing(table: Timetable, hours: int) -> None:
    table.make(misfire="all")
    table.clock.advance("90s")
    assert fired(table) == [1]
    table.clock.set(table.clock.now() + hours * HOURS)
    found = fired(table)
    assert found == ([*range(2, 62)] if hours > 0 else [])
    table.clock.set(table.anchored + 150 * SECOND)
    assert fired(table) == ([] if hours > 0 else [2])
    table.clock.set(table.anchored + 63 * MINUTE)
    fired(table)
    assert sorted(table.sends()) == [*range(1, 64)]


def test_a_snapshot_that_is_kept_costs_no_reads_of_schedules(table: Timetable) -> None:
    table.make()
    snapshot = RowSnapshot(ROW, 1)
    scheduler = table.scheduler("ann")
    table.clock.advance("1m")
    run(scheduler.fire(snapshot), table.births)
    recorded = table.recorded()
    table.clock.advance("1m")
    assert len(run(scheduler.fire(snapshot), recorded)) == 1
    assert [type(request) for request in recorded.requests] == [Commit]


def test_a_schedule_changed_by_others_is_read_anew(table: Timetable) -> None:
    table.make()
    snapshot = RowSnapshot(ROW, 1)
    scheduler = table.scheduler("ann")
    table.clock.advance("1m")
    run(scheduler.fire(snapshot), table.births)
    table.make(trigger=Every("1h", delay="1h"))
    table.clock.advance("1m")
    assert run(scheduler.fire(snapshot), table.births) == []
    assert table.sends() == [1]


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        lambda table: pause(table.handle("digest"), "by hand"),
        lambda table: run_now(table.handle("digest")),
        lambda table: remove(table.handle("digest")),
    ],
    ids=["pause", "run", "remove"],
)
@pytest.mark.every_store
def test_a_change_of_unknown_outcome_is_done_once(
    table: Timetable,
    change: Callable[[Timetable], object],
    applied: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    before = table.make()
    failing = Failing(table.births, OutcomeUnknown(), of=(Commit,), applied=applied)
    run(change(table), failing)  # type: ignore[arg-type]  # they are steps
    left = {one.name: one for one in table.all()}
    assert ("digest" not in left) or left["digest"] != before
    assert all(times == 1 for times in table.births.born.values())


@pytest.mark.parametrize("wrong", ["format", "trigger", "zone", "type"])
def test_a_schedule_that_cannot_be_read_is_parked_and_named_while_its_row_goes_on(
    table: Timetable, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    made = table.make()
    table.make("other")
    nowhere: JsonValue = {"kind": "cron", "expression": "* * * * *", "zone": "Nowhere/Land", "form": "unix"}
    unfit = {
        "format": b"\x09{}",
        "trigger": encode_schedule(replace(made, anchored={"kind": "by the moon"})),
        "zone": encode_schedule(replace(made, anchored=nowhere)),
        "type": encode_schedule(replace(made, paused=5)),  # type: ignore[arg-type]  # it is not text on purpose
    }[wrong]
    table.store.commit(Batch(ROW, (Put(trigger_name("digest"), unfit),)), ())
    table.clock.advance("1m")
    assert fired(table) == [1]
    assert "schedule_unreadable schedule=digest" in caplog.text
    assert len(table.work()) == 1
    assert "other" in [schedule.name for schedule in table.all()]
    table.store.commit(Batch(ROW, (Put(trigger_name("digest"), encode_schedule(made)),)), ())
    table.clock.advance("1m")
    assert fired(table) == [1, 2, 2], "it is fired again once it can be read"


def test_a_schedule_that_cannot_be_read_can_be_removed(table: Timetable) -> None:
    table.make()
    table.store.commit(Batch(ROW, (Put(trigger_name("digest"), b"\x09{}"),)), ())
    assert table.run(discard(table.process("ann"), ROW, trigger_name("digest")))
    assert not table.run(discard(table.process("ann"), ROW, trigger_name("digest")))
    assert table.occurrence_timers() == []


def test_a_trigger_that_could_not_be_read_again_is_refused(table: Timetable) -> None:
    deep: list[object] = []
    for _ in range(198):
        deep = [deep]
    own = Triggers().register("own")(lambda moment, **_: moment + timedelta(minutes=1))
    with pytest.raises(BadInput, match=r"could not be read again: .*recursion limit"):
        table.make(trigger=own(deep=deep))
    assert table.all() == []


def test_a_column_is_the_same_when_it_is_read_again(table: Timetable) -> None:
    made = table.make(overlap="queue all", trigger=Cron("0 9 * * *", "Europe/Paris"))
    assert decode_schedule(ROW, encode_schedule(made)) == made
    table.make(overlap="queue all")
    table.clock.advance("3m")
    fired(table)
    there = table.there()
    assert there.backlog
    assert there.history
    assert decode_schedule(ROW, encode_schedule(there)) == there


@pytest.mark.parametrize("damaged", [b"", b"\x01", b"\x01[]\n1", b"\x01{}\n1", b"\x02{}"])
def test_a_damaged_column_is_not_guessed(damaged: bytes) -> None:
    with pytest.raises(Undecodable):
        decode_schedule(ROW, damaged)


def test_the_floor_stays_below_every_occurrence(table: Timetable) -> None:
    table.make()
    table.send(1)
    table.work()
    header = decode_header(ROW, table.store.read((Named(ROW, (HEADER,)),))[0][0].value)
    assert header.floor <= table.anchored + MINUTE
    table.clock.advance("1m")
    assert fired(table) == [1]


def test_a_claim_leaves_occurrences_alone(table: Timetable) -> None:
    table.make()
    table.clock.advance("1m")
    snapshot = RowSnapshot(ROW, 1)
    assert not table.do("ann", snapshot=snapshot).claims
    assert snapshot.next_scan(table.now) is None
    snapshot.fires = True
    assert snapshot.next_scan(table.now) == table.anchored + MINUTE


def test_schedules_whose_occurrences_take_long_to_work_out_are_fired_one_at_a_time(table: Timetable) -> None:
    """A process renews leases between two firings; many slow schedules at one go would leave it no time for that."""
    triggers = Triggers()

    @triggers.register("slow")
    def slow(moment: datetime) -> datetime:
        table.clock.advance("500ms")
        return (moment + timedelta(minutes=1)).replace(second=0, microsecond=0)

    names = [f"slow {number}" for number in range(6)]
    table.clock.advance("10s")
    for name in names:
        table.make(name, slow())
    table.clock.advance("1m")
    scheduler, snapshot = RowSchedules(table.process("ann"), triggers), RowSnapshot(ROW, 1)
    rounds = [[one.schedule for one in table.run(scheduler.fire(snapshot))] for _ in range(7)]
    assert [len(each) for each in rounds] == [1, 1, 1, 1, 1, 1, 0]
    assert sorted(name for each in rounds for name in each) == names
    table.store.require_lawful()


def test_schedules_that_are_worked_out_in_no_time_are_fired_together(table: Timetable) -> None:
    for number in range(6):
        table.make(f"quick {number}")
    table.clock.advance("1m")
    assert len(table.fire()) == 6


def test_a_schedule_whose_occurrences_take_long_to_work_out_is_fired_by_one_commit_at_a_time(table: Timetable) -> None:
    triggers = Triggers()

    @triggers.register("slow")
    def slow(moment: datetime) -> datetime:
        table.clock.advance("5ms")
        return (moment + timedelta(minutes=1)).replace(second=0, microsecond=0)

    table.make("slow", slow(), misfire="all 120")
    table.clock.advance("120m")
    scheduler, snapshot = RowSchedules(table.process("ann"), triggers), RowSnapshot(ROW, 1)
    assert [len(table.run(scheduler.fire(snapshot))) for _ in range(4)] == [50, 50, 20, 0]
    table.store.require_lawful()
