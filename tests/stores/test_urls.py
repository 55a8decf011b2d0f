"""A URL names a store; a wrong one gets an error that never repeats its password."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from astyqueue.errors import BadSetting
from astyqueue.store import Batch, Name, Named, Put
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.url import locate
from astyqueue.testing import TimeMachine

NAME = Name(2, 0, bytes(16), 1)
WANTED = (Named("row", (NAME,)),)
SENT = Batch("row", puts=(Put(NAME, b"here"),))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("postgres://user:secret@host/db", "unknown kind of store 'postgres'; there are: memory://"),
        ("mail.db", "begins with its kind"),
        ("", "begins with its kind"),
        ("user:secret@host", "begins with its kind"),
        (None, "a store's URL is text, for example sqlite:///mail.db, and this one is NoneType"),
        (Path("mail.db"), "a store's URL is text, for example sqlite:///mail.db, and this one is PosixPath"),
        ("sqlite://", "a sqlite URL names a file"),
        ("sqlite:///", "a sqlite URL names a file"),
        ("sqlite://mail.db", "a sqlite URL names a file"),
        ("sqlite:///mail%00.db", "a sqlite URL names a file"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///mail.db?synchronus=full", "no option 'synchronus'; its options are: busy_timeout, synchronous"),
        ("sqlite:///mail.db?synchronous=off", "unknown synchronous='off': 'full'"),
        ("sqlite:///mail.db?busy_timeout=long", "busy_timeout='long' is not a number of seconds"),
        ("sqlite:///mail.db?busy_timeout=-1", "busy_timeout='-1' is not"),
        ("sqlite:///mail.db?busy_timeout=nan", "busy_timeout='nan' is not"),
        ("sqlite:///mail.db?synchronous=full&synchronous=normal", "given twice"),
        ("memory://?synchronous=full", "no option 'synchronous'; it has no options"),
    ],
)
def test_a_wrong_url_says_what_there_is(
    url: str, told: str, clock: TimeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadSetting) as raised:
        open_store(url, clock=clock)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_value_of_an_option_is_decoded_as_a_part_of_a_url_and_not_as_a_form() -> None:
    options = locate("cassandra://h/k?ca=/etc/c++/a%20b%26.pem&dc=a=b&tls").options
    assert options == {"ca": "/etc/c++/a b&.pem", "dc": "a=b", "tls": ""}


@pytest.mark.parametrize("replication", ["", "dc1:3"])
def test_the_administration_of_an_unknown_kind_of_store_says_what_there_is(
    clock: TimeMachine, replication: str
) -> None:
    with pytest.raises(BadSetting, match="unknown kind of store 'mysql'; there are: memory://"):
        administer("mysql://host/db", clock=clock, replication=replication)


def test_slashes_too_many_name_the_same_file(clock: TimeMachine, tmp_path: Path) -> None:
    store = open_store(f"sqlite:////{tmp_path}/mail.db", clock=clock)
    store.send(SENT)
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["mail.db"]


def test_a_relative_file_stays_the_same_file_when_the_process_goes_elsewhere(
    clock: TimeMachine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///my%20mail.db", clock=clock)
    monkeypatch.chdir("/")
    store.send(SENT)
    store.close()
    again = open_store(f"sqlite:///{tmp_path}/my mail.db", clock=clock)
    assert again.read(WANTED)[0][0].value == b"here"
    again.close()


@pytest.mark.parametrize("name", ["a?b#c%41.db", "größe 100%.db"])
def test_a_file_may_have_any_name(name: str, clock: TimeMachine, tmp_path: Path) -> None:
    written = name.replace("%", "%25").replace("?", "%3F")
    store = open_store(f"sqlite:///{tmp_path}/{written}", clock=clock)
    store.send(SENT)
    store.close()
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_memory_without_a_name_is_private_to_whoever_opens_it(clock: TimeMachine) -> None:
    one, other = open_store("memory://", clock=clock), open_store("memory://", clock=clock)
    one.send(SENT)
    assert other.read(WANTED) == [[]]


def test_memory_with_a_name_is_shared_and_stays_when_all_have_closed_it(clock: TimeMachine) -> None:
    one, other = open_store("memory://shared", clock=clock), open_store("memory://shared", clock=clock)
    one.send(SENT)
    one.close()
    assert other.read(WANTED)[0][0].value == b"here"
    other.close()
    assert open_store("memory://shared", clock=clock).read(WANTED)[0][0].value == b"here"
    assert open_store("memory://another", clock=clock).read(WANTED) == [[]]


def test_only_who_opens_a_sqlite_store_imports_sqlite3() -> None:
    told = (
        "import sys; from astyqueue.clock import SystemClock; from astyqueue.stores import open_store; "
        "open_store('memory://', clock=SystemClock()); print('sqlite3' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "False"
