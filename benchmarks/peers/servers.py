"""The servers that the other systems need, each on a free port of this machine, with its defaults, in a new folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from astyqueue.units import SECOND
from astyqueue.waiting import Wakeup
from benchmarks.target import CLOCK
from benchmarks.workload import NotMeasured

_PATIENCE: Final = 30 * SECOND
_GLANCE: Final = SECOND // 20
_LOOPBACK: Final = "127.0.0.1"
_USER: Final = "postgres"


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: the URL that its clients are given, and its process; None for a file."""

    url: str
    pid: int | None = None


@contextlib.contextmanager
def sqlite(*, as_url: bool) -> Iterator[Server]:
    """A new file, as a URL of astyqueue or as a path."""
    with tempfile.TemporaryDirectory(prefix="peer-") as directory:
        file = Path(directory) / "queue.db"
        yield Server(f"sqlite:///{file}" if as_url else str(file))


@contextlib.contextmanager
def redis() -> Iterator[Server]:
    """Redis as Debian starts it: in memory, with a snapshot now and then."""
    command = _found("redis-server", "install Debian's package redis-server")
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="peer-") as directory:
        arguments = [command, "--bind", _LOOPBACK, "--port", str(port), "--dir", directory]
        with _running(arguments, port) as pid:
            yield Server(f"redis://{_LOOPBACK}:{port}/0", pid)


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    """PostgreSQL with the schema of PgQueuer; it refuses to run as root, which starts it as the user `postgres`."""
    initdb, postgres = _postgresql("initdb"), _postgresql("postgres")
    pgq = peers_environment() / "bin" / "pgq"
    port, user = _free_port(), _USER if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="peer-") as directory:
        data = Path(directory) / "data"
        if user:
            shutil.chown(directory, user, user)
        made = [initdb, "-D", str(data), "-A", "trust", "-U", _USER]
        subprocess.run(made, check=True, capture_output=True, user=user, cwd=directory)
        arguments = [postgres, "-D", str(data), "-h", _LOOPBACK, "-p", str(port), "-k", directory]
        with _running(arguments, port, user=user, directory=directory) as pid:
            url = f"postgresql://{_USER}@{_LOOPBACK}:{port}/postgres"
            subprocess.run([pgq, "--pg-dsn", url, "install"], check=True, capture_output=True)
            yield Server(url, pid)


@contextlib.contextmanager
def _running(
    arguments: list[str], port: int, *, user: str | None = None, directory: str | None = None
) -> Iterator[int]:
    """A server while the block lasts, from when its port answers."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(arguments, stdout=quiet, stderr=quiet, user=user, cwd=directory) as process:
        try:
            _await_port(arguments[0], port, process)
            yield process.pid
        finally:
            process.terminate()


def _await_port(name: str, port: int, process: subprocess.Popen[bytes]) -> None:
    until, wakeup = CLOCK.monotonic() + _PATIENCE, Wakeup(CLOCK)
    while CLOCK.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((_LOOPBACK, port), timeout=1):
            return
        wakeup.wait(CLOCK.monotonic() + _GLANCE)
    raise NotMeasured(f"{name} does not answer")


def _free_port() -> int:
    with socket.create_server((_LOOPBACK, 0)) as found:
        return int(found.getsockname()[1])


def _postgresql(command: str) -> str:
    """A command of PostgreSQL: on the path, or where Debian puts those of the newest version."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{command}"))
    return str(places[-1]) if places else _found(command, "install Debian's package postgresql")


def _found(command: str, remedy: str) -> str:
    path = shutil.which(command)
    if path is None:
        raise NotMeasured(f"there is no {command}: {remedy}")
    return path


def peers_environment() -> Path:
    """An environment with the other systems, made at the first call, in `build/`."""
    place = Path(__file__).parents[2] / "build" / "peers"
    requirements, mark = Path(__file__).parent / "requirements.txt", place / "installed.txt"
    if not mark.exists() or mark.read_text() != requirements.read_text():
        base = shutil.which("python3") or "python3"
        subprocess.run([base, "-m", "venv", "--clear", place], check=True)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
        if subprocess.run(pip, check=False).returncode:
            raise NotMeasured("the other systems could not be installed by pip")
        mark.write_text(requirements.read_text())
    return place
