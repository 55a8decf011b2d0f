"""A cassandra URL says where, as whom and how; a wrong one is told apart and never repeated with its password."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra import Address, Levels
from astyqueue.stores.cassandra.address import Tls
from astyqueue.stores.location import locate


def address(url: str) -> Address:
    return Address.of(locate(url))


def test_a_url_without_options_takes_the_usual_ones() -> None:
    assert address("cassandra://h1,h2/jobs") == Address(("h1", "h2"), "jobs", 9042, levels=Levels("local_quorum", "local_serial"))


def test_a_url_may_say_everything() -> None:
    said = address("cassandra://ada:pw@h1:9043,h2:9043/jobs?dc=dc1&consistency=QUORUM&serial=serial&tls=1&ca=a.pem&cert=c.pem&key=k.pem")
    tls = Tls("full", "a.pem", "c.pem", "k.pem")
    assert said == Address(("h1", "h2"), "jobs", 9043, "ada", "pw", "dc1", Levels("quorum", "serial"), tls)


def test_a_password_may_be_any_text() -> None:
    said = address("cassandra://ada:p%40ss%3A%2F%3F%25@h1/jobs")
    assert (said.user, said.password, said.contact_points, said.keyspace) == ("ada", "p@ss:/?%", ("h1",), "jobs")


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [("us%3Aer:pw", "us:er", "pw"), ("us%40er:p%3Aw", "us@er", "p:w"), ("ada:a:b", "ada", "a:b"), ("a%252Fb:%2525", "a%2Fb", "%25")],
)
def test_a_login_is_taken_apart_before_it_is_decoded(login: str, user: str, password: str) -> None:
    said = address(f"cassandra://{login}@h1/jobs")
    assert (said.user, said.password, said.contact_points) == (user, password, ("h1",))


def test_a_literal_ipv6_address_stands_in_brackets() -> None:
    assert address("cassandra://[::1]:9043,[fe80::2]:9043/jobs").contact_points == ("::1", "fe80::2")
    assert address("cassandra://[::1]/jobs").port == 9042


def test_files_for_tls_ask_for_tls() -> None:
    assert address("cassandra://h1/jobs?ca=a.pem").tls == Tls("full", "a.pem")
    assert address("cassandra://h1/jobs?tls=chain").tls == Tls("chain")
    assert address("cassandra://h1/jobs?tls=0").tls is None


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
        ("cassandra://u:secret@h1/9lives", "keyspace '9lives' cannot be"),
        ('cassandra://u:secret@h1/a"b', "cannot be"),
        ("cassandra://u:secret@h1:9042,h2:9043/jobs", "one port, the same for all"),
        ("cassandra://u:secret@h1,h2:9043/jobs", "one port, the same for all"),
        ("cassandra://u:secret@h1:none/jobs", "one port"),
        ("cassandra://u:secret@h1:/jobs", "one port"),
        ("cassandra://u:secret@h1:70000/jobs", "one port"),
        ("cassandra://u:secret@h1/jobs?datacenter=dc1", "no option 'datacenter'; its options are: ca, cert, consistency, dc"),
        ("cassandra://u:secret@h1/jobs?consistency=one", "consistency='one' is not one of local_quorum, quorum, all"),
        ("cassandra://u:secret@h1/jobs?serial=quorum", "serial='quorum' is not one of local_serial, serial"),
        ("cassandra://u:secret@h1/jobs?serial=serial", "add consistency=quorum to the URL"),
        ("cassandra://u:secret@h1/jobs?consistency=quorum", "add consistency=local_quorum to the URL"),
        ("cassandra://u:secret@h1/jobs?tls=maybe", "tls='maybe' is not known"),
        ("cassandra://u:secret@h1/jobs?tls=0&ca=a.pem", "leave them out or say tls=1"),
        ("cassandra://u:secret@h1/jobs?tls=1&key=k.pem", "give cert as well"),
    ],
)
def test_a_wrong_url_says_what_is_wrong_and_never_the_password(url: str, told: str) -> None:
    with pytest.raises(BadSetting) as raised:
        address(url)
    assert told in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_shows_an_address_does_not_show_the_password() -> None:
    said = address("cassandra://ada:secret@h1,h2/jobs?dc=dc1")
    assert said.shown == "Cassandra at h1, h2 port 9042, data centre dc1"
    assert "secret" not in repr(said) + said.shown


def test_only_who_opens_a_cassandra_store_imports_the_driver() -> None:
    told = (
        "import sys; from astyqueue.clock import SystemClock; from astyqueue.stores import open_store; "
        "open_store('memory://', clock=SystemClock()); print('cassandra' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "False"
