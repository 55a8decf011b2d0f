"""A node that asks for a login and a certificate: which URLs are let in, and the errors of the others."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import pytest
from cassandra.cluster import Session

from astyqueue import MessageQueue, ids
from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting, StoreUnavailable
from astyqueue.store import Name, Named, Store
from astyqueue.stores import open_store
from astyqueue.stores.admin import administer
from astyqueue.stores.cassandra import Address
from astyqueue.stores.cassandra.connection.cluster import connect
from astyqueue.stores.url import locate
from astyqueue.testing import LocalCassandra
from astyqueue.testing.cassandra.fixtures import lacking
from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from tests.support.proxy import Proxy

CLOCK = SystemClock()
#: The login that a new cluster has.
LOGIN: Final = "cassandra:cassandra"
#: It is made some time after the node takes requests.
PATIENCE: Final = 30 * SECOND
ADDRESSES: Final = ",".join(f"IP:127.0.{network}.{node}" for network in range(8) for node in (1, 2, 3))
KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Makes certificates in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        openssl(
            "req",
            "-x509",
            *KEY,
            "-subj",
            "/CN=authority",
            "-addext",
            "keyUsage=critical,keyCertSign",  # which Python 3.13 and later require
            "-days",
            "2",
            "-keyout",
            self.path("ca.key"),
            "-out",
            self.path("ca.pem"),
        )

    def path(self, name: str) -> str:
        return str(self._folder / name)

    def certify(self, name: str) -> None:
        """Make a key, and a certificate for it that holds for every address a local node may have."""
        request, extensions = self.path(f"{name}.csr"), self._folder / "addresses"
        extensions.write_text(f"subjectAltName={ADDRESSES}\n")
        openssl("req", *KEY, "-subj", f"/CN={name}", "-keyout", self.path(f"{name}.key"), "-out", request)
        signing = ("-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"), "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", request, *signing, "-extfile", str(extensions), "-out", self.path(f"{name}.pem"))

    def both(self, name: str) -> str:
        """One file with the key and the certificate."""
        whole = self._folder / f"{name}-both.pem"
        whole.write_text((self._folder / f"{name}.key").read_text() + (self._folder / f"{name}.pem").read_text())
        return str(whole)


def openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)  # noqa: S607 - the machine's own


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Authority:
    if shutil.which("openssl") is None:
        lacking(pytestconfig, "there is no openssl to make certificates with")
    made = Authority(tmp_path_factory.mktemp("certificates") / "ours")
    for name in ("node", "client"):
        made.certify(name)
    return made


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[LocalCassandra]:
    settings = {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "user_timestamps_enabled": False,  # guardrails do not count for the login that a new cluster has
        "client_encryption_options": {
            "enabled": True,
            "optional": False,
            "require_client_auth": True,
            "ssl_context_factory": {"class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"},
            "keystore": authority.both("node"),
            "truststore": authority.path("ca.pem"),
        },
    }
    with LocalCassandra(settings=settings) as cluster:
        url = address(cluster, LOGIN, authority)
        until = CLOCK.monotonic() + PATIENCE
        while not migrated(url) and CLOCK.monotonic() < until:
            Wakeup(CLOCK).wait(CLOCK.monotonic() + SECOND // 5)
        yield cluster


@contextmanager
def opened(url: str) -> Iterator[Session]:
    """A session of the driver, as a store would have it."""
    session = connect(Address.of(locate(url)), CLOCK)
    try:
        yield session
    finally:
        session.cluster.shutdown()


def migrated(url: str) -> bool:
    with administer(url, clock=CLOCK) as administration:
        try:
            administration.migrate()
        except StoreUnavailable:
            return False
    return True


def address(cluster: LocalCassandra, login: str, authority: Authority, **options: str) -> str:
    """The URL, with everything that the node asks for unless an option says otherwise (or is empty)."""
    files = {"ca": authority.path("ca.pem"), "cert": authority.path("client.pem"), "key": authority.path("client.key")}
    chosen = {name: value for name, value in {**files, **options}.items() if value}
    return f"cassandra://{login}@{cluster.contact_points[0]}/jobs?{urlencode(chosen, quote_via=quote)}"


@pytest.fixture(scope="module")
def worker(secured: LocalCassandra, authority: Authority) -> str:
    """A login with the rights that a worker needs, and no others."""
    with opened(address(secured, LOGIN, authority)) as session:
        session.execute("CREATE ROLE worker WITH PASSWORD = 'worker' AND LOGIN = true")
        session.execute("GRANT SELECT ON KEYSPACE jobs TO worker")
        session.execute("GRANT MODIFY ON KEYSPACE jobs TO worker")
    return "worker:worker"


def test_a_queue_works_with_the_right_login_and_certificates(secured: LocalCassandra, authority: Authority) -> None:
    with (
        MessageQueue.builder().store(address(secured, LOGIN, authority, dc="datacenter1")).name("mail").build() as queue
    ):
        queue.send("one")
        with queue.receive() as batch:
            assert [delivery.body for delivery in batch] == ["one"]


@pytest.mark.parametrize("login", ["cassandra:hunter2", "nobody:hunter2"])
def test_a_wrong_login_is_reported_and_never_shown(secured: LocalCassandra, authority: Authority, login: str) -> None:
    with pytest.raises(
        StoreUnavailable, match=r"not connected after .*password are incorrect.*that the login is right"
    ) as raised:
        open_store(address(secured, login, authority), clock=CLOCK)
    assert "hunter2" not in str(raised.value)
    assert secured.contact_points[0] in str(raised.value)


def test_without_a_login_it_is_told_that_one_is_needed(secured: LocalCassandra, authority: Authority) -> None:
    with pytest.raises(StoreUnavailable, match=r"requires authentication"):
        open_store(address(secured, LOGIN, authority).replace(f"{LOGIN}@", ""), clock=CLOCK)


def test_without_the_right_certificates_nobody_is_let_in(
    secured: LocalCassandra, authority: Authority, tmp_path: Path
) -> None:
    others = Authority(tmp_path / "others")
    others.certify("client")
    refused = {
        "in the clear": {"ca": "", "cert": "", "key": ""},
        "no certificate": {"cert": "", "key": ""},
        "another's certificate": {"cert": others.path("client.pem"), "key": others.path("client.key")},
        "a node of another authority": {"ca": others.path("ca.pem")},
    }
    for options in refused.values():
        with pytest.raises(StoreUnavailable, match="not connected after"):
            open_store(address(secured, LOGIN, authority, **options), clock=CLOCK)


def test_the_name_in_the_certificate_counts_unless_only_the_chain_is_to_be_checked(
    secured: LocalCassandra, authority: Authority
) -> None:
    with Proxy(secured.contact_points[0], secured.contacts.port, at="127.0.0.99") as proxy:
        url = address(secured, LOGIN, authority).replace(secured.contact_points[0], f"{proxy.host}:{proxy.port}")
        with pytest.raises(StoreUnavailable, match="not connected after"):
            open_store(url, clock=CLOCK)
        open_store(f"{url}&tls=chain", clock=CLOCK).close()


def test_a_file_that_is_not_there_is_reported(secured: LocalCassandra, authority: Authority) -> None:
    with pytest.raises(BadSetting, match="check the options ca, cert and key"):
        open_store(address(secured, LOGIN, authority, ca="/nowhere/ca.pem"), clock=CLOCK)


def test_a_guardrail_that_forbids_our_write_times_says_what_to_set(
    secured: LocalCassandra, authority: Authority, worker: str
) -> None:
    """In a keyspace of its own: what the server has prepared for another login it lets pass."""
    there, name = address(secured, LOGIN, authority).replace("/jobs?", "/guarded?"), worker.partition(":")[0]
    assert migrated(there)
    with opened(there) as session:
        session.execute(f"GRANT SELECT ON KEYSPACE guarded TO {name}")
        session.execute(f"GRANT MODIFY ON KEYSPACE guarded TO {name}")
    with pytest.raises(StoreUnavailable, match=r"is not allowed.*set user_timestamps_enabled to true and minimum"):
        open_store(there.replace(LOGIN, worker), clock=CLOCK)


def test_what_a_login_may_not_read_is_not_told_to_be_well(
    secured: LocalCassandra, authority: Authority, worker: str
) -> None:
    with administer(address(secured, worker, authority), clock=CLOCK) as looked_after:
        seen = looked_after.examine({})
    unknown = [one for one in seen if "unknown" in one.fact]
    assert {one.subject.partition(" on ")[0] for one in unknown} == {
        "paxos variant",
        "guardrails",
        "tombstones per read",
    }
    assert all("GRANT SELECT ON KEYSPACE system_views TO" in one.remedy for one in unknown)


@pytest.mark.full
def test_a_client_whose_logins_were_refused_for_a_while_goes_on_once_they_are_not(
    secured: LocalCassandra, authority: Authority
) -> None:
    with (
        opened(address(secured, LOGIN, authority)) as session,
        Proxy(secured.contact_points[0], secured.contacts.port) as proxy,
    ):
        session.execute(
            "CREATE ROLE IF NOT EXISTS sender WITH PASSWORD = 'sender' AND LOGIN = true AND SUPERUSER = true"
        )
        url = address(secured, "sender:sender", authority, tls="chain").replace(
            secured.contact_points[0], f"{proxy.host}:{proxy.port}"
        )
        with closing(open_store(url, clock=CLOCK)) as store:
            session.execute("ALTER ROLE sender WITH LOGIN = false")
            until = CLOCK.monotonic() + PATIENCE
            while is_reached(store) and CLOCK.monotonic() < until:  # nodes remember roles for some seconds
                proxy.cut()
            assert [is_reached(store) for _ in range(3)] == [False] * 3
            session.execute("ALTER ROLE sender WITH LOGIN = true")
            until = CLOCK.monotonic() + PATIENCE
            while not is_reached(store) and CLOCK.monotonic() < until:
                pass  # each of these waits for a connection itself, two seconds at most
            assert is_reached(store)


def is_reached(store: Store) -> bool:
    try:
        store.read((Named("row", (Name(2, 0, ids.LEAST, 1),)),))
    except StoreUnavailable:
        return False
    return True
