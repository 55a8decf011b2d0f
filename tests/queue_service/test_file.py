"""The flavour in a file: where its directory is, what a restart finds, and services that share a directory."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from astyqueue import connect
from astyqueue.errors import BadSetting, QueueDoesNotExist, QueueNameExists, StoreUnavailable
from astyqueue.queue_service import FileQueueService
from astyqueue.testing import TimeMachine
from tests.queue_service.conftest import File


def directory_of(given: Path | None = None) -> Path:
    with FileQueueService(given) as service:
        service.create("orders")
        assert service.directory.joinpath("queues.db").is_file()
        return service.directory


def test_the_directory_is_the_given_one_else_that_of_a_variable_else_one_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, data, named = (tmp_path / name for name in ("home", "data", "named"))
    monkeypatch.setenv("HOME", str(home))
    for variable in ("XDG_DATA_HOME", "ASTYQUEUE_DATA_DIR"):
        monkeypatch.delenv(variable, raising=False)
    assert directory_of() == home / ".local" / "share" / "astyqueue"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    assert directory_of() == data / "astyqueue"
    monkeypatch.setenv("ASTYQUEUE_DATA_DIR", str(named))
    assert directory_of() == named
    assert directory_of(tmp_path / "given") == tmp_path / "given"
    monkeypatch.setenv("ASTYQUEUE_DATA_DIR", "~/x")
    assert directory_of() == home / "x"
    monkeypatch.setenv("ASTYQUEUE_DATA_DIR", "")
    monkeypatch.setenv("XDG_DATA_HOME", "share")
    assert directory_of() == home / ".local" / "share" / "astyqueue"
    for variable in ("XDG_DATA_HOME", "ASTYQUEUE_DATA_DIR"):
        monkeypatch.setenv(variable, "")
    assert directory_of() == home / ".local" / "share" / "astyqueue"


def test_a_missing_directory_is_created_for_its_owner_alone_and_an_existing_one_is_left(tmp_path: Path) -> None:
    created = directory_of(tmp_path / "new" / "queues")
    assert stat.S_IMODE(created.stat().st_mode) == 0o700
    assert stat.S_IMODE((created / "queues.db").stat().st_mode) == 0o600
    existing = tmp_path / "existing"
    existing.mkdir(mode=0o755)
    assert stat.S_IMODE(directory_of(existing).stat().st_mode) == 0o755


def test_a_relative_directory_stays_the_same_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert directory_of(Path("queues")) == tmp_path / "queues"


@pytest.mark.parametrize("nothing", ["", 5, b"queues"])
def test_what_names_no_directory_is_refused_and_not_taken_for_the_current_one(
    nothing: Any,  # noqa: ANN401 - wrong types are the point
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting, match=r"the directory of the queue service is .*: give a path, such as"):
        FileQueueService(nothing)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["", "queues"])
def test_a_file_in_the_place_of_the_directory_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "orders.db"
    file.write_text("not a directory")
    with pytest.raises(BadSetting, match=f"needs a directory, and {file}.* is a file, or below one: give another path"):
        FileQueueService(file / below)
    assert file.read_text() == "not a directory"


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"queue service, .*, cannot be created: File name too long"):
        FileQueueService(tmp_path / ("q" * 300))


def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    assert directory_of(tmp_path / "a b?c=d&e#f%20g é") == tmp_path / "a b?c=d&e#f%20g é"


def test_a_restart_finds_queues_messages_and_visibility_again(file: File) -> None:
    with FileQueueService(file.directory, clock=file.clock) as before:
        url = before.create("orders", 10)
        before.create("letters", 0)
        before.push_many("orders", ["a book", "a card"])
        message = before.pull("orders")
    assert message is not None
    after = file.open()
    assert after.queues() == ["letters", "orders"]
    assert after.create("orders", 10) == url
    assert url == f"sqlite:///{file.directory}/queues.db#orders"
    with pytest.raises(QueueNameExists):
        after.create("letters", 30)
    second = after.pull("orders")
    assert second is not None
    assert (second.body, after.pull("orders")) == ("a card", None)
    after.delete("orders", message.receipt)
    file.advance(10)
    assert [each.body for each in iter(lambda: after.pull("orders"), None)] == ["a card"]


def test_two_services_on_one_directory_see_each_others_queues_pushes_and_receipts(file: File) -> None:
    first, second = file.open(), file.open()
    assert second.queues() == []
    first.create("orders", 10)
    assert second.queues() == ["orders"]
    first.push("orders", "a book")
    message = second.pull("orders")
    assert message is not None
    assert (message.body, first.pull("orders")) == ("a book", None)
    first.change_visibility("orders", message.receipt, 20)
    file.advance(10)
    assert second.pull("orders") is None
    first.delete("orders", message.receipt)
    file.advance(20)
    assert second.pull("orders") is None
    second.delete_queue("orders")
    with pytest.raises(QueueDoesNotExist):
        first.push("orders", "a letter")
    second.create("orders", 0)
    first.push("orders", "a letter")
    assert [(each.body, each.receive_count) for each in (second.pull("orders"), first.pull("orders")) if each] == [
        ("a letter", 1),
        ("a letter", 2),
    ]


def test_a_message_outlives_many_pulls_that_end_without_a_delete(file: File) -> None:
    service = file.open()
    service.create("orders", 1)
    service.push("orders", "a book")
    for number in range(1, 31):
        message = service.pull("orders")
        assert message is not None
        assert message.receive_count == number
        file.advance(1)


def test_several_hidden_messages_of_one_process_become_visible_without_waiting_for_each_other(file: File) -> None:
    service = file.open()
    service.create("orders", 10)
    service.push_many("orders", ["1", "2", "3"])
    for _ in range(2):
        assert [each.body for each in iter(lambda: service.pull("orders"), None)] == ["1", "2", "3"]
        file.advance(10)


def test_a_queue_is_one_of_astyqueue_too(file: File) -> None:
    service = file.open()
    url, _, name = service.create("orders", 10).partition("#")
    with connect(url, clock=file.clock) as store:
        orders = store.queue(name)
        orders.send("a book")
        orders.send({"title": "a card"})
        assert [each.body for each in iter(lambda: service.pull("orders"), None)] == ["a book", '{"title":"a card"}']
        assert orders.counts().snoozed == 2


def test_time_that_is_set_back_loses_nothing(file: File, clock: TimeMachine) -> None:
    service = file.open()
    service.create("orders", 10)
    service.push("orders", "a book")
    service.pull("orders")
    clock.set(clock.now() - 3_600_000_000)
    assert service.pull("orders") is None
    file.advance(3_610)
    message = service.pull("orders")
    assert message is not None
    assert message.body == "a book"
