"""`python -O` drops assert statements, but not those that pytest rewrote. Here is the proof that ours still bite."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

import astyqueue.testing
from tests.style.__main__ import ROOT

PLANTED = (
    "def test_that_python_is_optimised():\n    assert not __debug__\n\ndef test_that_fails():\n    assert 1 == 2\n"
)
SUITES = [module.name for module in pkgutil.walk_packages(astyqueue.testing.__path__, "astyqueue.testing.")]


def test_a_false_assertion_fails_under_o_as_well(tmp_path: Path) -> None:
    (tmp_path / "test_planted.py").write_text(PLANTED, encoding="utf-8")
    settings = ["-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-q"]
    ran = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", *settings, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "1 failed, 1 passed" in ran.stdout
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("suite", ["astyqueue.testing", *SUITES])
def test_the_assertions_of_a_shipped_suite_are_rewritten(suite: str) -> None:
    spec = find_spec(suite)
    assert spec is not None
    assert isinstance(spec.loader, AssertionRewritingHook)
