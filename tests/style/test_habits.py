from __future__ import annotations

import pytest

from tests.style.habits import habits
from tests.style.source import Source


def told(text: str, path: str = "astyqueue/planted.py") -> list[tuple[int, str]]:
    return [(finding.line, finding.what) for finding in habits(Source(path, text))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import time\ntime.time()", "time.time"),
        ("import time as t\nt.monotonic_ns()", "time.monotonic_ns"),
        ("from time import perf_counter as tick\ntick()", "time.perf_counter"),
        ("import time\nread = time.monotonic", "time.monotonic"),
        ("import datetime\ndatetime.datetime.now()", "datetime.datetime.now"),
        ("import datetime as dt\ndt.date.today()", "datetime.date.today"),
        ("from datetime import datetime as moment\nmoment.utcnow()", "datetime.datetime.utcnow"),
        ("from uuid import uuid1\nuuid1()", "uuid.uuid1"),
    ],
)
def test_a_clock_is_read_in_one_file_only(text: str, name: str) -> None:
    assert told(text) == [(2, f"{name} reads the clock")]
    assert told(text, "tests/unit/test_planted.py") == [(2, f"{name} reads the clock")]
    assert told(text, "astyqueue/stores/clock.py") == [(2, f"{name} reads the clock")]
    assert told(text, "astyqueue/clock.py") == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import time\ntime.sleep(1)", "time.sleep"),
        ("from asyncio import sleep\nsleep(0)", "asyncio.sleep"),
        ("import asyncio, threading\nthreading.Timer(1, print)", "threading.Timer"),
    ],
)
def test_sleeping_is_done_in_one_file_only(text: str, name: str) -> None:
    assert told(text) == [(2, f"{name} sleeps")]
    assert told(text, "tests/unit/test_planted.py") == [(2, f"{name} sleeps")]
    assert told(text, "astyqueue/waiting.py") == []


@pytest.mark.parametrize(
    "text", ["def now(): ...\nnow()", "time = clock.now()\ntime.sleep", "from .time import sleep\nsleep()"]
)
def test_what_only_sounds_like_a_clock_is_left_alone(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = 1  # TODO later", "TODO"),
        ('"""Good. FIXME: bad."""', "FIXME"),
        ("raise NotImplementedError", "NotImplementedError"),
        ("raise NotImplementedError('later')", "NotImplementedError"),
    ],
)
def test_what_was_left_unfinished_is_found(text: str, what: str) -> None:
    assert told(text) == [(1, what)]


def test_a_value_that_holds_such_a_word_is_not_unfinished_work() -> None:
    assert told('titles = ["TODO"]') == []


@pytest.mark.parametrize("names", ['["LIMIT", "App", "Zone", "connect"]', '("App", "__version__", "connect")', "[]"])
def test_sorted_public_names_are_accepted(names: str) -> None:
    assert told(f"__all__ = {names}", "astyqueue/__init__.py") == []


@pytest.mark.parametrize("names", ['["connect", "App"]', '["Zone", "App"]', '["App", "LIMIT"]'])
def test_unsorted_public_names_are_found(names: str) -> None:
    assert told(f"\n__all__ = {names}", "astyqueue/__init__.py") == [(2, "__all__ is not sorted")]


def test_a_package_that_does_not_list_its_public_names_is_found() -> None:
    assert told("", "astyqueue/__init__.py") == [(1, "there is no __all__")]
    assert told("", "astyqueue/queue/__init__.py") == []
