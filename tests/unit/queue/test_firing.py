"""Every process that works on a queue fires its schedules: no process of its own, each occurrence once, no spinning."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from astyqueue.clock import instant
from astyqueue.errors import BadInput, NotFound, ScheduleTaken
from astyqueue.model import message as message_module
from astyqueue.model.message import Message
from astyqueue.model.schedule import Misfire, Overlap, Policies
from astyqueue.model.settings import Layout
from astyqueue.protocol.layout.columns import Type
from astyqueue.protocol.layout.rows import ACTIVITY_ROW_US
from astyqueue.protocol.steps import Commit, Read, run
from astyqueue.queue.admin.schedules import ScheduleRequest, save, show
from astyqueue.queue.queue import MessageQueue
from astyqueue.schedules import Schedules
from astyqueue.store import Slice, Store
from astyqueue.testing import Recording, TimeMachine
from astyqueue.triggers import Cron, Every, Once, Triggers
from astyqueue.units import SECOND
from tests.support.places import ONE_ROW, Place
from tests.unit.queue.stepped_workers import MILLISECOND, Crew


@pytest.fixture
def store(place: Place, clock: TimeMachine) -> Store:
    return place.store(clock)


@pytest.fixture
def queue(store: Store, clock: TimeMachine) -> MessageQueue:
    return MessageQueue.builder().store(store).clock(clock).name("mail").options(lease="30s", **ONE_ROW).build()


def take(queue: MessageQueue) -> list[object]:
    """The bodies of what is due, acked."""
    with queue.receive(limit=100) as batch:
        return [delivery.body for delivery in batch]


@pytest.mark.every_store
def test_a_schedule_sends_a_message_at_each_occurrence(queue: MessageQueue, clock: TimeMachine) -> None:
    Schedules(queue).add("digest", Every("1m", delay="1m"), {"to": "ada"})
    assert take(queue) == []
    clock.advance("1m")
    with queue.receive() as [delivery]:
        assert delivery.body == {"to": "ada"}
        assert delivery.headers == {"schedule": "digest"}
        assert delivery.due == instant(clock.now())
    assert take(queue) == []
    clock.advance("1m")
    assert take(queue) == [{"to": "ada"}]
    assert queue.stats.fired == 2


def test_a_schedule_made_elsewhere_is_fired_here(queue: MessageQueue, store: Store, clock: TimeMachine) -> None:
    assert take(queue) == []
    other = MessageQueue.builder().store(store).clock(clock).name("mail").build()
    Schedules(other).add("digest", Once(delay="1m"), "hello")
    clock.advance("61s")
    assert take(queue) == ["hello"]


def test_a_process_may_leave_schedules_to_others(store: Store, clock: TimeMachine) -> None:
    idle = MessageQueue.builder().store(store).clock(clock).name("mail").fires(fires=False).build()
    Schedules(idle).add("digest", Once(delay="1m"), "hello")
    clock.advance("1m")
    assert take(idle) == []
    busy = MessageQueue.builder().store(store).clock(clock).name("mail").build()
    assert take(busy) == ["hello"]


@pytest.mark.parametrize("fires", [True, False])
def test_nobody_spins_on_an_occurrence_that_is_not_fired(place: Place, clock: TimeMachine, fires: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Because it waits for the run before, or because this process fires nothing."""
    crew = Crew(place.store(clock), clock, Layout())
    worker = crew.join(hands=1, busy_for=3_600 * SECOND)
    planned = ScheduleRequest(Every("1s"), Message(None), Policies(Misfire("once"), Overlap.QUEUE_ALL))
    run(save(worker.core, "digest", planned, replaces=False), worker.store)
    crew.pass_time(2 * SECOND)
    if not fires:
        worker.core.fire_nothing()
    worker.requests.clear()
    crew.pass_time(10 * SECOND)
    assert worker.count(Commit) <= 12
    assert worker.count(Read) < 150


def test_hands_that_are_full_fire_all_the_same(place: Place, clock: TimeMachine) -> None:
    crew = Crew(place.store(clock), clock, Layout())
    worker = crew.join(hands=1, busy_for=3_600 * SECOND)
    worker.send(1)
    run(
        save(worker.core, "digest", ScheduleRequest(Every("1m", delay="10s"), Message(None)), replaces=False),
        worker.store,
    )
    crew.pass_time(15 * SECOND)
    assert worker.core.claimer.stats.fired <= 1
    schedule = run(show(worker.core, "digest"), worker.store)
    assert schedule.fired == 1
    assert schedule.history[-1].at - schedule.history[-1].occurrence <= 2 * SECOND


