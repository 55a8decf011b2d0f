"""Each option of `astyqueue worker` from the command line, the environment and a file, as the reference lists them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click
import pytest

from astyqueue.cli import main
from astyqueue.cli.commands.worker import worker
from tests.unit.cli.reference import flag, key, variables

#: A value of each option, other than its default.
VALUES: Final = {
    "--queues": "emails:3,default",
    "--limit": "emails=2,sms.*=5",
    "--prefetch": "20",
    "--concurrency": "3",
    "--coroutines": "50",
    "--child-processes": "3",
    "--max-messages-per-child": "100",
    "--max-child-rss": "256MiB",
    "--blocked-after": "250ms",
    "--processes": "2",
    "--drain-timeout": "5s",
    "--burst": True,
    "--no-schedule": True,
    "--max-messages": "7",
    "--max-stuck": "2",
    "--max-rss": "512MiB",
    "--heartbeat": "5s",
    "--stall-after": "1m",
    "--on-stall": "exit",
    "--health": "8080",
    "--reload": True,
    "--log-level": "debug",
    "--log-format": "json",
    "--spool": "other/spool",
    "--url": "sqlite:///other.db",
}
OPTIONS: Final = [one for one in worker.params if isinstance(one, click.Option) and one.name != "verbose"]


def parsed(*words: str) -> dict[str, Any]:
    """The options of a worker as they are parsed."""
    with main.make_context("astyqueue", ["worker", "jobs:app", *words]) as group:
        name, command, rest = main.resolve_command(group, ["worker", "jobs:app", *words])
        assert command is not None
        with command.make_context(name, rest, parent=group) as context:
            return context.params


@pytest.mark.parametrize("option", OPTIONS, ids=flag)
def test_an_option_is_the_same_wherever_it_was_set(
    option: click.Option, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = VALUES[flag(option)]
    typed = parsed(flag(option), *([] if value is True else [str(value)]))[str(option.name)]
    assert typed != parsed()[str(option.name)]
    for variable in variables("worker", option):
        with monkeypatch.context() as patched:
            patched.setenv(variable, "1" if value is True else str(value))
            assert parsed()[str(option.name)] == typed
    written = "true" if value is True else f'"{value}"'
    (folder / "astyqueue.toml").write_text(f"[worker]\n{key(option)} = {written}\n")
    assert parsed()[str(option.name)] == typed


def test_an_event_loop_that_is_blocked_for_no_time_cannot_be_asked_for() -> None:
    for given in ("0", "0.0009"):
        with pytest.raises(click.BadParameter, match=f"{given} is too short: give at least 1ms"):
            parsed("--blocked-after", given)
    assert parsed("--blocked-after", "1ms")["blocked_after"] == timedelta(milliseconds=1)


@pytest.mark.parametrize("written", ["WARNING", "Warning", "warning"])
def test_a_log_level_is_the_same_in_any_case(folder: Path, monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    assert parsed("--log-level", written)["log_level"] == "warning"
    with monkeypatch.context() as patched:
        patched.setenv("ASTYQUEUE_LOG_LEVEL", written)
        assert parsed()["log_level"] == "warning"
    (folder / "astyqueue.toml").write_text(f'[worker]\nlog-level = "{written}"\n')
    assert parsed()["log_level"] == "warning"
