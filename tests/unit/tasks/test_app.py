"""Apps and tasks: what is declared, checked and sent, without any worker."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from astyqueue.errors import BadInput, BadSetting, NotFound
from astyqueue.tasks.app import App
from astyqueue.tasks.base_task import current_delivery, name_of
from astyqueue.testing import TimeMachine
from tests.support.places import Place


class Person(BaseModel):
    name: str


@pytest.fixture
def app(place: Place, clock: TimeMachine) -> Iterator[App]:
    with App(place.url, clock=clock) as app:
        yield app


def test_defining_tasks_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "work.db"
    app = App(f"sqlite:///{file}")
    app.queue("emails", lease="5m")

    @app.task(queue="emails")
    def welcome() -> None: ...

    assert not file.exists()
    with app:
        welcome.send()
        assert file.exists()


class Sweep:
    """A generator function in another form."""

    __name__ = __qualname__ = "Sweep"

    def __call__(self) -> Iterator[int]:
        yield 1


def sweep(count: int) -> Iterator[int]:
    yield count


async def sweep_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("function", [sweep, sweep_later, functools.partial(sweep, 3), Sweep()])
def test_a_generator_is_refused_because_calling_it_does_nothing(app: App, function: Callable[[], object]) -> None:
    with pytest.raises(BadInput, match="is a generator: calling it does no work"):
        app.task(name="sweep")(function)
    with pytest.raises(BadInput, match="is a generator: calling it does no work"):
        app.every("1m", name="sweep")(function)
    assert app.tasks == {}


def test_without_a_url_the_environment_says_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTYQUEUE_URL", f"sqlite:///{tmp_path}/work.db")
    with App() as app:
        app.open()
    assert (tmp_path / "work.db").exists()


def test_an_app_without_a_store_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASTYQUEUE_URL", raising=False)
    with pytest.raises(BadSetting, match=r"this app has no store.*ASTYQUEUE_URL"):
        App().open()


def test_an_app_says_in_a_debugger_what_it_has_and_no_password() -> None:
    app = App("cassandra://user:secret@db1/shop", name="shop")
    assert repr(app) == "<App shop: 0 tasks for default, not connected>"
    app.task(queue="mail")(print_it)
    assert repr(app) == "<App shop: 1 task for mail, not connected>"
    app.close()
    assert repr(app) == "<App shop: 1 task for mail, closed>"
    with App("memory://") as opened:
        opened.open()
        assert repr(opened) == "<App app: 0 tasks for default, <Connection to <MemoryStore open>>>"


def print_it(text: str) -> None: ...


def test_a_call_becomes_a_message_that_names_its_task(app: App) -> None:
    @app.task(queue="emails", name="welcome", max_attempts=7)
    def welcome(address: str, lang: str = "en") -> None: ...

    sent = welcome.send("ada@example.org", lang="fr")
    [delivery] = app.open("emails").receive()
    assert delivery.message_id == sent.id
    assert delivery.headers == {"task": "welcome"}
    assert delivery.body == {"args": ["ada@example.org"], "kwargs": {"lang": "fr"}}
    assert delivery.attempts_allowed == 7


def test_a_task_that_names_no_queue_is_sent_to_the_default_one(app: App) -> None:
    @app.task
    def welcome() -> None: ...

    assert welcome.send().id.queue == "default"


def test_options_of_one_message_beat_those_of_its_task(app: App, clock: TimeMachine) -> None:
    @app.task(name="welcome", max_attempts=7)
    def welcome(address: str) -> None: ...

    welcome.using(delay="10m", key="welcome:ada", headers={"trace": "1"}, max_attempts=2).send("ada@example.org")
    assert not app.open().receive()
    clock.advance("10m")
    [delivery] = app.open().receive()
    assert (delivery.key, delivery.attempts_allowed) == ("welcome:ada", 2)
    assert delivery.headers == {"trace": "1", "task": "welcome"}


@pytest.mark.every_store
def test_a_task_is_sent_once_for_a_unique_key(app: App) -> None:
    @app.task
    def welcome(address: str) -> None: ...

    once = welcome.using(key="welcome:ada", unique="keep")
    first = once.send("ada@example.org")
    assert (once.send("ada@example.org").id, once.send("ada@example.org").new) == (first.id, False)
    assert welcome.using(key="welcome:ada", unique="reject").send_many([welcome.call("ada")]).taken == {0: first.id}


@pytest.mark.every_store
def test_many_calls_are_sent_in_their_order(app: App) -> None:
    @app.task
    def welcome(address: str, lang: str = "en") -> None: ...

    report = welcome.using(headers={"trace": "1"}).send_many([welcome.call("ada"), welcome.call("bob", lang="fr")])
    deliveries = app.open().receive(10)
    assert report.ids == [delivery.message_id for delivery in deliveries]
    assert [delivery.body for delivery in deliveries] == [
        {"args": ["ada"], "kwargs": {}},
        {"args": ["bob"], "kwargs": {"lang": "fr"}},
    ]


def test_a_call_is_sent_with_its_own_task(app: App) -> None:
    @app.task(name="welcome")
    def welcome(address: str) -> None: ...

    @app.task(name="goodbye")
    def goodbye(address: str) -> None: ...

    with pytest.raises(BadInput, match="a call of task goodbye was given to task welcome"):
        welcome.send_many([goodbye.call("ada")])


@pytest.mark.parametrize("single", ["ada", b"ada", {"address": "ada"}, ["ada"], 5])
def test_what_is_not_several_calls_is_refused_before_any_is_sent(app: App, single: Any) -> None:  # noqa: ANN401 - wrong types are the point
    @app.task(name="welcome")
    def welcome(address: str) -> None: ...

    with pytest.raises(BadInput, match=r"several calls of task welcome, but .*one .*: give a list .* welcome.call"):
        welcome.send_many(single)
    assert app.open().counts().total == 0


def test_one_call_in_the_place_of_several_is_refused(app: App) -> None:
    @app.task(name="welcome")
    def welcome(address: str) -> None: ...

    with pytest.raises(BadInput, match=r"one Call was given: .* or send one by send"):
        welcome.send_many(welcome.call("ada"))  # type: ignore[arg-type]  # the mistake this is about


def test_arguments_that_the_task_does_not_take_are_refused_where_they_are_sent(app: App) -> None:
    @app.task(name="welcome")
    def welcome(address: str, lang: str = "en") -> None: ...

    with pytest.raises(TypeError) as raised:
        welcome.send()  # type: ignore[call-arg]  # that is the point
    assert (
        str(raised.value)
        == "task welcome was not sent: missing a required argument: 'address'; it takes (address, lang='en')"
    )
    assert not app.open().receive()


def test_an_argument_without_a_json_form_is_named(app: App) -> None:
    @app.task(name="welcome")
    def welcome(address: str, when: object) -> None: ...

    with pytest.raises(
        BadInput,
        match=r"task welcome was not sent: argument when\['first'\] is of type datetime, which has no JSON form",
    ):
        welcome.send("ada", {"first": datetime(2026, 1, 1, tzinfo=UTC)})


def test_an_error_about_an_argument_does_not_repeat_it(app: App) -> None:
    @app.task(name="welcome")
    def welcome(card: object) -> None: ...

    with pytest.raises(BadInput) as refused:
        welcome.send(b"4111-1111")
    assert str(refused.value).startswith("task welcome was not sent: argument card is of type bytes, which has no JSON")
    assert "4111" not in str(refused.value)


def test_arguments_that_are_too_long_together_are_refused(app: App) -> None:
    @app.task(name="welcome")
    def welcome(*texts: str) -> None: ...

    with pytest.raises(BadInput, match="bytes as JSON"):
        welcome.send(*["x" * 1000] * 1100)

    @app.task(name="compare")
    def compare(one: str, other: str) -> None: ...

    with pytest.raises(BadInput, match="body is 1200028 bytes as JSON, and a queue takes 1048576"):
        compare.send("x" * 600_000, "x" * 600_000)


def test_models_are_taken_and_arrive_as_plain_data(app: App) -> None:
    @app.task
    def welcome(person: Person) -> None: ...

    welcome.send(Person(name="Ada"))
    [delivery] = app.open().receive()
    assert delivery.body == {"args": [{"name": "Ada"}], "kwargs": {}}


def test_the_header_that_names_the_task_is_taken(app: App) -> None:
    @app.task
    def welcome() -> None: ...

    with pytest.raises(BadInput, match="'task'"):
        welcome.using(headers={"task": "other"})


def test_calling_a_task_runs_it_here(app: App) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    assert double(21) == 42
    assert not app.open().receive()


def test_calling_an_async_task_gives_what_is_to_be_awaited(app: App) -> None:
    @app.task
    async def double(number: int) -> int:
        return 2 * number

    assert asyncio.run(double(21)) == 42


def test_a_task_looks_like_its_function(app: App) -> None:
    @app.task
    def welcome(address: str) -> None:
        """Greet somebody."""

    assert (welcome.__name__, welcome.__doc__) == ("welcome", "Greet somebody.")


def test_two_tasks_of_one_name_are_refused(app: App) -> None:
    @app.task(name="welcome")
    def one() -> None: ...

    with pytest.raises(BadInput, match="two tasks of this app are called 'welcome'"):

        @app.task(name="welcome")
        def other() -> None: ...


@pytest.mark.parametrize("options", [{"timeout": "soon"}, {"timeout": 0}, {"max_attempts": 0}, {"queue": "a queue"}])
def test_options_that_make_no_sense_are_refused_where_they_are_written(app: App, options: dict[str, str]) -> None:
    with pytest.raises(BadInput):
        app.task(**options)(lambda: None)  # type: ignore[call-overload]  # that is the point


def test_settings_that_no_queue_has_are_refused_where_they_are_written(app: App) -> None:
    with pytest.raises(BadSetting, match="leese"):
        app.queue("emails", leese="5m")


@pytest.mark.parametrize("first", [{}, {"lease": "5m"}])
@pytest.mark.parametrize("second", [{}, {"lease": "5m"}, {"lease": "6m"}])
def test_a_queue_is_declared_once(app: App, first: dict[str, str], second: dict[str, str]) -> None:
    app.task(queue="emails")(lambda: None)
    app.queue("emails", **first)
    with pytest.raises(BadInput, match="queue 'emails' was declared before: declare it once"):
        app.queue("emails", **second)


def test_declared_settings_are_those_of_a_new_queue(app: App) -> None:
    app.queue("emails", lease="5m", max_attempts=3)
    behaviour = app.open("emails").settings.behaviour
    assert (behaviour.lease_us, behaviour.max_attempts) == (300_000_000, 3)


def test_there_is_no_current_delivery_where_no_message_is_worked_on() -> None:
    with pytest.raises(NotFound, match="no task runs for a message here"):
        current_delivery()


SOURCE = """
from astyqueue.tasks.base_task import name_of


