"""Logins: passwords that are read again when they change, and connections that are retried after a rejected login.

The driver gives up a node for good when a login fails while it reconnects. But a login also fails while the nodes that
store the roles do not answer, as in a rolling restart, and works again when an operator has corrected a password.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from cassandra import AuthenticationFailed
from cassandra.auth import AuthProvider, PlainTextAuthenticator, PlainTextAuthProvider
from cassandra.cluster import DefaultConnection
from cassandra.connection import ConnectionException, EndPoint

from astyqueue.clock import SystemClock
from astyqueue.errors import BadSetting
from astyqueue.stores.cassandra.connection.settings import Address, read_password
from astyqueue.units import BEGINNING, SECOND, MonotonicUs

#: The pause after a rejected login at a node: checking a password is expensive for a server, and clients are many.
_PAUSE: Final = 10 * SECOND
_REAL_TIME: Final = SystemClock()


class PasswordInFile(AuthProvider):  # type: ignore[misc] # the driver has no types
    """A login whose password is read for each new connection, so that a changed one works without a restart."""

    def __init__(self, user: str, file: Path) -> None:
        """An unreadable file raises BadSetting now; later on, the last password read from it stays in use."""
        self._user = user
        self._file = file
        self._last = read_password(file)

    def new_authenticator(self, host: object) -> PlainTextAuthenticator:  # noqa: ARG002 - one login for all nodes
        """The login with the current password."""
        with suppress(BadSetting):
            self._last = read_password(self._file)
        return PlainTextAuthenticator(self._user, self._last)


def login_of(address: Address) -> AuthProvider | None:
    """The login of an address; None without a user."""
    if address.password_file is not None:
        return PasswordInFile(address.user, address.password_file)
    return PlainTextAuthProvider(address.user, address.password) if address.user else None


class LoginRefused(ConnectionException):  # type: ignore[misc] # the driver has no types
    """A node rejected the login; for the driver this is a failed connection, which it retries."""


class PatientConnection(DefaultConnection):  # type: ignore[misc] # the driver has no types
    """A connection of one cluster, see `of_one_cluster`."""

    refused: ClassVar[dict[EndPoint, tuple[MonotonicUs, str]]] = {}

    @classmethod
    def factory(cls, endpoint: EndPoint, timeout: float, *args: Any, **settings: Any) -> PatientConnection:  # noqa: ANN401 - the driver's own
        """A connection that is ready.

        A login rejected at this node within the last 10 s is rejected without a request.
        """
        until, reason = cls.refused.get(endpoint, (BEGINNING, ""))
        if _REAL_TIME.monotonic() < until:
            raise LoginRefused(reason, endpoint)
        try:
            made: PatientConnection = super().factory(endpoint, timeout, *args, **settings)
        except AuthenticationFailed as error:
            cls.refused[endpoint] = _REAL_TIME.monotonic() + _PAUSE, str(error)
            raise LoginRefused(str(error), endpoint) from error
        return made


def of_one_cluster() -> type[PatientConnection]:
    """A connection class for one Cluster, because another Cluster in this process may have another login."""
    return type("PatientConnection", (PatientConnection,), {"refused": {}})
