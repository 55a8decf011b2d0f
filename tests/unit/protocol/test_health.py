"""What is odd about a queue: each of it made for real, in rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

import pytest
from pydantic import JsonValue

from astyqueue import ids
from astyqueue.findings import Finding, Severity
from astyqueue.model.health import DeathCounts, StuckReport, findings_of, rest_of
from astyqueue.model.schedule import Policies, Template
from astyqueue.model.settings import Behaviour, Layout, Settings
from astyqueue.protocol.admin.health import read_health, read_stuck_reports, report_stuck
from astyqueue.protocol.layout.columns import HEADER, Dead, State, Type, dead_name
from astyqueue.protocol.layout.rows import workers_row
from astyqueue.protocol.layout.schedule_column import encode_schedule, trigger_name
from astyqueue.protocol.scheduling.schedule_commit import ScheduleHandle
from astyqueue.protocol.scheduling.schedule_definition import RequestedSchedule, save
from astyqueue.protocol.settling.outcomes import ACK
from astyqueue.store import Batch, Name, Put
from astyqueue.triggers import Every
from astyqueue.units import SECOND
from tests.unit.protocol.stage import LEASE, ROW, Stage
from tests.unit.protocol.worlds import put_at

QUEUE = "queue mail"
HOME: Final = "mail:home:0"
MINUTE = 60


@pytest.fixture
def stage() -> Stage:
    return Stage()


def examined(stage: Stage, *, layout: Layout | None = None, paused: bool = False) -> dict[str, Finding]:
    settings = Settings(name="mail", layout=layout or Layout(), behaviour=Behaviour(paused=paused))
    return {finding.subject: finding for finding in findings_of(stage.run(read_health(stage.bob, settings)))}


def work(stage: Stage) -> None:
    """A consumer claims a message and acks it."""
    stage.send()
    [taken] = stage.claim(1)
    stage.settle(taken, ACK)


def test_a_queue_where_nothing_waits_long_is_well(stage: Stage) -> None:
    stage.send()
    stage.send(delay=5000)
    stage.clock.advance(MINUTE)
    assert {finding.severity for finding in examined(stage).values()} == {Severity.OK}


def test_work_that_nobody_takes_is_reported_with_its_age_and_the_last_who_came(stage: Stage) -> None:
    work(stage)
    stage.send()
    stage.clock.advance(MINUTE + 1)
    found = examined(stage)[QUEUE]
    assert found.severity is Severity.WARNING
    assert found.fact.startswith(
        "the oldest message that is due waits since 2026-01-01T00:00:00Z (1m1s ago) (row mail:0:0), and no worker"
    )
    assert found.fact.endswith("takes from 1 row of 2")
    assert found.reason == "no process has changed them for 1m or more; the last were: ann"
    assert "start a worker" in found.remedy


def test_work_in_a_row_where_others_are_busy_is_only_behind(stage: Stage) -> None:
    stage.send_many(2)
    stage.clock.advance(MINUTE + 1)
    stage.claim(1)
    assert (examined(stage)[QUEUE].severity, examined(stage)[QUEUE].reason[:13]) == (Severity.NOTE, "workers claim")


def test_what_came_back_and_is_not_taken_counts_from_when_it_was_due_again(stage: Stage) -> None:
    stage.send()
    stage.claim(1)
    stage.clock.set(stage.clock.now() + LEASE + (MINUTE + 5) * SECOND)
    found = examined(stage)
    assert "waits since 2026-01-01T00:01:00Z (1m5s ago)" in found[QUEUE].fact
    lease = found["leases of queue mail"]
    assert lease.severity is Severity.WARNING
    assert lease.fact == "1 message under leases that ran out, the first 2026-01-01T00:01:00Z (1m5s ago), held by ann"


def test_a_lease_that_has_just_run_out_is_nothing_to_tell(stage: Stage) -> None:
    stage.send()
    stage.claim(1)
    stage.clock.set(stage.clock.now() + LEASE + SECOND)
    assert "leases of queue mail" not in examined(stage)


def test_every_row_and_priority_is_scanned(stage: Stage) -> None:
    stage.send(row="mail:1:1", priority=1)
    stage.clock.advance(2 * MINUTE)
    layout = Layout(time_shards=2, concurrency_shards=2, priorities=2)
    assert examined(stage, layout=layout)[QUEUE].fact.endswith("(row mail:1:1), and no worker takes from 1 row of 6")


def test_a_paused_queue_is_a_note_until_work_waits_in_it(stage: Stage) -> None:
    stage.send()
    assert (examined(stage, paused=True)[QUEUE].severity, examined(stage, paused=True)[QUEUE].fact) == (
        Severity.NOTE,
        "is paused",
    )
    stage.clock.advance(2 * MINUTE)
    waits = examined(stage, paused=True)[QUEUE]
    assert (waits.severity, waits.remedy) == (Severity.WARNING, "astyqueue queues set mail paused=no")


def test_dead_letters_are_a_warning_while_they_grow(stage: Stage) -> None:
    stage.bury("a", "b", reason="no such address")
    stage.bury("c", reason="timed out")
    seen = partial(examined, stage)
    fresh = seen()["dead letters of queue mail"]
    assert (fresh.severity, fresh.fact) == (Severity.WARNING, "3 (3 rejected), 3 of them within 1h")
    assert fresh.reason == "they grow more; most often (2 times) because of: no such address"
    stage.clock.advance(3601)
    old = seen()["dead letters of queue mail"]
    assert (old.severity, old.fact) == (Severity.NOTE, "3 (3 rejected), none within 1h")


def test_messages_that_could_not_be_read_are_distinguished(stage: Stage) -> None:
    stage.bury_undecodable()
    assert examined(stage)["messages of queue mail"].fact == "1 message could not be read and became dead letters"


def store_schedule(stage: Stage, name: str, trigger: JsonValue) -> None:
    """A schedule as a process wrote it, and with this trigger."""
    handle = ScheduleHandle(stage.ann, HOME, name)
    wanted = RequestedSchedule(Every("1h"), Template(b"1"), Policies.read("once", "allow", "go on"))
    made = stage.run(save(handle, wanted, replaces=False))
    value = encode_schedule(replace(made, anchored=trigger))
    stage.store.commit(Batch(HOME, (Put(trigger_name(name), value),)), ())


def test_a_schedule_that_cannot_be_read_is_reported_and_one_of_a_trigger_that_workers_may_know_is_not(
    stage: Stage,
) -> None:
    store_schedule(stage, "sound", Every("1h").document())
    store_schedule(stage, "of our own", {"kind": "custom", "name": "soon", "arguments": {}})
    cron = {"kind": "cron", "form": "unix", "expression": "0 9 * * *"}
    store_schedule(stage, "far away", {**cron, "zone": "Mars/Olympus_Mons"})
    stage.store.commit(Batch(HOME, (Put(trigger_name("newer"), b"\x63"),)), ())
    found = {subject: finding for subject, finding in examined(stage).items() if "schedule" in subject}
    assert list(found) == [f"a schedule of {QUEUE} (row {HOME})", f"schedule far away of {QUEUE}"]
    assert {finding.severity for finding in found.values()} == {Severity.WARNING}
    assert "Mars/Olympus_Mons" in found[f"schedule far away of {QUEUE}"].fact


@pytest.mark.parametrize(
    "value",
    [b"", b"\x01", b"\x01{}", b"\x015", b'\x01["ann",1]', b'\x01["ann","many",8,0,[]]', b'\x01["ann",1e400,8,0,[]]'],
)
def test_a_report_of_a_worker_that_cannot_be_read_hides_no_other(stage: Stage, value: bytes) -> None:
    stage.run(report_stuck("mail", StuckReport("bob", 2, 8, stage.clock.now(), ["welcome"])))
    stage.store.send(Batch(workers_row("mail"), (Put(Name(0, 0, ids.of_text("ann"), 0), value),)))
    assert [one.worker for one in stage.run(read_stuck_reports("mail"))] == ["bob"]


TIMER = Name(Type.TIMER, 0, ids.first_at(0), State.LEASED)


@pytest.mark.parametrize(("name", "what"), [(HEADER, "its header"), (TIMER, f"the timer {ids.text(TIMER.id)}/2")])
def test_a_header_or_timer_that_cannot_be_read_is_a_problem_of_its_row_alone(
    stage: Stage, name: Name, what: str
) -> None:
    stage.store.send(Batch(ROW, (Put(name, b"\x63"),)))
    found = examined(stage, layout=Layout(concurrency_shards=2))
    broken = found[f"row {ROW}"]
    assert broken.severity is Severity.PROBLEM
    assert broken.fact == f"{what} cannot be read (format byte 63, and this astyqueue knows 01)"
    assert found[QUEUE].severity is Severity.OK


def test_rows_rest_while_the_others_have_their_turn() -> None:
    hour = 3600 * SECOND
    assert rest_of(Settings(name="mail", layout=Layout(time_shards=30, time_shard_us=hour))) == 29 * hour
    assert rest_of(Settings(name="mail")) == 0


def strand(stage: Stage, *, row: str = ROW, ago: int = 2 * 3600) -> None:
    """A message of an earlier time lands now, unknown to its producer, in a row that was read since."""
    stage.store.send(Batch(row, (put_at(stage.clock.now() - ago * SECOND),)))


def test_what_landed_where_no_scan_reaches_it_is_reported_with_its_age_and_the_remedy(stage: Stage) -> None:
    work(stage)
    stage.clock.advance("3h")
    work(stage)
    strand(stage)
    strand(stage, ago=3600)
    stage.clock.advance("1h")
    found = examined(stage)["late messages of queue mail"]
    assert found.severity is Severity.WARNING
    assert (
        found.fact == "2 messages that no worker looks for, the oldest of 2026-01-01T01:00:00Z (3h ago) (row mail:0:0)"
    )
    assert found.remedy.startswith("astyqueue rescan mail ")


def test_what_waits_is_hidden_or_is_dead_is_no_late_message(stage: Stage) -> None:
    stage.bury("one", "two")
    stage.send_many(5)
    stage.claim(2)
    stage.clock.advance("1h")
    stage.claim(1, by=stage.bob)
    stage.clock.advance("1h")
    assert examined(stage)["late messages of queue mail"].severity is Severity.OK


def test_an_examination_for_late_messages_ends_however_much_is_dead(stage: Stage) -> None:
    """It reads twenty pages of a row at most, and here are twenty-five."""
    puts = [put_at(stage.clock.now() + number) for number in range(25_000)]
    stage.clock.advance("1h")
    work(stage)
    dead = Dead(stage.clock.now(), 1, "failed", "no", "").encode()
    for first in range(0, len(puts), 200):
        some = puts[first : first + 200]
        stage.store.send(Batch(ROW, (*some, *(Put(dead_name(0, put.name.id), dead) for put in some))))
    stage.clock.advance("1h")
    found = examined(stage)["late messages of queue mail"]
    assert found.severity is Severity.NOTE
    assert found.fact == "none found; 1 row not read to the end"


def test_reasons_that_all_differ_are_not_all_remembered_and_all_letters_are_counted(stage: Stage) -> None:
    usual = "no such address"
    stage.bury("first", reason=usual)
    stage.bury("second", reason=usual)
    puts = [
        Put(
            dead_name(0, ids.at(stage.clock.now())),
            Dead(stage.clock.now(), 1, "failed", f"no user {number}", "").encode(),
        )
        for number in range(1_500)
    ]
    for first in range(0, len(puts), 200):
        stage.store.send(Batch(ROW, tuple(puts[first : first + 200])))
    found = examined(stage)["dead letters of queue mail"]
    assert found.fact == "1502 (1500 failed, 2 rejected), 1502 of them within 1h"
    assert "most often (" in found.reason
    counts = DeathCounts()
    for number in range(1_500):
        counts.count("failed", f"no user {number}", stage.clock.now(), stage.clock.now())
    assert (counts.kinds["failed"], len(counts.reasons)) == (1_500, 1_000)


@pytest.mark.parametrize(
    ("every", "shards", "told"),
    [(3_600, 8, "222 messages"), (600, 8, "1.33e+03 messages"), (3_600, 1, "27.8 messages")],
)
def test_it_is_told_how_much_may_pile_up_in_the_rows_of_a_ring(
    stage: Stage, every: int, shards: int, told: str
) -> None:
    found = examined(stage, layout=Layout(time_shards=30, time_shard_us=every * SECOND, concurrency_shards=shards))
    finding = found["size of the rows of queue mail"]
    assert finding.severity is Severity.OK
    assert f": {told} of 1000 bytes a second may pile up there before one has 100 MB" in finding.fact
    assert "size of the rows of queue mail" not in examined(stage)
