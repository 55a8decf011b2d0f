"""A cassandra URL says where, as whom and how; a wrong one gets an error that never repeats its password."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from cassandra.auth import AuthProvider

from astyqueue.errors import BadSetting
from astyqueue.spark.options import Place
from astyqueue.stores.cassandra import Address, Levels
from astyqueue.stores.cassandra.connection.authentication import login_of
from astyqueue.stores.cassandra.connection.settings import Tls
from astyqueue.stores.url import locate


def address(url: str) -> Address:
    return Address.of(locate(url))


def test_a_url_without_options_takes_the_usual_ones() -> None:
    assert address("cassandra://h1,h2/jobs") == Address(
        ("h1", "h2"), "jobs", 9042, levels=Levels("local_quorum", "local_serial")
    )


def test_a_url_may_say_everything() -> None:
    said = address(
        "cassandra://ada:pw@h1:9043,h2:9043/jobs?dc=dc1&consistency=QUORUM&serial=serial&tls=1&ca=a.pem&cert=c.pem&key=k.pem"
    )
    tls = Tls("full", "a.pem", "c.pem", "k.pem")
    assert said == Address(("h1", "h2"), "jobs", 9043, "ada", "pw", "dc1", Levels("quorum", "serial"), tls)


def test_a_password_may_be_any_text() -> None:
    said = address("cassandra://ada:p%40ss%3A%2F%3F%25@h1/jobs?tls=1")
    assert (said.user, said.password, said.contact_points, said.keyspace) == ("ada", "p@ss:/?%", ("h1",), "jobs")


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        ("us%3Aer:pw", "us:er", "pw"),
        ("us%40er:p%3Aw", "us@er", "p:w"),
        ("ada:a:b", "ada", "a:b"),
        ("a%252Fb:%2525", "a%2Fb", "%25"),
    ],
)
def test_a_login_is_taken_apart_before_it_is_decoded(login: str, user: str, password: str) -> None:
    said = address(f"cassandra://{login}@h1/jobs?tls=1")
    assert (said.user, said.password, said.contact_points) == (user, password, ("h1",))


def test_a_literal_ipv6_address_stands_in_brackets() -> None:
    assert address("cassandra://[::1]:9043,[fe80::2]:9043/jobs").contact_points == ("::1", "fe80::2")
    assert address("cassandra://[::1]/jobs").port == 9042


def test_files_for_tls_ask_for_tls() -> None:
    assert address("cassandra://h1/jobs?ca=a.pem").tls == Tls("full", "a.pem")
    assert address("cassandra://h1/jobs?tls=chain").tls == Tls("chain")
    assert {address(f"cassandra://h1/jobs?tls={word}").tls for word in ("0", "no", "off", "false")} == {None}
    assert {address(f"cassandra://h1/jobs?tls={word}").tls for word in ("1", "yes", "on", "True", "full")} == {
        Tls("full")
    }


def test_tls_checks_the_certificate_and_unless_told_otherwise_the_name() -> None:
    full, chain = Tls("full").context(), Tls("chain").context()
    assert (full.check_hostname, full.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (chain.check_hostname, chain.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_a_certificate_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="ca, cert and key"):
        Tls("full", ca=str(tmp_path / "none.pem")).context()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("cassandra://", "at least one host"),
        ("cassandra:///jobs", "at least one host"),
        ("cassandra://u:secret@/jobs", "at least one host"),
        ("cassandra://u:secret@h1", "names a keyspace"),
        ("cassandra://u:secret@h1/", "names a keyspace"),
        ("cassandra://u:secret@h1/9lives", "invalid keyspace name '9lives'"),
        ('cassandra://u:secret@h1/a"b', "invalid keyspace name"),
        ("cassandra://u:secret@h1:9042,h2:9043/jobs", "one port, the same for all"),
        ("cassandra://u:secret@h1,h2:9043/jobs", "one port, the same for all"),
        ("cassandra://u:secret@h1:none/jobs", "one port"),
        ("cassandra://u:secret@h1:/jobs", "one port"),
        ("cassandra://u:secret@h1:70000/jobs", "one port"),
        (
            "cassandra://u:secret@h1/jobs?datacenter=dc1",
            "no option 'datacenter'; its options are: ca, cert, consistency, dc",
        ),
        ("cassandra://u:secret@h1/jobs?consistency=one", "consistency='one' is not one of local_quorum, quorum, all"),
        ("cassandra://u:secret@h1/jobs?serial=quorum", "serial='quorum' is not one of local_serial, serial"),
        ("cassandra://u:secret@h1/jobs?serial=serial", "add consistency=quorum or consistency=all to the URL"),
        (
            "cassandra://u:secret@h1/jobs?consistency=quorum",
            "add consistency=local_quorum or consistency=all to the URL",
        ),
        ("cassandra://u:secret@h1/jobs?tls=maybe", "unknown tls='maybe'"),
        ("cassandra://u:secret@h1/jobs?tls=0&ca=a.pem", "omit them or put tls=1"),
        ("cassandra://u:secret@h1/jobs?tls=1&key=k.pem", "option 'key' requires 'cert'"),
        ("cassandra://u:secret@h1/jobs?tls=1&password_file=f", "requires a user without a password"),
        ("cassandra://h1/jobs?password_file=f", "requires a user without a password"),
    ],
)
def test_a_wrong_url_says_what_is_wrong_and_never_the_password(url: str, told: str) -> None:
    with pytest.raises(BadSetting) as raised:
        address(url)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_shows_an_address_does_not_show_the_password() -> None:
    said = address("cassandra://ada:secret@h1,h2/jobs?dc=dc1&tls=1")
    assert said.shown == "Cassandra at h1, h2 port 9042, data centre dc1"
    assert "secret" not in repr(said) + said.shown


def test_what_shows_a_url_in_parts_does_not_show_the_password() -> None:
    location = locate("cassandra://ada:secret@h1/jobs?key=secret")
    place = Place("cassandra://ada:secret@h1/jobs", "mail")
    assert "secret" not in f"{location!r} {place!r}"


@pytest.mark.parametrize("login", ["cassandra://ada:secret@h1/jobs", "cassandra://ada:secret@127.0.0.1,10.0.0.1/jobs"])
def test_a_login_crosses_no_network_in_the_clear_unless_the_url_says_so(login: str) -> None:
    for url in (login, f"{login}?tls="):
        with pytest.raises(
            BadSetting, match=r"unencrypted.*add tls=1 to the URL, or tls=chain.*tls=0 allows it"
        ) as raised:
            address(url)
        assert "secret" not in str(raised.value)
    assert [address(f"{login}?{option}").shows_login for option in ("tls=0", "tls=1", "tls=chain", "ca=a.pem")] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("hosts", ["127.0.0.1", "127.0.3.1:9043,127.0.3.2:9043", "localhost", "[::1]"])
def test_a_login_at_this_machine_needs_no_encryption(hosts: str) -> None:
    assert not address(f"cassandra://ada:secret@{hosts}/jobs").shows_login


def test_who_has_no_login_has_none_to_hide() -> None:
    assert not address("cassandra://h1/jobs").shows_login


@pytest.mark.parametrize("written", ["hunter2", "hunter2\n", "hunter2\r\n"])
def test_a_password_may_be_in_a_file_and_is_read_for_each_connection(tmp_path: Path, written: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(written.encode())
    provider = login_of(address(f"cassandra://ada@h1/jobs?tls=1&password_file={file}"))
    assert told_to_a_node(provider) == b"\0ada\0hunter2"
    file.write_text("newer")
    assert told_to_a_node(provider) == b"\0ada\0newer"
    file.unlink()
    assert told_to_a_node(provider) == b"\0ada\0newer"


def told_to_a_node(provider: AuthProvider | None) -> bytes:
    assert provider is not None
    said: bytes = provider.new_authenticator("127.0.0.1").initial_response()
    return said


def test_a_relative_file_of_a_password_stays_that_file_when_the_process_goes_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("hunter2")
    monkeypatch.chdir(tmp_path)
    said = address("cassandra://ada@h1/jobs?tls=1&password_file=password")
    monkeypatch.chdir("/")
    assert told_to_a_node(login_of(said)) == b"\0ada\0hunter2"


def test_a_file_of_a_password_that_cannot_be_used_is_a_wrong_setting(tmp_path: Path) -> None:
    empty, binary = tmp_path / "empty", tmp_path / "binary"
    empty.write_text("\n")
    binary.write_bytes(b"\xff\xfe")
    for file, told in {
        empty: "is empty",
        binary: "not UTF-8",
        tmp_path / "none": "No such file",
        tmp_path: "Is a directory",
    }.items():
        with pytest.raises(BadSetting, match=told):
            login_of(address(f"cassandra://ada@h1/jobs?tls=1&password_file={file}"))


def test_a_password_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ASTYQUEUE_PASSWORD", "hunter2")
    (tmp_path / "password").write_text("filed")
    said = {
        "cassandra://ada@h1/jobs?tls=1": b"\0ada\0hunter2",
        "cassandra://ada:written@h1/jobs?tls=1": b"\0ada\0written",
        f"cassandra://ada@h1/jobs?tls=1&password_file={tmp_path / 'password'}": b"\0ada\0filed",
    }
    assert {url: told_to_a_node(login_of(address(url))) for url in said} == said
    assert login_of(address("cassandra://h1/jobs")) is None


@pytest.mark.parametrize(
    "used",
    [
        "from astyqueue.stores import open_store; open_store('memory://', clock=SystemClock())",
        "from astyqueue.testing import TimeMachine",
    ],
)
def test_only_who_opens_a_cassandra_store_imports_the_driver(used: str) -> None:
    told = f"import sys; from astyqueue.clock import SystemClock; {used}; print('cassandra' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "False"
