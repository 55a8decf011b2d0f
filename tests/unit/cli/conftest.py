"""Commands in an empty directory of their own, as a person would type them, on a store that outlives each command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result

from astyqueue.cli import main
from astyqueue.queue.connection import Connection, connect
from tests.support.places import ONE_ROW, Place


class Shell:
    """Runs commands; `ASTYQUEUE_URL` is set."""

    def __init__(self) -> None:
        self._runner = CliRunner()

    def __call__(self, *words: str, stdin: str | bytes | None = None, code: int = 0) -> Result:
        """What a command prints; its exit code must be this one."""
        result = self._runner.invoke(main, words, input=stdin, prog_name="astyqueue")
        assert result.exit_code == code, (words, result.output, result.exception)
        return result

    def json(self, *words: str) -> list[Any]:
        """What a command prints with `--json`."""
        return [json.loads(line) for line in self(*words, "--json").stdout.splitlines()]

    def error(self, *words: str, code: int, stdin: str | bytes | None = None) -> str:
        """The one line that a command fails with."""
        result = self(*words, code=code, stdin=stdin)
        assert result.stdout == ""
        [line] = result.stderr.splitlines()
        return line

    def usage_error(self, *words: str) -> str:
        """What a command says of its options that are wrong, after the line with its usage."""
        result = self(*words, code=2)
        assert result.stdout == ""
        usage, try_help, empty, error = result.stderr.splitlines()
        assert usage.startswith("Usage: astyqueue ")
        assert (try_help.startswith("Try 'astyqueue "), empty) == (True, "")
        return error


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, empty."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def url(place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The store of the commands, as `ASTYQUEUE_URL` names it."""
    assert folder.exists()
    url = place.url
    monkeypatch.setenv("ASTYQUEUE_URL", url)
    return url


@pytest.fixture
def shell(url: str) -> Shell:
    """Commands on the store at `url`."""
    assert url
    return Shell()


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    """The store that the commands look at, with an empty queue `emails`."""
    with connect(url) as connection:
        connection.queue("emails", **ONE_ROW)
        yield connection


@pytest.fixture
def buried(connection: Connection) -> Callable[..., list[str]]:
    """Makes dead letters of queue `emails`; their ids."""

    def bury(*reasons: str, task: str = "welcome") -> list[str]:
        queue = connection.queue("emails")
        ids = []
        for reason in reasons:
            queue.send({"why": reason}, headers={"task": task})
            [delivery] = queue.receive()
            delivery.reject(reason)
            ids.append(str(delivery.message_id))
        return ids

    return bury


#: Seconds within which a process must end; only a failing test takes this long.
DEADLINE: Final = 60


def run(*words: str, closed: str = "", out: int = subprocess.PIPE, err: int = subprocess.PIPE) -> tuple[int, str, str]:
    """Run a command with the descriptors `closed` as a shell closes them; its exit code, stdout and stderr."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "astyqueue", *words]
    done = subprocess.run(command, stdout=out, stderr=err, text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout or "", done.stderr or ""
