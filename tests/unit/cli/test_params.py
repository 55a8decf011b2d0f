"""The types of options: what they read from text and from the values of a file, and what they refuse."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest

from astyqueue.cli.params import Address, ByteSize, DurationText, Limits, Moment, QueueSetting, Weights
from astyqueue.clock import SystemClock, instant
from astyqueue.queue.connection import Connection
from tests.unit.cli.conftest import Shell

NINE = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        (DurationText(), "1h30m", timedelta(hours=1, minutes=30)),
        (DurationText(), 0.5, timedelta(milliseconds=500)),
        (DurationText(least="1s"), "1s", timedelta(seconds=1)),
        (Moment(), "2026-11-21T10:00:00+01:00", NINE),
        (Moment(), NINE, NINE),
        (Moment(ages=True), "2026-11-21T09:00:00Z", NINE),
        (ByteSize(), "512KiB", 524_288),
        (ByteSize(), "1000", 1_000),
        (ByteSize(), 1_000, 1_000),
        (Address(), "8080", ("127.0.0.1", 8080)),
        (Address(), 8080, ("127.0.0.1", 8080)),
        (Address(), "[::]:80", ("::", 80)),
        (Weights(), "emails:3, mail.*", {"emails": 3, "mail.*": 1}),
        (Limits(), "mail=5,sms.*=2", {"mail": 5, "sms.*": 2}),
        (QueueSetting(), "max-attempts=7", ("max_attempts", 7)),
        (QueueSetting(), "sort_classes=10", ("sort_classes", "10")),
        (QueueSetting(), "paused=Yes", ("paused", True)),
    ],
)
def test_what_was_given_becomes_a_value(kind: click.ParamType, given: object, value: object) -> None:  # type: ignore[type-arg]  # only newer versions of click have one
    assert kind.convert(given, None, None) == value


def test_an_age_is_a_moment_before_now() -> None:
    before = instant(SystemClock().now())
    found = Moment(ages=True).convert("2h", None, None)
    assert before <= found + timedelta(hours=2) <= instant(SystemClock().now())


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (DurationText(), "soon", "'soon' is not a duration: give seconds"),
        (DurationText(), True, "True is not a duration"),
        (DurationText(least="1s"), "10ms", "10ms is too short: give at least 1s"),
        (Moment(), "2h", "'2h' is not a moment: write 2026-11-21T09:00:00Z"),
        (Moment(), datetime(2026, 11, 21), "has no time zone"),  # noqa: DTZ001 - that is the point
        (Moment(ages=True), "noon", "or 2h for two hours ago"),
        (ByteSize(), "much", "the size is 'much': give bytes, or text such as"),
        (ByteSize(), -1, "the size is -1"),
        (Address(), "nowhere", "invalid address 'nowhere': give HOST:PORT or PORT"),
        (Address(), "127.0.0.1:70000", "invalid address"),
        (Weights(), "emails:x", "as in emails:3,default"),
        (Weights(), "emails,emails", "name each queue once"),
        (Limits(), "mail", "as in mail=5,sms=2"),
        (Limits(), "mail=0", "with a number from 1 up"),
        (QueueSetting(), "lease=", "write NAME=VALUE"),
    ],
)
def test_what_is_no_value_is_an_error_of_usage(kind: click.ParamType, given: object, told: str) -> None:  # type: ignore[type-arg]  # only newer versions of click have one
    with pytest.raises(click.BadParameter) as caught:
        kind.convert(given, None, None)
    assert told in caught.value.message


@pytest.mark.parametrize(
    "words",
    [
        ["browse", "emails", "--since"],
        ["history", "emails", "--until"],
        ["dead", "list", "emails", "--since"],
        ["dead", "redrive", "emails", "--until"],
        ["rescan", "emails", "--since"],
        ["schedules", "add", "emails", "digest", "--every"],
        ["schedules", "add", "emails", "digest", "--at"],
        ["schedules", "backfill", "emails", "digest", "--until", "1h", "--since"],
        ["pipeline", "run", "--out", "tables", "--since"],
        ["pipeline", "run", "--out", "tables", "--lateness"],
        ["pipeline", "stream", "--out", "tables", "--watermark"],
        ["worker", "jobs:app", "--max-child-rss"],
        ["worker", "jobs:app", "--health"],
    ],
    ids=" ".join,
)
def test_each_command_names_the_option_that_is_wrong(shell: Shell, words: list[str]) -> None:
    assert shell.usage_error(*words, "soon").startswith(f"Error: Invalid value for '{words[-1]}': ")


def test_a_value_in_the_file_that_is_wrong_is_named_too(shell: Shell, folder: Path) -> None:
    (folder / "astyqueue.toml").write_text('[worker]\napp = "jobs:app"\nheartbeat = "soon"\n')
    told = shell("worker", code=2).stderr
    assert f"'--heartbeat' (from {folder / 'astyqueue.toml'}): 'soon' is not a duration" in told


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--delay=-5"], "for '--delay': '-5' is not a duration: give seconds (90 or 0.5)"),
        (["--expires", "soon"], "for '--expires': 'soon' is not a duration"),
        (["--lease", "5x"], "for '--lease': '5x' is not a duration"),
        (["--at", "2026-11-21"], "for '--at': '2026-11-21' has no time zone: write 2026-11-21T00:00:00Z for UTC"),
        (["--at", "noon"], "for '--at': 'noon' is not a moment: write 2026-11-21T09:00:00Z"),
        (["--at", "2h"], "for '--at': '2h' is not a moment"),
    ],
)
def test_an_option_that_is_wrong_is_named_after_the_usage(
    shell: Shell, connection: Connection, options: list[str], told: str
) -> None:
    assert told in shell.usage_error("send", "emails", "1", *options)
    assert connection.queue("emails").counts().total == 0


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("lease", "invalid setting 'lease': write NAME=VALUE"),
        ("paused=maybe", "invalid value 'maybe' for paused: write yes or no"),
    ],
)
@pytest.mark.usefixtures("connection")
def test_a_setting_that_cannot_be_read_is_named_after_the_usage(shell: Shell, setting: str, told: str) -> None:
    before = shell.json("queues", "show", "emails")
    assert told in shell.usage_error("queues", "set", "emails", "max_attempts=3", setting)
    assert shell.json("queues", "show", "emails") == before
