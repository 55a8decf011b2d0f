"""`astyqueue schedules`: everything people do with schedules, for people and for programs."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from astyqueue.queue.connection import Connection
from astyqueue.schedules import Scheduled, Schedules
from tests.unit.cli.conftest import Shell
from tests.unit.schedules.test_unreadable_schedules import StoredSchedule


@pytest.mark.every_store
def test_a_schedule_is_added_listed_and_shown(shell: Shell, connection: Connection) -> None:
    assert connection.queues() == ["emails"]
    assert shell("schedules", "list", "emails").stdout == "queue emails has no schedule\n"
    added = (
        "schedules",
        "add",
        "emails",
        "digest",
        "--cron",
        "0 9 * * *",
        "--zone",
        "Europe/Paris",
        "--body",
        '{"to": "ada"}',
    )
    assert shell(*added, "--overlap", "skip").stdout.startswith("schedule digest of queue emails: next 2")
    [listed] = shell.json("schedules", "list", "emails")
    [shown] = shell.json("schedules", "show", "emails", "digest")
    assert listed == shown
    assert (shown["name"], shown["body"], shown["overlap"], shown["misfire"]) == (
        "digest",
        {"to": "ada"},
        "skip",
        "once",
    )
    assert shell("schedules", "list", "emails").stdout.splitlines()[1].startswith("digest")
    assert "already" in shell.error(*added, code=2)
    assert shell.json(*added, "--replace")[0]["overlap"] == "allow"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cron", "0 9 * * mon-fri", "--zone", "Europe/Paris"], "cron 0 9 * * mon-fri (Europe/Paris)"),
        (["--every", "90m", "--count", "3"], "every 1h30m, 3 times"),
        (["--at", "2999-01-01T00:00:00Z"], "once 2999-01-01T00:00:00Z"),
    ],
)
def test_triggers_are_reported_as_they_are_written(
    shell: Shell, connection: Connection, options: list[str], told: str
) -> None:
    assert connection
    shell("schedules", "add", "emails", "digest", *options, "--body", '"x"')
    assert shell("schedules", "list", "emails").stdout.splitlines()[1].endswith(told)
    shown = dict(line.split(maxsplit=1) for line in shell("schedules", "show", "emails", "digest").stdout.splitlines())
    assert (shown["trigger"], shown["body"]) == (told, '"x"')
    assert shown["next"].split()[0].endswith("Z")


def test_the_last_firings_are_a_table(shell: Shell, connection: Connection) -> None:
    assert connection
    shell("schedules", "add", "emails", "digest", "--every", "1h")
    [ran] = shell.json("schedules", "run", "emails", "digest")
    *_, titles, firing = shell("schedules", "show", "emails", "digest").stdout.splitlines()
    assert titles.split() == ["occurrence", "occurrences", "at", "message", "why"]
    assert ran["message"] in firing


def test_its_next_occurrences_are_listed(shell: Shell, connection: Connection) -> None:
    assert connection
    shell("schedules", "add", "emails", "digest", "--cron", "0 9 * * *")
    occurrences = shell.json("schedules", "next", "emails", "digest", "--count", "3")
    assert [occurrence["occurrence"][11:] for occurrence in occurrences] == ["09:00:00.000000Z"] * 3


@pytest.mark.every_store
def test_it_is_paused_resumed_run_backfilled_and_deleted(shell: Shell, connection: Connection) -> None:
    shell(
        "schedules",
        "add",
        "emails",
        "digest",
        "--cron",
        "0 9 * * *",
        "--task",
        "shop.digest",
        "--body",
        '["ada"]',
        "--key",
        "k",
    )
    assert shell.json("schedules", "pause", "emails", "digest", "--why", "holidays")[0]["paused"] == "holidays"
    assert shell.json("schedules", "resume", "emails", "digest")[0]["paused"] is None
    [ran] = shell.json("schedules", "run", "emails", "digest")
    queue = connection.queue("emails")
    found = queue.get(ran["message"])
    assert found.body == {"args": ["ada"], "kwargs": {}}
    range_ = ("--since", "2026-01-01T00:00:00Z", "--until", "2026-01-10T00:00:00Z")
    assert shell.json("schedules", "backfill", "emails", "digest", *range_) == [{"name": "digest", "sent": 9}]
    assert queue.counts().total == 10
    wrong = ("--since", "2026-01-10T00:00:00Z", "--until", "2026-01-01T00:00:00Z")
    assert "before it begins" in shell.error("schedules", "backfill", "emails", "digest", *wrong, code=2)
    assert shell("schedules", "delete", "emails", "digest").stdout == "deleted schedule digest of queue emails\n"


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("verb", ["show", "pause", "resume", "run", "backfill", "next", "delete"])
def test_an_unknown_schedule_is_told_with_its_queue(shell: Shell, verb: str) -> None:
    range_ = ("--since", "2h", "--until", "1h") if verb == "backfill" else ()
    told = shell.error("schedules", verb, "emails", "d4", *range_, code=1)
    assert told == "Error: queue 'emails' has no schedule 'd4'"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "no trigger, or more than one"),
        (["--every", "5m", "--at", "2030-01-01T00:00:00Z"], "no trigger, or more than one"),
        (["--cron", "61 * * * *"], "minute"),
        (["--every", "5m", "--misfire", "never"], "misfire is"),
        (
            ["--every", "5m", "--overlap", "never"],
            "overlap is one of allow, skip, queue one, queue all, cancel running, not 'never'",
        ),
        (["--every", "5m", "--after-failure", "never"], "after_failure is one of go on, pause, not 'never'"),
        (["--every", "5m", "--body", "{"], "not JSON"),
        (["--every", "5m", "--zone", "Nowhere/None"], "--zone needs --cron"),
        (["--at", "2030-01-01T00:00:00Z", "--zone", "Europe/Paris"], "--zone needs --cron"),
        (["--at", "2030-01-01T00:00:00Z", "--count", "3"], "--count needs --cron or --every: --at has one occurrence"),
        (["--cron", "0 9 * * *", "--zone", "Nowhere/None"], "Nowhere/None"),
        (
            ["--at", "2020-01-01T00:00:00Z"],
            "schedule 'digest' would never send anything: 2020-01-01T00:00:00Z has passed: give a later moment",
        ),
        (["--every", "5m", "--task", "welcome", "--body", "7"], "invalid task arguments"),
        (["--every", "5m", "--task", ""], "--task"),
        (["--every", "5m", "--key", ""], "key ''"),
        (["--every", "5m", "--priority", "7"], "has one priority, 0"),
    ],
)
def test_what_makes_no_schedule_is_refused(shell: Shell, connection: Connection, options: list[str], told: str) -> None:
    assert connection
    assert told in shell.error("schedules", "add", "emails", "digest", *options, code=2)


SHOP = """
import os
from astyqueue import App

