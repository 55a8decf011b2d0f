"""Processes that use one file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stores.sqlite.programs import BEGINNING, Start


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mail.db'}?synchronous=normal"


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Starts processes that run a program text; none of them outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def run(text: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, "-c", BEGINNING + text, url], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        with process:
            process.kill()
