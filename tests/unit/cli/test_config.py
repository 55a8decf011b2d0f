"""Where options come from: flag, then environment, then file, then default."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from astyqueue.queue.connection import connect
from tests.support.places import ONE_ROW
from tests.unit.cli.conftest import Shell


@pytest.fixture
def three(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with three messages, and no environment."""
    monkeypatch.delenv("ASTYQUEUE_URL")
    with connect(url) as connection:
        connection.queue("emails", **ONE_ROW).send_many([1, 2, 3])
    return folder


def shown(shell: Shell, *options: str) -> int:
    return len(shell.json("peek", "emails", *options))


def test_a_flag_beats_the_environment_which_beats_the_file(
    shell: Shell, three: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = three / "astyqueue.toml"
    file.write_text(f'url = "{url}"\n')
    assert shown(shell) == 3
    file.write_text(f'url = "{url}"\n[peek]\nlimit = 1\n')
    assert shown(shell) == 1
    monkeypatch.setenv("ASTYQUEUE_PEEK_LIMIT", "2")
    assert shown(shell) == 2
    assert shown(shell, "--limit", "3") == 3


def test_options_are_named_in_the_environment_as_they_are_typed(
    shell: Shell, three: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert three
    monkeypatch.setenv("ASTYQUEUE_URL", url)
    monkeypatch.setenv("ASTYQUEUE_PEEK_JSON", "1")
    monkeypatch.setenv("ASTYQUEUE_QUEUES_LIST_AS_JSON", "1")
    assert shell("peek", "emails").stdout.startswith('{"id"')
    assert shell("queues", "list").stdout.startswith('{"name"')
    monkeypatch.setenv("ASTYQUEUE_PEEK_LIMITS", "1")
    monkeypatch.setenv("ASTYQUEUE_PEEK_SOMETHING_ELSE", "1")
    told = shell("peek", "emails")
    assert told.stderr == "astyqueue: unknown variable ASTYQUEUE_PEEK_LIMITS; did you mean ASTYQUEUE_PEEK_LIMIT?\n"
    assert len(told.stdout.splitlines()) == 3


def test_which_file_options_come_from_is_reported(shell: Shell, three: Path, url: str) -> None:
    assert shell("counts", "--url", url).stderr == ""
    (three / "astyqueue.toml").write_text(f'url = "{url}"\n')
    told = shell("peek", "emails", "--json")
    assert told.stderr == f"astyqueue: options from {three}/astyqueue.toml\n"
    assert len(told.stdout.splitlines()) == 3


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("yes = true", "yes"),
        ("force = true", "force"),
        ("[clear]\nyes = true", "yes"),
        ("[dead.purge]\n--yes = true", "yes"),
        ("[dead.redrive]\nforce = true", "force"),
        ("[spark.redrive]\napply = true", "apply"),
        ("[schedules.reconcile]\nprune = true", "prune"),
        ("[migrate]\nmove-home = true", "move_home"),
        ("[schedules.add]\nreplace = true", "replace"),
        ("[journal.reclaim]\nignore-cursors = true", "ignore_cursors"),
        ("[journal.replay]\nagain = true", "again"),
        ("[migrate]\ndurable = false", "durable"),
        ("[pipeline.run]\naccept-gap = true", "accept_gap"),
        ("[pipeline.stream]\naccept-gap = true", "accept_gap"),
    ],
)
def test_what_destroys_is_never_asked_for_in_a_file(
    shell: Shell, three: Path, url: str, text: str, option: str
) -> None:
    (three / "astyqueue.toml").write_text(text)
    for words in (["clear", "emails"], ["drop", "emails"], ["counts"]):
        told = shell.error(*words, "--url", url, code=2)
        assert told == f"Error: astyqueue.toml: {option} is read from the command line only: remove it from the file"
    (three / "astyqueue.toml").unlink()
    assert shown(shell, "--url", url) == 3


@pytest.mark.parametrize("mode", [0o602, 0o666])
@pytest.mark.parametrize(
    "text", ['url = "sqlite:///evil.db"', '[pipeline.run]\nmaster = "spark://evil"', '[spark.enqueue]\nmanifest = "m"']
)
def test_a_file_that_others_can_write_says_nothing_of_places(
    shell: Shell, three: Path, url: str, text: str, mode: int
) -> None:
    file = three / "astyqueue.toml"
    file.write_text(text)
    file.chmod(mode)
    told = shell.error("counts", "--url", url, code=2)
    setting = text.rpartition(" =")[0].split()[-1]
    assert told.startswith(f"Error: {file}: {setting} is read from a file only if no other user can write to it")
    assert "other users can write to it. Restrict it (chown, chmod go-w), remove it, or run this in " in told
    file.write_text("[peek]\nlimit = 1")
    assert shown(shell, "--url", url) == 1


