"""The address and the options of a Cassandra cluster, parsed from a URL."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Self
from urllib.parse import unquote

from astyqueue.errors import BadSetting
from astyqueue.stores.url import Location

PORT: Final = 9042
_HIGHEST_PORT: Final = 65535
_OPTIONS: Final = ("dc", "consistency", "serial", "tls", "ca", "cert", "key", "password_file")
#: A read must see every earlier write: no level that one node can answer alone.
_CONSISTENCY: Final = ("local_quorum", "quorum", "all")
#: The level of relaxed plain reads, which need not see the last writes.
ANY_ONE: Final = "local_one"
#: Each serial level with the levels of plain requests that see every commit at it.
_SERIAL: Final = {"local_serial": ("local_quorum", "all"), "serial": ("quorum", "all")}
#: "chain": the certificate is checked, the name in it is not; for certificates without the addresses of their nodes.
_TLS: Final = {
    **dict.fromkeys(("", "0", "no", "false", "off"), "no"),
    **dict.fromkeys(("1", "yes", "true", "on", "full"), "full"),
    "chain": "chain",
}
_EXAMPLE: Final = "cassandra://user@host1,host2/keyspace?dc=dc1&tls=1&password_file=/etc/jobs/password"
_KEYSPACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,47}")
#: The environment variable with the password of a URL that has a user and no password.
IN_ENVIRONMENT: Final = "ASTYQUEUE_PASSWORD"


def _one_of(option: str, given: str, known: Collection[str]) -> None:
    if given not in known:
        message = f"{option}={given!r} is not one of {', '.join(known)}"
        raise BadSetting(message)


@dataclass(frozen=True, slots=True)
class Levels:
    """Cassandra's consistency levels: `consistency` for plain requests, `serial` for commits and exact reads.

    `reads` is the level of plain reads. Default: `consistency`.
    """

    consistency: str = "local_quorum"
    serial: str = "local_serial"
    reads: str | None = None

    def __post_init__(self) -> None:
        """Raise BadSetting for levels that would break a promise of `Store`."""
        _one_of("consistency", self.consistency, _CONSISTENCY)
        _one_of("serial", self.serial, _SERIAL)
        _one_of("reads", self.reads or ANY_ONE, (*_CONSISTENCY, ANY_ONE))
        fitting = _SERIAL[self.serial]
        if self.consistency not in fitting:
            message = (
                f"serial={self.serial} cannot be combined with consistency={self.consistency}, which may miss commits: "
                f"add consistency={fitting[0]} or consistency={fitting[1]} to the URL"
            )
            raise BadSetting(message)

    @property
    def is_local(self) -> bool:
        """Whether one data centre decides a commit."""
        return self.serial == "local_serial"


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of an encrypted connection; without `ca` the system's authorities are trusted."""

    mode: str = "full"
    ca: str | None = None
    cert: str | None = None
    key: str | None = field(default=None, repr=False)

    def context(self) -> ssl.SSLContext:
        """The context of the connections; an unreadable file raises BadSetting."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.check_hostname = self.mode == "full"
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            message = (
                f"a certificate or key for Cassandra is not usable ({error}); "
                "check the options ca, cert and key of the URL"
            )
            raise BadSetting(message) from error
        return context


@dataclass(frozen=True, slots=True)
class Address:
    """The contact points and the options of a URL; its `repr` has no password."""

    contact_points: tuple[str, ...]
    keyspace: str
    port: int = PORT
    user: str = ""
    password: str = field(default="", repr=False)
    dc: str = ""
    levels: Levels = Levels()
    tls: Tls | None = None
    password_file: Path | None = None

    @classmethod
    def of(cls, location: Location) -> Self:
        """The address in a URL; a missing or invalid part raises BadSetting, whose text never repeats the password.

        Without a password in the URL it is that of its `password_file`, or else that in the environment.
        """
        location.only(_OPTIONS)
        login, _, rest = location.quoted.rpartition("@")
        user, password = (unquote(part) for part in login.partition(":")[::2])
        nodes, keyspace = (unquote(part) for part in rest.partition("/")[::2])
        contact_points, port = parsed_contact_points(nodes)
        if not keyspace:
            message = f"a cassandra URL names a keyspace: {_EXAMPLE}"
            raise BadSetting(message)
        options = location.options
        levels = Levels(
            options.get("consistency", "local_quorum").lower(), options.get("serial", "local_serial").lower()
        )
        file = _password_file(options, user, password)
        address = cls(
            contact_points=contact_points,
            keyspace=checked_keyspace(keyspace),
            port=port,
            user=user,
            password=password or ("" if file or not user else os.environ.get(IN_ENVIRONMENT, "")),
            dc=options.get("dc", ""),
            levels=levels,
            tls=_tls(options),
            password_file=file,
        )
        if address.shows_login and not options.get("tls"):
            message = (
                "the login in this URL would cross the network unencrypted: add tls=1 to the URL, or tls=chain "
                "if certificates have no addresses; tls=0 allows it, for a network on which only the servers listen"
            )
            raise BadSetting(message)
        return address

    @property
    def login_in_clear(self) -> bool:
        """Whether user and password are sent without encryption, to whichever machine."""
        return bool(self.user) and self.tls is None

    @property
    def shows_login(self) -> bool:
        """Whether user and password are sent to another machine of the URL without encryption."""
        return self.login_in_clear and not all(map(is_here, self.contact_points))

    @property
    def shown(self) -> str:
        """The contact points, the port and the data centre, for errors and logs."""
        return f"Cassandra at {', '.join(self.contact_points)} port {self.port}" + (
            f", data centre {self.dc}" if self.dc else ""
        )


def _password_file(options: dict[str, str], user: str, password: str) -> Path | None:
    named = options.get("password_file")
    if named is None:
        return None
    if not user or password:
        message = "password_file requires a user without a password in the URL: cassandra://user@host/keyspace"
        raise BadSetting(message)
    return Path(named).absolute()


def read_password(file: Path) -> str:
    """The content of the file without a final newline; an unreadable or empty file raises BadSetting."""
    try:
        password = file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        message = (
            f"the password_file {file} cannot be read ({getattr(error, 'strerror', None) or 'it is not UTF-8 text'})"
        )
        raise BadSetting(message) from error
    if not password:
        message = f"the password_file {file} is empty: it must contain the password and nothing else"
        raise BadSetting(message)
    return password


def is_here(host: str) -> bool:
    """Whether this is a loopback address, whose traffic never leaves this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def checked_keyspace(name: str) -> str:
    """The name unchanged; an invalid name of a keyspace raises BadSetting."""
    if not _KEYSPACE.fullmatch(name):
        message = f"invalid keyspace name {name!r}: a letter, then letters, digits and underscores, 48 at most"
        raise BadSetting(message)
    return name