def test_hands_that_are_full_fire_what_the_process_that_owned_the_row_left_when_it_died(
    place: Place, clock: TimeMachine
) -> None:
    crew = Crew(place.store(clock), clock, Layout(concurrency_shards=2))
    full, owner = crew.join(hands=1, busy_for=3_600 * SECOND), crew.join()
    run(
        save(owner.core, "digest", ScheduleRequest(Every("1m", delay="5s"), Message(None)), replaces=False), owner.store
    )
    full.send(8)
    crew.pass_time(30 * SECOND, step=50 * MILLISECOND)
    owner.dead = True
    crew.pass_time(60 * SECOND, step=50 * MILLISECOND)
    assert len(full.got) == 1
    schedule = run(show(full.core, "digest"), full.store)
    assert schedule.fired == 2
    assert schedule.history[-1].at - schedule.history[-1].occurrence <= 2 * SECOND


@pytest.mark.parametrize("shards", [1, 2])
def test_hands_that_are_full_fire_a_schedule_that_another_process_makes_meanwhile(
    place: Place, clock: TimeMachine, shards: int
) -> None:
    crew = Crew(place.store(clock), clock, Layout(concurrency_shards=shards))
    full, maker = crew.join(hands=1, busy_for=3_600 * SECOND), crew.outsider()
    full.send(1)
    crew.pass_time(20 * SECOND, step=50 * MILLISECOND)
    run(
        save(maker.core, "digest", ScheduleRequest(Every("1m", delay="5s"), Message(None)), replaces=False), maker.store
    )
    full.requests.clear()
    crew.pass_time(70 * SECOND, step=50 * MILLISECOND)
    schedule = run(show(full.core, "digest"), full.store)
    assert schedule.fired == 2
    assert schedule.history[-1].at - schedule.history[-1].occurrence <= 2 * SECOND
    assert full.count(Read) <= 4 * 70


def test_hands_that_are_full_do_not_read_what_another_process_changes_all_the_time(
    place: Place, clock: TimeMachine
) -> None:
    crew = Crew(place.store(clock), clock, Layout(concurrency_shards=4))
    full = crew.join(hands=1, busy_for=3_600 * SECOND)
    crew.outsider().send(1)
    crew.pass_time(2 * SECOND, step=50 * MILLISECOND)
    assert full.got
    active, keys = crew.join(hands=50), count()

    def sent() -> None:
        active.send(1, key=f"k{next(keys)}", unique="keep")

    crew.pass_time(8 * SECOND, each=sent, step=100 * MILLISECOND)
    full.requests.clear()
    crew.pass_time(20 * SECOND, each=sent, step=100 * MILLISECOND)
    reads = [request for request in full.requests if isinstance(request, Read)]
    timers = [one for read in reads for one in read.wanted if isinstance(one, Slice) and one.type == Type.TIMER]
    assert len(reads) <= 2 * 20
    assert timers == []


