"""The how-to pages: their commands and programs work, and their tables of policies are what the policies do."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import pytest

from astyqueue import Vetoed, aio
from astyqueue.cli import main
from tests.cassandra import runbooks
from tests.cassandra.runbooks import ANYWHERE, section, steps
from tests.unit.protocol import policy_model

RUNBOOK_TESTS: Final = Path(__file__).parents[1] / "cassandra"
HEADINGS: Final = re.findall(r"^#{2,} .+$", runbooks.PAGE.read_text(), re.MULTILINE)
_FOLLOWED: Final = re.compile(r"\"(#{2,} [^\"]+)\"")


TESTING: Final = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"
ASYNC_SERVICES: Final = TESTING.with_name("async-services.md")
_BLOCK: Final = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def written(page: Path, folder: Path) -> Path:
    """The folder, with the programs of the page, each in the file that its first line names."""
    for name, text in _BLOCK.findall(page.read_text()):
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("heading", [heading for heading in HEADINGS if steps(section(heading))])
def test_the_commands_of_a_runbook_are_carried_out_by_a_test_or_it_says_that_no_test_runs_them(heading: str) -> None:
    followed = {found for source in RUNBOOK_TESTS.glob("test_*.py") for found in _FOLLOWED.findall(source.read_text())}
    assert heading in followed or "no test runs" in section(heading).lower()


def test_every_command_of_the_runbooks_has_the_options_that_it_is_given() -> None:
    typed = [
        shlex.split(step.command) for heading in HEADINGS for step in steps(section(heading)) if step.where == ANYWHERE
    ]
    own = [words[1:] for words in typed if words[0] == "astyqueue"]
    assert len(own) > 0
    for words in own:
        name, command, rest = main.resolve_command(click.Context(main), words)
        assert command is not None, words
        command.make_context(name, list(rest), resilient_parsing=False)


@pytest.mark.parametrize(
    ("program", "least"), [("test_reminders.py", 1), ("test_failures.py", 3), ("test_my_store.py", 100)]
)
def test_the_tests_on_the_page_on_testing_pass_for_a_user(program: str, least: int, tmp_path: Path) -> None:
    folder = written(TESTING, tmp_path)
    folder.joinpath("conftest.py").unlink()  # its fixtures are for tests on Cassandra: tests/cassandra runs those
    command = [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider", program]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.splitlines()[-1].split(" passed")[0]) >= least


def test_the_dispatcher_on_the_page_on_services_runs_in_the_loop_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [block] = re.findall(r"^```python\n(async with .*?)^```$", ASYNC_SERVICES.read_text(), re.MULTILINE | re.DOTALL)
    handled: asyncio.Queue[object] = asyncio.Queue()

    async def handle(delivery: aio.Delivery) -> None:
        await handled.put(delivery.body)

    async def serve_requests() -> None:
        async with await aio.connect("sqlite:///shop.db") as store:
            await (await store.queue("emails")).send("ada")
        assert await handled.get() == "ada"

    names: dict[str, Any] = {"aio": aio, "handle": handle, "serve_requests": serve_requests}
    exec(f"async def service():\n{textwrap.indent(block, '    ')}", names)  # noqa: S102 - what the page shows
    asyncio.run(names["service"]())


@pytest.mark.parametrize("table", policy_model.TABLES, ids=[table.__name__ for table in policy_model.TABLES])
def test_the_page_on_schedules_says_what_each_policy_does(table: Callable[[], list[str]]) -> None:
    """`python -m tests.unit.protocol.policy_model` writes them anew."""
    assert "\n".join(table()) in policy_model.PAGE.read_text()


def code_on_observing() -> list[str]:
    page = TESTING.with_name("observe.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def test_the_observer_of_the_page_on_observing_counts(capsys: pytest.CaptureFixture[str]) -> None:
    [code, _] = code_on_observing()
    exec(code, {})  # noqa: S102 - the code of a page of this project
    assert capsys.readouterr().out == "1 1\n"


def test_the_hook_of_the_page_on_observing_refuses_a_send_and_records_how_messages_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    [_, code] = code_on_observing()
    recorded: list[str] = []
    names: dict[str, Any] = {"record": lambda _, how: recorded.append(how)}
    exec(code, names)  # noqa: S102 - as above
    with names["store"] as store:
        emails = store.queue("emails")
        with pytest.raises(Vetoed):
            emails.send("hello")
        emails.send({"to": "ada"})
        emails.receive().ack()
        emails.send({"to": "grace"})
        emails.clear()
    assert recorded == ["acked", "cleared"]