app = App(name="shop")
for name in os.environ["SHOP_DECLARES"].split():
    app.every("1h", name=name, queue="emails")(lambda: None)
"""


@pytest.fixture
def reconcile(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Reconciles the schedules of these names; what is printed."""

    def reconciled(declares: str, *options: str) -> str:
        monkeypatch.setenv("SHOP_DECLARES", declares)
        module = f"shop_{secrets.token_hex(4)}"
        folder.joinpath(f"{module}.py").write_text(SHOP)
        return shell("schedules", "reconcile", module, *options).stdout

    return reconciled


@pytest.mark.every_store
def test_the_declarations_of_an_app_are_made_to_count_and_others_pruned(
    shell: Shell, connection: Connection, reconcile: Callable[..., str]
) -> None:
    assert connection.queues() == ["emails"]
    shell("schedules", "add", "emails", "digest", "--every", "1h")
    assert (
        reconcile("refund report") == "saved schedule refund of queue emails\nsaved schedule report of queue emails\n"
    )
    left = "left (--prune removes it) schedule refund of queue emails\n"
    assert reconcile("report") == left
    would = '{"queue": "emails", "schedule": "refund", "did": "removed", "dry_run": true}\n'
    assert reconcile("report", "--prune", "--dry-run", "--json") == would
    assert reconcile("report", "--prune", "--dry-run") == "would remove schedule refund of queue emails\n"
    assert reconcile("report", "--prune") == "removed schedule refund of queue emails\n"
    assert reconcile("report", "--prune") == "all schedules are as the app declares them\n"
    assert [one["name"] for one in shell.json("schedules", "list", "emails")] == ["digest", "report"]


def test_the_declarations_of_an_app_count_in_the_store_that_is_named(
    shell: Shell, connection: Connection, reconcile: Callable[..., str], folder: Path
) -> None:
    assert connection.queues() == ["emails"]
    other = f"sqlite:///{folder}/other.db"
    assert reconcile("report", "--url", other) == "saved schedule report of queue emails\n"
    assert [one["name"] for one in shell.json("schedules", "list", "emails", "--url", other)] == ["report"]
    assert shell("schedules", "list", "emails").stdout == "queue emails has no schedule\n"


def test_a_schedule_that_cannot_be_read_is_not_reported_as_the_app_declares_it(
    connection: Connection, reconcile: Callable[..., str]
) -> None:
    reconcile("refund report")
    stored = StoredSchedule(connection.queue("emails"), "refund")
    stored.damage()
    assert (
        reconcile("report", "--prune", "--dry-run")
        == "would leave (it cannot be read) schedule refund of queue emails\n"
    )
    assert reconcile("report", "--prune") == "left (it cannot be read) schedule refund of queue emails\n"
    stored.repair()
    assert reconcile("report", "--prune") == "removed schedule refund of queue emails\n"


def test_a_schedule_that_cannot_be_read_is_deleted(
    shell: Shell, connection: Connection, reconcile: Callable[..., str]
) -> None:
    reconcile("report")
    StoredSchedule(connection.queue("emails"), "report").damage()
    assert shell("schedules", "delete", "emails", "report").stdout == "deleted schedule report of queue emails\n"
    assert "has no schedule 'report'" in shell.error("schedules", "delete", "emails", "report", code=1)


def test_a_schedule_that_another_deletes_meanwhile_was_not_deleted_by_this_one(
    shell: Shell, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("schedules", "add", "emails", "digest", "--every", "1h")
    get = Schedules.get

    def got_and_deleted(schedules: Schedules, name: str) -> Scheduled:
        found = get(schedules, name)
        assert Schedules(connection.queue("emails")).delete(name)
        return found

    monkeypatch.setattr(Schedules, "get", got_and_deleted)
    told = shell.error("schedules", "delete", "emails", "digest", code=1)
    assert told == "Error: queue 'emails' has no schedule 'digest'"


@pytest.mark.usefixtures("connection")
def test_who_deletes_what_code_declares_is_told_that_it_comes_back(shell: Shell, reconcile: Callable[..., str]) -> None:
    reconcile("report")
    assert shell("schedules", "delete", "emails", "report").stdout == (
        "deleted schedule report of queue emails; if code still declares it, the next worker to start adds it again\n"
    )