def test_idle_schedules_cost_no_reads(place: Place, clock: TimeMachine) -> None:
    def reads(schedules: int) -> int:
        random.seed(1)  # by chance a process polls its rows a little sooner or later
        crew = Crew(place.store(clock), clock, Layout())
        worker = crew.join()
        worker.send(1)  # so that the queue was in use, with schedules and without
        for number in range(schedules):
            planned = ScheduleRequest(Every("1h", delay="1h"), Message(None))
            run(save(worker.core, f"digest {number}", planned, replaces=False), worker.store)
        crew.pass_time(70 * SECOND, step=20_000)
        worker.requests.clear()
        crew.pass_time(60 * SECOND, step=20_000)
        return worker.count(Read)

    clock.set((clock.now() // ACTIVITY_ROW_US + 1) * ACTIVITY_ROW_US)  # two rows of the log are read where one ends
    assert abs(reads(50) - reads(0)) <= 1


@pytest.mark.every_store
def test_a_paused_schedule_fires_nothing_and_goes_on_with_the_next_occurrence(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello")
    assert schedules.pause("digest").paused == "by hand"
    clock.advance("150s")
    assert take(queue) == []
    resumed = schedules.resume("digest")
    assert not resumed.paused
    assert resumed.stored.skipped == 2
    assert take(queue) == []
    clock.advance("30s")
    assert take(queue) == ["hello"]


def test_a_pause_without_a_reason_is_refused_because_it_would_pause_nothing(
    queue: MessageQueue, clock: TimeMachine
) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello")
    with pytest.raises(BadInput, match="why schedule 'digest' is paused is empty"):
        schedules.pause("digest", "")
    clock.advance("1m")
    assert take(queue) == ["hello"]


def test_a_schedule_is_run_when_somebody_asks_and_at_its_occurrences(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello")
    ran = schedules.run("digest")
    assert ran.message is not None
    assert queue.get(ran.message).body == "hello"
    assert take(queue) == ["hello"]
    clock.advance("1m")
    assert take(queue) == ["hello"]
    assert schedules.get("digest").stored.fired == 2


def test_the_next_occurrences_are_reported(queue: MessageQueue) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Cron("0 9 * * *"), "hello")
    first, second = schedules.next("digest", 2)
    assert first.hour == second.hour == 9
    assert second - first == timedelta(days=1)
    assert schedules.get("digest").next == first
    with pytest.raises(BadInput):
        schedules.next("digest", 0)


@pytest.mark.every_store
def test_a_range_of_the_past_is_backfilled(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    now = instant(clock.now())
    schedules.add("digest", Every("1h", start=now - timedelta(hours=300)), "hello")
    assert schedules.backfill("digest", now - timedelta(hours=150), now) == 151
    found: list[datetime] = []
    while batch := queue.receive(limit=100):
        with batch:
            found += [delivery.due for delivery in batch]
    assert sorted(found) == [*(now - timedelta(hours=back) for back in range(150, -1, -1)), now]


def test_a_range_with_occurrences_to_come_is_refused(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    now = instant(clock.now())
    schedules.add("digest", Every("1h", start=now - timedelta(hours=1)), "hello")
    for hours in (-1, 0, 1):
        with pytest.raises(BadInput, match=r"ends in the future .*end it by .*, which is now"):
            schedules.backfill("digest", now + timedelta(hours=hours), now + timedelta(hours=20_000))
    assert schedules.backfill("digest", now - timedelta(hours=1), now + timedelta(minutes=59)) == 2
    with queue.receive(limit=100) as batch:
        assert max(delivery.due for delivery in batch) == now


def test_a_body_too_long_for_a_schedule_is_refused_with_a_setting_only_where_that_helps(queue: MessageQueue) -> None:
    body = "x" * (128 * 1024)
    with pytest.raises(BadInput, match=r"a schedule takes 131072: .* send a reference to it$"):
        Schedules(queue).add("digest", Every("1h"), body)
    queue.configure(body_bytes=1000)
    with pytest.raises(BadInput, match=r"a schedule takes 1000: .* raise the queue's body_bytes \(at most 131072\)$"):
        queue.send(body, trigger=Every("1h"))
    with pytest.raises(BadInput, match=r"this queue takes 1000: .* raise the queue's body_bytes \(at most 1048576\)$"):
        queue.send(body)


@pytest.mark.every_store
def test_a_deleted_schedule_fires_no_more_and_its_name_is_free(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello")
    assert schedules.delete("digest")
    assert not schedules.delete("digest")
    clock.advance("5m")
    assert take(queue) == []
    with pytest.raises(NotFound):
        schedules.get("digest")
    schedules.add("digest", Once(delay="1m"), "again")
    with pytest.raises(ScheduleTaken, match="give another name, or replace it"):
        schedules.add("digest", Once(delay="1m"), "again")
    assert [one.name for one in schedules.all()] == ["digest"]


def test_an_edit_keeps_the_count(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m", count=5), "hello")
    for _ in range(2):
        clock.advance("1m")
        assert take(queue) == ["hello"]
    schedules.add("digest", Every("2m", delay="2m", count=5), "new", replace=True)
    bodies = []
    for _ in range(20):
        clock.advance("1m")
        bodies += take(queue)
    assert bodies == ["new"] * 3
    assert schedules.get("digest").next is None


def test_an_equal_trigger_goes_on_as_it_was(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    first = schedules.add("digest", Every("1h"), "hello")
    clock.advance("30m")
    again = schedules.add("digest", Every("1h"), "other", replace=True)
    assert again.next == first.next or again.next == schedules.next("digest", 1)[0]
    clock.advance("30m")
    assert take(queue) == ["other"]


def test_a_trigger_of_ones_own_is_fired_by_whoever_knows_it(store: Store, clock: TimeMachine) -> None:
    triggers = Triggers()
    soon = triggers.register("soon")(lambda moment: moment + timedelta(minutes=1))
    knows = MessageQueue.builder().store(store).clock(clock).name("mail").triggers(triggers).build()
    Schedules(knows).add("digest", soon(), "hello")
    clock.advance("1m")
    stranger = MessageQueue.builder().store(store).clock(clock).name("mail").build()
    assert take(stranger) == []
    found = take(knows)
    clock.advance("1s")
    assert found + take(knows) == ["hello"]


def test_dropping_a_queue_drops_its_schedules(queue: MessageQueue, store: Store, clock: TimeMachine) -> None:
    Schedules(queue).add("digest", Once(delay="1m"), "hello")
    queue.drop()
    anew = MessageQueue.builder().store(store).clock(clock).name("mail").build()
    clock.advance("2m")
    assert Schedules(anew).all() == []
    assert take(anew) == []


def test_clearing_a_queue_leaves_its_schedules(queue: MessageQueue, clock: TimeMachine) -> None:
    Schedules(queue).add("digest", Every("1m", delay="1m"), "hello")
    clock.advance("1m")
    queue.send("work")
    queue.clear()
    clock.advance("1m")
    assert take(queue) == ["hello"]


def test_a_paused_queue_fires_nothing_and_catches_up_by_its_policy(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello", misfire="latest")
    queue.pause()
    clock.advance("3m")
    assert take(queue) == []
    assert schedules.get("digest").stored.occurrences == 0
    queue.resume()
    assert take(queue) == ["hello"]
    assert schedules.get("digest").stored.occurrences == 3


def test_large_bodies_stay_within_the_bounds_of_a_batch(place: Place, clock: TimeMachine) -> None:
    store = Recording(place.store(clock))
    queue = MessageQueue.builder().store(store).clock(clock).name("mail").options(**ONE_ROW).build()
    schedules = Schedules(queue)
    large = "x" * (100 * 1024)
    for number in range(6):
        schedules.add(f"digest {number}", Every("1m", delay="1m"), large, misfire="all")
    clock.advance("5m")
    assert schedules.backfill("digest 0", instant(clock.now() - 4 * 60 * SECOND), instant(clock.now())) == 5
    found = 0
    for _ in range(40):
        found += len(take(queue))
        clock.advance("1s")
    assert found == 35
    commits = [request.batch for request in store.requests if isinstance(request, Commit)]
    assert max(sum(len(put.value) for put in batch.puts) for batch in commits) <= 512 * 1024


def test_lateness_is_reported_by_schedule(queue: MessageQueue, clock: TimeMachine) -> None:
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello")
    clock.advance("63s")
    take(queue)
    late = schedules.lateness()["digest"]
    assert (late.fired.count, late.fired.worst) == (1, 3 * SECOND)
    assert (late.started.count, late.started.total) == (1, 3 * SECOND)


def test_a_message_that_says_it_is_a_schedules_does_not_make_that_one_late(
    queue: MessageQueue, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_module, "SCHEDULE", "what an earlier release refuses: nothing")
    schedules = Schedules(queue)
    schedules.add("digest", Every("1m", delay="1m"), "hello")
    queue.send_many(
        [
            Message("not I", key="k", unique="keep", headers={"schedule": "digest"}),
            Message("nor I", headers={"schedule": "none"}),
        ]
    )
    clock.advance("63s")
    while take(queue):
        pass
    assert schedules.lateness().keys() == {"digest"}
    assert schedules.lateness()["digest"].started.count == 1


def test_what_no_schedule_can_send_is_refused(queue: MessageQueue) -> None:
    schedules = Schedules(queue)
    for message in (
        Message(1, delay=5),
        Message(1, expires=datetime(2030, 1, 1, tzinfo=UTC)),
        Message(1, key="k", unique="keep"),
    ):
        with pytest.raises(BadInput):
            schedules.add("digest", Every("1m"), message)
    with pytest.raises(BadInput, match="not a valid schedule name"):
        schedules.add("", Every("1m"))
    with pytest.raises(BadInput, match="misfire"):
        schedules.add("digest", Every("1m"), misfire="never")
    with pytest.raises(BadInput, match="overlap"):
        schedules.add("digest", Every("1m"), overlap="never")
