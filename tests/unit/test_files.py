"""What this process writes is for its owner alone, and is there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from astyqueue.files import for_owner, make_file, make_folder, may_be_replaced, replace_file
from astyqueue.journal import Journal

#: A user, a group, and another user of this machine.
USER: Final = 7_001
GROUP: Final = 7_002
OTHER: Final = 7_003
as_root: Final = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    replace_file(tmp_path / "written", b"all of it")
    make_file(tmp_path / "made")
    assert (tmp_path / "written").read_bytes() == b"all of it"
    assert (tmp_path / "made").read_bytes() == b""
    assert [mode(path) for path in sorted(tmp_path.iterdir())] == [0o600, 0o600]


def test_a_file_and_nothing_may_be_replaced_and_no_link_folder_pipe_or_device(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to("/nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert [may_be_replaced(tmp_path / name) for name in ("file", "nothing")] == [True, True]
    others = [tmp_path, Path("/dev/null"), *(tmp_path / name for name in ("link", "dangling", "pipe"))]
    assert [may_be_replaced(path) for path in others] == [False] * 5


def test_a_file_that_was_there_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    path.chmod(0o644)
    replace_file(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o644)


def test_the_name_of_a_file_is_on_the_disk_after_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def noting(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "written").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    replace_file(tmp_path / "written", b"all of it")
    assert synced == [((tmp_path / "written").stat().st_ino, False), (tmp_path.stat().st_ino, True)]


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    theirs, path = tmp_path / "theirs", tmp_path / "report.html"
    theirs.write_text("precious")
    theirs.chmod(0o666)
    path.symlink_to(theirs)
    replace_file(path, b"ours")
    assert (theirs.read_text(), path.read_text(), path.is_symlink(), mode(path)) == ("precious", "ours", False, 0o600)


def test_links_under_names_that_can_be_foreseen_are_not_written_through(tmp_path: Path) -> None:
    theirs, path = tmp_path / "theirs", tmp_path / "_manifest.json"
    theirs.write_text("precious")
    (tmp_path / "_manifest.json.new").symlink_to(theirs)
    replace_file(path, b"ours")
    assert (theirs.read_text(), path.read_text()) == ("precious", "ours")


def test_what_could_not_be_written_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "folder"
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(path, b"new")
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_in_a_folder_that_is_missing_is_named_as_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "page.svg"
    with pytest.raises(FileNotFoundError) as raised:
        replace_file(path, b"new")
    assert raised.value.filename == str(path)


def test_a_file_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    path.write_text("all that there is")
    make_file(path)
    assert path.read_text() == "all that there is"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_that_leads_to_no_file_yet_is_followed_to_where_the_file_is_to_be(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (tmp_path / "mail.db").symlink_to(volume / "mail.db")
    make_file(tmp_path / "mail.db")
    assert mode(volume / "mail.db") == 0o600


def test_what_is_added_to_is_for_its_owner_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    for line in ("one", "two"):
        with open(tmp_path / "audit.jsonl", "a", opener=for_owner) as file:
            file.write(line)
    assert ((tmp_path / "audit.jsonl").read_text(), mode(tmp_path / "audit.jsonl")) == ("onetwo", 0o600)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic"), open(tmp_path / "link.jsonl", "a", opener=for_owner):
        pass
    assert not (tmp_path / "theirs").exists()


def owners(folder: Path) -> set[tuple[int, int]]:
    """The users and groups of all that is in a folder."""
    return {(path.lstat().st_uid, path.lstat().st_gid) for path in folder.rglob("*")}


@as_root
def test_what_root_makes_belongs_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, USER, GROUP)
    replace_file(tmp_path / "written", b"all of it")
    make_file(tmp_path / "made")
    with open(tmp_path / "added", "a", opener=for_owner):
        pass
    with Journal.open(tmp_path / "app" / "journal", page_size=256) as journal:
        journal.append_many(["x" * 90] * 3)
        journal.cursor("mail")
    assert {path.suffix for path in (tmp_path / "app" / "journal").iterdir()} == {
        ".page",
        ".index",
        ".meta",
        ".lock",
        ".cursor",
    }
    assert owners(tmp_path) == {(USER, GROUP)}
    assert {mode(path) for path in tmp_path.rglob("*") if path.is_file()} == {0o600}


@as_root
def test_what_root_opens_keeps_its_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, USER, GROUP)
    (tmp_path / "audit.jsonl").touch()
    with open(tmp_path / "audit.jsonl", "a", opener=for_owner) as file:
        file.write("one")
    with pytest.raises(FileExistsError), open(tmp_path / "audit.jsonl", "x", opener=for_owner):
        pass
    assert owners(tmp_path) == {(0, 0)}


@as_root
@pytest.mark.parametrize("folder", [0, USER])
def test_a_file_that_root_replaces_keeps_its_owner_group_and_permissions(folder: int, tmp_path: Path) -> None:
    os.chown(tmp_path, folder, folder)
    path = tmp_path / "report.html"
    path.touch()
    os.chown(path, USER, GROUP)
    path.chmod(0o640)
    replace_file(path, b"new")
    assert (owners(tmp_path), mode(path)) == ({(USER, GROUP)}, 0o640)


@as_root
@pytest.mark.parametrize("folder", [0, USER])
def test_what_root_writes_is_not_given_to_a_user_who_left_a_file_where_all_may(folder: int, tmp_path: Path) -> None:
    os.chown(tmp_path, folder, folder)
    tmp_path.chmod(0o1777)
    path = tmp_path / "report.html"
    path.touch()
    os.chown(path, OTHER, OTHER)
    path.chmod(0o666)
    replace_file(path, b"new")
    assert (owners(tmp_path), mode(path)) == ({(folder, folder)}, 0o600)


@as_root
def test_where_no_owner_can_be_changed_what_root_makes_is_there_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _user: int, _group: int) -> None:
        raise PermissionError

    os.chown(tmp_path, USER, GROUP)
    monkeypatch.setattr(os, "fchown", refuse)
    replace_file(tmp_path / "written", b"all of it")
    make_file(tmp_path / "made")
    with open(tmp_path / "added", "a", opener=for_owner):
        pass
    assert owners(tmp_path) == {(0, 0)}
    assert {mode(path) for path in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_folder_that_is_there_is_taken_where_none_can_be_made(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _mode: int) -> None:
        raise OSError(error, os.strerror(error), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    make_folder(tmp_path, 0o700)
    with pytest.raises(OSError, match=os.strerror(error)):
        make_folder(tmp_path / "missing", 0o700)
