"""Schedules that code declares: created once, followed through edits and renames, never removed by an older release."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from astyqueue import Message, connect, ids
from astyqueue.errors import BadInput, BadSetting
from astyqueue.model.envelope import FORMAT
from astyqueue.model.schedule import Policies
from astyqueue.protocol.steps import Commit, Steps, perform
from astyqueue.schedules import Declared, Reconciled, Release, Schedules, reconcile
from astyqueue.store import Batch, Name, Put, Slice, Store
from astyqueue.tasks import App
from astyqueue.testing import TimeMachine
from astyqueue.triggers import Cron, Every
from astyqueue.units import SECOND
from tests.support.places import Place

HOUR = 3_600 * SECOND


class Fleet:
    """Processes of several releases of one program, on one store."""

    def __init__(self, url: str, clock: TimeMachine) -> None:
        self.url = url
        self.clock = clock
        self.apps: list[App] = []

    def start(self, *names: str, every: str = "1m", program: str = "shop", release: int | str | None = None) -> App:
        """A process whose release declares these schedules; it is at work from now on."""
        app = self.app(*names, every=every, program=program, release=release)
        app.reconcile(app.open())
        return app

    def app(self, *names: str, every: str = "1m", program: str = "shop", release: int | str | None = None) -> App:
        """A program that declares these schedules; it has not started yet."""
        app = App(self.url, name=program, release=release, clock=self.clock)
        for name in names:
            self.declare(app, name, every)
        self.apps.append(app)
        return app

    def declare(self, app: App, name: str, every: str) -> None:
        @app.every(every, name=name)
        def tick() -> None:
            """Do nothing: what counts is that it is sent."""

    def schedules(self) -> dict[str, str]:
        """The schedules there are, and where they come from."""
        return {one.name: str(one.stored.origin) for one in Schedules(self.apps[-1].open()).all()}

    def sent(self) -> list[str]:
        """The tasks of what is due, acked by the process that comes first, one row after the other."""
        found: list[str] = []
        while True:
            with self.apps[0].open().receive(limit=100) as batch:
                tasks = [delivery.headers["task"] for delivery in batch]
            if not tasks:
                return sorted(found)
            found += tasks

    def minutes(self, count: int) -> list[list[str]]:
        """What is sent in each of the next minutes."""
        found: list[list[str]] = []
        for _ in range(count):
            self.clock.advance("1m")
            found.append(self.sent())
        return found


@pytest.fixture
def fleet(place: Place, clock: TimeMachine) -> Iterator[Fleet]:
    fleet = Fleet(place.url, clock)
    yield fleet
    for app in fleet.apps:
        app.close()


@pytest.mark.every_store
def test_what_is_declared_is_made_once_however_many_start(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.start("digest")
    assert fleet.schedules() == {"digest": "code"}
    assert fleet.sent() == ["digest"]
    assert fleet.minutes(3) == [["digest"]] * 3


def test_a_start_does_not_move_the_occurrences(fleet: Fleet) -> None:
    fleet.start("digest")
    fleet.clock.advance("90s")
    fleet.sent()
    fleet.start("digest")
    fleet.clock.advance("30s")
    assert fleet.sent() == ["digest"]


@pytest.mark.every_store
def test_a_later_release_removes_what_it_no_longer_declares(fleet: Fleet) -> None:
    fleet.start("digest", "report", release=1)
    fleet.start("digest", release=2)
    assert fleet.schedules() == {"digest": "code"}


def test_a_release_that_says_no_order_removes_nothing_and_says_what_is_left(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.start("digest", "report")
    fleet.start("digest", "refund")
    assert set(fleet.schedules()) == {"digest", "report", "refund"}
    assert "undeclared_schedules_fire queue=default program=shop schedules=report" in caplog.text
    assert "astyqueue schedules reconcile APP" in caplog.text
    assert "digest" not in caplog.text


@pytest.mark.parametrize("releases", [(None, None), (1, 2), ("1.9.3", "1.10.0")])
@pytest.mark.parametrize("later", ["20m", "5h", "90d"])
def test_an_old_process_that_starts_beside_a_canary_takes_nothing_away(
    fleet: Fleet, releases: tuple[int | str | None, int | str | None], later: str, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = releases
    fleet.start("digest", release=old)
    fleet.start("digest", "refund", every="5m", release=new)
    fleet.clock.advance(later)
    app = fleet.start("digest", release=old)
    assert set(fleet.schedules()) == {"digest", "refund"}
    assert Schedules(app.open()).get("digest").trigger == Every("5m").document()
    assert "schedules_unchanged queue=default program=shop" in caplog.text


def test_a_hotfix_of_the_old_line_takes_nothing_from_a_canary(fleet: Fleet) -> None:
    """It was never seen before, and is older all the same: without an order no process knows, so nothing is removed."""
    fleet.start("digest")
    fleet.start("digest", "refund")
    fleet.start("digest", "audit")
    assert set(fleet.schedules()) == {"digest", "refund", "audit"}


def test_a_hotfix_of_the_old_line_that_says_its_order_changes_nothing(fleet: Fleet) -> None:
    fleet.start("digest", release="1.0.0")
    fleet.start("digest", "refund", release="2.0.0")
    fleet.start("digest", "audit", release="1.0.1")
    fleet.start("audit")
    assert set(fleet.schedules()) == {"digest", "refund"}


def carried_out(steps: Steps[Reconciled], store: Store, *, after_commits: Callable[[], None]) -> Reconciled:
    """What the steps come to if something happens right after each of their commits."""
    answer: object = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as ended:
            found: Reconciled = ended.value
            return found
        answer = perform(request, store)
        if isinstance(request, Commit):
            after_commits()


def test_a_release_that_a_later_one_overtakes_in_the_middle_removes_nothing_more(fleet: Fleet) -> None:
    app = fleet.start("digest", release=1)
    queue = app.open()
    steps = reconcile(queue.core, Release("shop", {"report": Declared(Every("1m"), Message(None))}, (2,)))
    overtakers = iter(["once"])

    def overtake() -> None:
        if next(overtakers, None):
            fleet.start("digest", "refund", release=3)

    assert carried_out(steps, queue.store, after_commits=overtake) == Reconciled(current=False)
    assert set(fleet.schedules()) == {"digest", "refund"}


def test_a_release_whose_number_was_not_raised_changes_nothing(fleet: Fleet) -> None:
    fleet.start("digest", release=7)
    fleet.start("report", release=7)
    assert set(fleet.schedules()) == {"digest"}


def test_the_first_release_that_says_its_order_comes_after_all_that_say_none(fleet: Fleet) -> None:
    fleet.start("digest")
    fleet.start("report")
    fleet.start("refund", release=1)
    fleet.start("digest")
    assert set(fleet.schedules()) == {"refund"}


def test_what_people_made_is_left_alone(fleet: Fleet) -> None:
    app = fleet.start("digest")
    Schedules(app.open()).add("by hand", Every("1h"))
    fleet.start("report", release=1)
    assert fleet.schedules() == {"report": "code", "by hand": "people"}


def test_programs_look_after_their_own(fleet: Fleet) -> None:
    fleet.start("digest", program="shop", release=1)
    fleet.start("report", program="bank", release=1)
    fleet.start("refund", program="shop", release=2)
    assert set(fleet.schedules()) == {"report", "refund"}


def test_a_rename_in_a_rolling_deploy_fires_each_occurrence_once(fleet: Fleet) -> None:
    """Old processes work, restart and start among the new ones."""
    fleet.start("old", release=1)
    fleet.start("old", release=1)
    assert fleet.minutes(2) == [["old"]] * 2
    fleet.start("new", release=2)
    found = fleet.minutes(2)
    fleet.start("old", release=1)
    found += fleet.minutes(2)
    fleet.start("new", release=2)
    found += fleet.minutes(2)
    assert found == [["new"]] * 6
    assert fleet.schedules() == {"new": "code"}


def test_a_rename_takes_over_at_the_occurrence_that_comes_next(fleet: Fleet) -> None:
    fleet.start("old", release=1)
    assert fleet.minutes(1) == [["old"]]
    fleet.clock.advance("30s")
    fleet.start("new", every="1h", release=2)
    assert fleet.sent() == []
    assert fleet.minutes(2) == [[], []]


@pytest.mark.parametrize("declared", [("new",), ("new", "other")])
def test_occurrences_between_the_last_worker_and_a_release_with_another_name_are_fired_once(
    fleet: Fleet, declared: tuple[str, ...]
) -> None:
    def start(release: int, *names: str) -> App:
        app = fleet.app(release=release)
        for name in names:
            app.cron("0 * * * *", name=name, misfire="all")(lambda: None)
        app.reconcile(app.open())
        return app

    fleet.clock.set((fleet.clock.now() // HOUR + 1) * HOUR)
    start(1, "old")
    assert fleet.sent() == ["old"]
    fleet.clock.advance("3h")
    schedules = Schedules(start(2, *declared).open())
    assert fleet.sent() == ["new"] * 3
    assert [one.stored.fired for one in schedules.all()] == [3, *[0] * (len(declared) - 1)]
    fleet.clock.advance("1h")
    assert fleet.sent() == sorted(declared)


def test_a_rename_keeps_the_times_of_an_interval_without_a_start(fleet: Fleet) -> None:
    fleet.start("old", every="1h", release=1)
    assert fleet.sent() == ["old"]
    fleet.clock.advance("50m")
    fleet.start("new", every="1h", release=2)
    assert fleet.sent() == []
    fleet.clock.advance("10m")
    assert fleet.sent() == ["new"]


def test_a_rename_of_an_overdue_interval_fires_all_its_occurrences_and_goes_on_at_their_times(fleet: Fleet) -> None:
    def start(name: str, release: int) -> None:
        app = fleet.app(release=release)
        app.every("1h", name=name, misfire="all")(lambda: None)
        app.reconcile(app.open())

    start("old", 1)
    assert fleet.sent() == ["old"]
    fleet.clock.advance("210m")
    start("new", 2)
    assert fleet.sent() == ["new"] * 3
    fleet.clock.advance("29m")
    assert fleet.sent() == []
    fleet.clock.advance("1m")
    assert fleet.sent() == ["new"]


def test_a_rename_leaves_the_rest_of_a_count(fleet: Fleet) -> None:
    def start(name: str, release: int) -> None:
        app = fleet.app(release=release)
        app.scheduled(Every("1m", count=5), name=name)(lambda: None)
        app.reconcile(app.open())

    start("old", 1)
    assert [fleet.sent(), *fleet.minutes(1)] == [["old"], ["old"]]
    start("new", 2)
    assert fleet.minutes(5) == [["new"], ["new"], ["new"], [], []]


def test_a_paused_schedule_leaves_no_occurrences_to_one_of_another_name(fleet: Fleet) -> None:
    app = fleet.start("old", every="1h", release=1)
    assert fleet.sent() == ["old"]
    Schedules(app.open()).pause("old")
    fleet.clock.advance("3h")
    fleet.start("new", every="1h", release=2)
    assert fleet.sent() == []


def test_a_rename_without_an_order_fires_both_until_the_old_one_is_pruned(fleet: Fleet) -> None:
    fleet.start("old")
    assert fleet.minutes(1) == [["old"]]
    app = fleet.start("new")
    assert fleet.minutes(1) == [["new", "old"]]
    assert app.reconcile_all(prune=True)["default"].removed == ["old"]
    assert fleet.minutes(2) == [["new"]] * 2


@pytest.mark.parametrize("releases", [(None, None), (1, 2)])
def test_a_roll_back_counts_when_a_person_says_so(fleet: Fleet, releases: tuple[int | None, int | None]) -> None:
    fleet.start("digest", release=releases[0])
    fleet.start("digest", "refund", every="5m", release=releases[1])
    old = fleet.app("digest", release=releases[0])
    assert old.reconcile_all(prune=True, dry_run=True)["default"] == Reconciled(
        current=True, saved=["digest"], removed=["refund"]
    )
    assert set(fleet.schedules()) == {"digest", "refund"}
    assert old.reconcile_all(prune=True)["default"] == Reconciled(current=True, saved=["digest"], removed=["refund"])
    assert old.reconcile_all(prune=True)["default"] == Reconciled(current=True)
    assert fleet.schedules() == {"digest": "code"}
    fleet.start("digest", release=releases[0])
    assert fleet.schedules() == {"digest": "code"}


def test_a_roll_back_that_is_a_deploy_of_its_own_needs_nobody_to_say_so(fleet: Fleet) -> None:
    fleet.start("digest", release=1)
    fleet.start("digest", "refund", release=2)
    fleet.start("digest", release=3)
    assert fleet.schedules() == {"digest": "code"}


def test_a_person_may_have_declarations_count_and_prune_nothing(fleet: Fleet) -> None:
    fleet.start("digest", "refund")
    app = fleet.app("digest", "report")
    assert app.reconcile_all()["default"] == Reconciled(current=True, saved=["report"], stale=["refund"])
    assert set(fleet.schedules()) == {"digest", "refund", "report"}


def test_what_is_declared_for_no_task_of_a_queue_any_more_is_pruned_too(fleet: Fleet) -> None:
    feeds = fleet.app()
    feeds.every("1h", name="refresh", queue="feeds")(print)
    feeds.reconcile(feeds.open("feeds"))
    assert fleet.app("digest").reconcile_all(prune=True)["feeds"].removed == ["refresh"]


def test_a_dry_run_makes_no_queue(fleet: Fleet) -> None:
    app = fleet.app("digest")
    with connect(fleet.url) as connection:
        assert app.reconcile_all(dry_run=True) == {"default": Reconciled(current=True, saved=["digest"])}
        assert connection.queues() == []


def test_a_release_is_known_by_what_it_declares_in_every_version_of_astyqueue(place: Place, clock: TimeMachine) -> None:
    """If the next version made another number, each program would be a new release to it, and an old one to this."""
    with connect(place.url, clock=clock) as connection:
        queue = connection.queue("emails")
        plain = Declared(Every("5m"), Message({"to": "ada"}))
        full = Declared(
            Cron("0 9 * * *", "Europe/Paris"),
            Message(None, key="digest", headers={"b": "1", "a": "2"}, expires="1h", lease="5m", max_attempts=3),
            Policies.read("within 1h", "queue one", "pause"),
        )
        queue.run(reconcile(queue.core, Release("shop", {"plain": plain, "full": full}, (1, 10))))
        [[column]] = queue.store.read((Slice("emails:declared", 0),))
    assert column.value.startswith(b'\x01["1.10:02b64383b9f41c3b"')


def test_the_record_of_a_version_before_is_read(place: Place, clock: TimeMachine) -> None:
    """It says when a release was first seen, and no order."""
    app = App(place.url, name="shop", clock=clock)
    with app:
        queue = app.open()
        name = Name(0, 0, ids.of_text("shop"), 0)
        value = FORMAT + b'["0123456789abcdef",1795334952618621,[],["digest"],[]]'
        queue.store.commit(Batch("default:declared", (Put(name, value),)), ())
        Schedules(queue).add("digest", Every("1h"))
        assert app.reconcile(queue) == Reconciled(current=True)
        assert [one.name for one in Schedules(queue).all()] == ["digest"]


@pytest.mark.parametrize("release", ["a1b2c3", "v2", "1..2", "1.x", -1, 1.5, True])
def test_what_has_no_order_is_refused_as_a_release(release: object) -> None:
    with pytest.raises(BadSetting, match="has no order: give whole numbers that rise"):
        App("memory://", release=release)  # type: ignore[arg-type]  # that is what is tried


def test_the_environment_may_say_which_release_this_is(
    place: Place, clock: TimeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(place.url, clock)
    monkeypatch.setenv("ASTYQUEUE_RELEASE", "2")
    fleet.start("digest").close()
    monkeypatch.setenv("ASTYQUEUE_RELEASE", "10")
    with fleet.start("report"):
        assert set(fleet.schedules()) == {"report"}


def test_an_edit_is_followed(fleet: Fleet) -> None:
    fleet.start("digest")
    fleet.minutes(1)
    fleet.start("digest", every="10m")
    fleet.sent()
    assert fleet.minutes(10).count(["digest"]) == 1


def test_two_schedules_of_one_name_are_refused() -> None:
    app = App("memory://")

    @app.cron("0 9 * * *", "Europe/Paris")
    @app.every("1h", schedule="hourly")
    def tick() -> None:
        """Do nothing."""

    with pytest.raises(BadInput, match="two schedules"):
        app.every("2h", schedule="hourly")(tick)
    with pytest.raises(TypeError):
        app.every("2h", schedule="other", arguments={"unknown": 1})(tick)


def test_a_worker_brings_about_and_runs_what_is_declared(place: Place, clock: TimeMachine) -> None:
    import threading  # noqa: PLC0415 - only here

    ran = threading.Event()
    app = App(place.url, clock=clock)

    @app.every("1h", arguments={"text": "hello"})
    def tick(text: str) -> None:
        assert text == "hello"
        ran.set()

    with app, app.worker(concurrency=1):
        assert ran.wait(20)


def test_a_worker_without_schedules_neither_makes_nor_fires_them(place: Place, clock: TimeMachine) -> None:
    app = App(place.url, clock=clock)

    @app.every("1h")
    def tick() -> None:
        """Do nothing."""

    with app:
        app.worker(schedules=False)
        assert Schedules(app.open()).all() == []
        assert not app.open().core.claimer.firings.on