def parsed_contact_points(nodes: str) -> tuple[tuple[str, ...], int]:
    """The hosts of `host,host` or `host:port,host:port`, and their port; a literal IPv6 address is in brackets."""
    pairs = [_host_and_port(node.strip()) for node in nodes.split(",") if node.strip()]
    ports = {port or str(PORT) for _, port in pairs}
    if not pairs or not all(host for host, _ in pairs):
        message = f"Cassandra has at least one host: {_EXAMPLE}"
        raise BadSetting(message)
    port = ports.pop()
    if ports or not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        message = "hosts of Cassandra have one port, the same for all: host1,host2 or host1:9043,host2:9043"
        raise BadSetting(message)
    return tuple(host for host, _ in pairs), int(port)


def _host_and_port(node: str) -> tuple[str, str]:
    host, separator, port = node.partition("]:") if node.startswith("[") else node.partition(":")
    if separator and not port:
        port = "none"
    return host.strip("[]"), port


def _tls(options: dict[str, str]) -> Tls | None:
    files = {name: options[name] for name in ("ca", "cert", "key") if name in options}
    mode = _TLS.get(options.get("tls", "1" if files else "").lower())
    if mode is None:
        message = (
            f"unknown tls={options['tls']!r}; it is 1 (certificate and host name are checked), "
            "chain (the certificate only) or 0"
        )
        raise BadSetting(message)
    if mode == "no" and files:
        message = "the options ca, cert and key require an encrypted connection; omit them or put tls=1 into the URL"
        raise BadSetting(message)
    if "key" in files and "cert" not in files:
        message = "option 'key' requires 'cert'"
        raise BadSetting(message)
    return None if mode == "no" else Tls(mode, **files)
