"""Schedules that code declares: brought about once, followed through edits and renames, never doubled by a rolling deploy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from astyqueue.errors import BadInput
from astyqueue.schedule import Schedules
from astyqueue.tasks import App
from astyqueue.testing import TimeMachine
from tests.places import Place


class Fleet:
    """Processes of several releases of one program, on one store."""

    def __init__(self, url: str, clock: TimeMachine) -> None:
        self.url = url
        self.clock = clock
        self.apps: list[App] = []

    def start(self, *names: str, every: str = "1m", program: str = "shop") -> App:
        """A process whose release declares these schedules; it is at work from now on."""
        app = App(self.url, name=program, clock=self.clock)
        for name in names:
            self.declare(app, name, every)
        self.apps.append(app)
        app.reconcile(app.open())
        return app

    def declare(self, app: App, name: str, every: str) -> None:
        @app.every(every, name=name)
        def tick() -> None:
            """Do nothing: what counts is that it is sent."""

    def schedules(self) -> dict[str, str]:
        """The schedules there are, and where they come from."""
        return {one.name: str(one.stored.origin) for one in Schedules(self.apps[-1].open()).all()}

    def sent(self) -> list[str]:
        """The tasks of what is due, acked by whoever comes first."""
        with self.apps[0].open().receive(limit=100) as batch:
            return sorted(delivery.headers["task"] for delivery in batch)

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


def test_what_is_declared_is_made_once_however_many_start(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.start("digest")
    assert fleet.schedules() == {"digest": "code"}
    assert fleet.sent() == ["digest"]
    assert fleet.minutes(3) == [["digest"]] * 3


def test_a_start_does_not_move_the_slots(fleet: Fleet) -> None:
    fleet.start("digest")
    fleet.clock.advance("90s")
    fleet.sent()
    fleet.start("digest")
    fleet.clock.advance("30s")
    assert fleet.sent() == ["digest"]


def test_what_is_no_longer_declared_is_removed(fleet: Fleet) -> None:
    fleet.start("digest", "report")
    fleet.start("digest")
    assert fleet.schedules() == {"digest": "code"}


def test_what_people_made_is_left_alone(fleet: Fleet) -> None:
    app = fleet.start("digest")
    from astyqueue.triggers import Every  # noqa: PLC0415 - only here

    Schedules(app.open()).add("by hand", Every("1h"))
    fleet.start("report")
    assert fleet.schedules() == {"report": "code", "by hand": "people"}


def test_programs_look_after_their_own(fleet: Fleet) -> None:
    fleet.start("digest", program="shop")
    fleet.start("report", program="bank")
    fleet.start("refund", program="shop")
    assert set(fleet.schedules()) == {"report", "refund"}


def test_a_rename_in_a_rolling_deploy_fires_each_slot_once(fleet: Fleet) -> None:
    """Old processes work, restart and start among the new ones."""
    fleet.start("old")
    fleet.start("old")
    assert fleet.minutes(2) == [["old"]] * 2
    fleet.start("new")
    found = fleet.minutes(2)
    fleet.start("old")
    found += fleet.minutes(2)
    fleet.start("new")
    found += fleet.minutes(2)
    assert found == [["new"]] * 6
    assert fleet.schedules() == {"new": "code"}


def test_a_rename_takes_over_at_the_slot_that_comes_next(fleet: Fleet) -> None:
    fleet.start("old")
    assert fleet.minutes(1) == [["old"]]
    fleet.clock.advance("30s")
    fleet.start("new", every="1h")
    assert fleet.sent() == []
    assert fleet.minutes(2) == [[], []]


def test_a_roll_back_after_the_deploy_counts_again(fleet: Fleet) -> None:
    fleet.start("old")
    fleet.start("new")
    fleet.clock.advance("1h")
    fleet.start("old")
    assert fleet.schedules() == {"old": "code"}


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