def welcome(): ...


print(name_of(welcome))
"""


def started(folder: Path, *arguments: str) -> str:
    """What a process that was started so, in this folder, prints."""
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the package `shop`, which has the module `mail`."""
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mail.py").write_text(SOURCE)
    return tmp_path


def test_a_function_is_named_by_its_module_and_its_place_in_it() -> None:
    assert name_of(started) == f"{__name__}.started"


def test_a_module_that_was_started_goes_by_the_name_it_is_imported_by(folder: Path) -> None:
    assert started(folder, "-m", "shop.mail") == "shop.mail.welcome"


def test_a_script_goes_by_its_path_from_here(folder: Path) -> None:
    assert started(folder, "shop/mail.py") == "shop.mail.welcome"


def test_a_script_that_lies_elsewhere_goes_by_its_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert started(elsewhere, str(folder / "shop" / "mail.py")) == "mail.welcome"


def test_what_was_typed_in_goes_by_main(folder: Path) -> None:
    assert started(folder, "-c", SOURCE) == "__main__.welcome"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"queue": "reports"}, "queue='reports', and the task has 'default'"),
        ({"max_attempts": 1}, "max_attempts=1, and the task has None"),
        ({"timeout": "5m"}, "timeout='5m', and the task has None"),
        ({"kind": "process"}, "kind='process', and the task has None"),
        ({"name": "digest"}, "name='digest', and the task has 'print_it'"),
    ],
)
def test_a_schedule_of_a_task_refuses_options_that_the_task_does_not_have(
    app: App, options: dict[str, Any], problem: str
) -> None:
    task = app.task(name="print_it")(print_it)
    with pytest.raises(BadInput, match=problem):
        app.every("5m", arguments={"text": "5 minutes are over"}, **options)(task)
    assert list(app.core.schedules.of("default")) == []


def test_schedules_of_one_task_may_each_name_the_options_that_it_has(app: App) -> None:
    @app.every("1h", queue="feeds", schedule="hourly")
    @app.every("5m", queue="feeds", schedule="often")
    def refresh() -> None: ...

    assert list(app.core.schedules.of("feeds")) == ["often", "hourly"]
