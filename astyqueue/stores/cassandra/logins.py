"""Logins: passwords that are read again when they change, and connections that go on trying when a login was refused.

The driver gives a node up for good when a login fails while it reconnects. But a login also fails when the nodes that keep the
roles do not answer, as in a rolling restart, and it works again when somebody has put a password right.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from cassandra import AuthenticationFailed
from cassandra.auth import AuthProvider, PlainTextAuthenticator, PlainTextAuthProvider
from cassandra.cluster import DefaultConnection
from cassandra.connection import ConnectionException, EndPoint

from astyqueue.clock import SECOND, SystemClock
from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra.address import Address, read_password

#: A login that was refused is tried at a node again after so long: checking a password is dear for a server, and clients are many.
_PAUSE: Final = 10 * SECOND
_WATCH: Final = SystemClock()


class PasswordInFile(AuthProvider):  # type: ignore[misc] # the driver has no types
    """A login whose password is read for each new connection, so that a changed one counts without a restart."""

    def __init__(self, user: str, file: Path) -> None:
        """A file that cannot be read now raises BadSetting; later on the password that it had last counts on."""
        self._user = user
        self._file = file
        self._last = read_password(file)

    def new_authenticator(self, host: object) -> PlainTextAuthenticator:  # noqa: ARG002 - every node is told the same
        """What tells a node who we are."""
        with suppress(BadSetting):
            self._last = read_password(self._file)
        return PlainTextAuthenticator(self._user, self._last)


def login_of(address: Address) -> AuthProvider | None:
    """The login that an address has, if it has one."""
    if address.password_file is not None:
        return PasswordInFile(address.user, address.password_file)
    return PlainTextAuthProvider(address.user, address.password) if address.user else None


class LoginRefused(ConnectionException):  # type: ignore[misc] # the driver has no types
    """A node did not let us in now; for the driver a connection that did not come about, to be tried again."""


class PatientConnection(DefaultConnection):  # type: ignore[misc] # the driver has no types
    """A connection of one cluster, see `of_one_cluster`."""

    refused: ClassVar[dict[EndPoint, tuple[int, str]]] = {}

    @classmethod
    def factory(cls, endpoint: EndPoint, timeout: float, *args: Any, **settings: Any) -> PatientConnection:  # noqa: ANN401 - the driver's own
        """A connection that is ready, or the error why it is not. A login refused a moment ago counts as refused again."""
        until, reason = cls.refused.get(endpoint, (0, ""))
        if _WATCH.monotonic() < until:
            raise LoginRefused(reason, endpoint)
        try:
            made: PatientConnection = super().factory(endpoint, timeout, *args, **settings)
        except AuthenticationFailed as error:
            cls.refused[endpoint] = _WATCH.monotonic() + _PAUSE, str(error)
            raise LoginRefused(str(error), endpoint) from error
        return made


def of_one_cluster() -> type[PatientConnection]:
    """The kind of connection for a new Cluster: another one in this process may have another login."""
    return type("PatientConnection", (PatientConnection,), {"refused": {}})