def test_a_file_of_another_user_says_nothing_of_places(
    shell: Shell, three: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (three / "astyqueue.toml").write_text('url = "sqlite:///evil.db"')
    owner = os.geteuid()
    if owner == 0:
        os.chown(three / "astyqueue.toml", 4_711, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert f"it belongs to another user ({owner or 4_711})" in shell.error("counts", "--url", url, code=2)


def test_pyproject_has_a_table_for_us(shell: Shell, three: Path, url: str) -> None:
    (three / "pyproject.toml").write_text(
        f'[tool.astyqueue]\nurl = "{url}"\n[tool.astyqueue.queues.list]\njson = true\n'
    )
    assert shell("queues", "list").stdout.startswith('{"name": "emails"')


def test_other_projects_say_nothing_of_us(shell: Shell, three: Path) -> None:
    (three / "pyproject.toml").write_text("[tool.other]\nurl = 1\n")
    assert "no store given" in shell.error("counts", code=2)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url =", "astyqueue.toml cannot be read"),
        ('ulr = "sqlite:///work.db"', "astyqueue.toml: unknown option ulr"),
        ("[peek]\nlimits = 1", "astyqueue.toml: unknown option limits of peek"),
        ("[peak]\nlimit = 1", "astyqueue.toml: unknown command peak of astyqueue; did you mean peek?"),
        ("[peek]\nlimits = 1", "unknown option limits of peek; did you mean limit?"),
        ('ulr = "sqlite:///work.db"', "unknown option ulr; did you mean url?"),
        ("[peek]\nlimit = [1]", "astyqueue.toml: limit is a list: give one value, written as on the command line"),
        ('[worker]\nqueues = ["emails"]', "astyqueue.toml: queues is a list: give one value"),
        ("[worker]\nlimit = {mail = 5}", "astyqueue.toml: limit is a table: give one value"),
        ("[worker.mail]\nlimit = 5", "astyqueue.toml: unknown option mail of worker"),
        ("[dead]\nlimt = 50", "astyqueue.toml: unknown option limt of dead; did you mean limit?"),
        ("[schedules]\nlimit = 50", "astyqueue.toml: unknown option limit of schedules"),
    ],
)
def test_a_slip_in_the_file_is_named(shell: Shell, three: Path, text: str, told: str) -> None:
    (three / "astyqueue.toml").write_text(text)
    assert told in shell.error("counts", code=2)


def test_an_option_in_the_table_of_a_group_is_for_each_of_its_commands_that_has_it(
    shell: Shell, three: Path, url: str
) -> None:
    (three / "astyqueue.toml").write_text(f'url = "{url}"\n[queues]\njson = true\n[dead]\nlimit = 1\n')
    assert shell("queues", "list").stdout.startswith('{"name"')
    assert shell("dead", "list", "emails").stdout == "queue emails has no dead letters\n"
    assert shell("dead", "redrive", "emails").stdout == "put back 0 dead letters of queue emails\n"


def test_a_directory_that_this_user_may_not_search_keeps_nobody_from_a_store_elsewhere(
    shell: Shell, three: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = os.stat

    def denied(path: Any, **options: Any) -> os.stat_result:  # noqa: ANN401 - as that of the system
        if str(path).startswith(f"{three}/") and str(path).endswith(".toml"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, **options)

    monkeypatch.setattr(os, "stat", denied)
    assert shown(shell, "--url", url) == 3
    assert shell("--help").stdout.startswith("Usage: ")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("limit = 2.5", "'2.5' is not a valid integer range"),
        ("limit = true", "'true' is not a valid integer range"),
        ("json = 2", "'2' is not a valid boolean"),
    ],
)
def test_a_value_that_is_wrong_is_told_with_its_file(shell: Shell, three: Path, text: str, told: str) -> None:
    file = three / "astyqueue.toml"
    file.write_text(f"[peek]\n{text}\n")
    error = shell("peek", "emails", code=2).stderr.splitlines()[-1]
    assert error.startswith("Error: Invalid value for ")
    assert f" (from {file}): {told}" in error


def test_a_value_that_is_wrong_is_told_with_its_variable(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASTYQUEUE_PEEK_LIMIT", "many")
    told = "Error: Invalid value for '-n' / '--limit' (from ASTYQUEUE_PEEK_LIMIT): 'many' is not a valid integer range."
    assert shell.usage_error("peek", "emails") == told
    assert "(from" not in shell.usage_error("peek", "emails", "--limit", "few")


def test_an_option_that_can_be_repeated_has_one_value_or_a_list_in_a_file(shell: Shell, three: Path, url: str) -> None:
    file = three / "astyqueue.toml"
    for value in ('"failed"', '["failed", "dead"]'):
        file.write_text(f'url = "{url}"\n[history]\nkind = {value}\nsince = 2026-01-01T00:00:00Z\n')
        assert "no such events" in shell("history", "emails").stdout
    file.write_text(f'url = "{url}"\n[history]\nkind = ["fail"]\n')
    assert "'fail' is not a kind of event" in shell("history", "emails", code=2).stderr


def test_the_app_of_a_worker_may_be_named_in_the_file(shell: Shell, folder: Path) -> None:
    (folder / "astyqueue.toml").write_text('[worker]\napp = "nowhere:app"\n')
    assert "no module 'nowhere'" in shell("worker", code=2).stderr
    assert "no module 'elsewhere'" in shell("worker", "elsewhere:app", code=2).stderr


def test_a_file_that_others_can_write_names_no_app(shell: Shell, folder: Path) -> None:
    (folder / "astyqueue.toml").write_text('[worker]\napp = "nowhere:app"\n')
    (folder / "astyqueue.toml").chmod(0o666)
    assert "app is read from a file only if no other user can write to it" in shell("worker", code=2).stderr
