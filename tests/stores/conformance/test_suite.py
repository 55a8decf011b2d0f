"""The suite can fail: each store that breaks a promise fails it, also under `python -O` and without any conftest."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.stores.conformance.defective_stores import DEFECTIVE

DEFECTIVE_STORES = Path(__file__).with_name("defective_stores.py")


def test_the_suite_fails_each_defective_store_also_when_python_is_optimised() -> None:
    settings = ["--noconftest", "-p", "no:cacheprovider", "-q", "--tb=no", "-rf"]
    ran = subprocess.run(
        [sys.executable, "-O", "-m", "pytest", *settings, str(DEFECTIVE_STORES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    caught = re.findall(r"^FAILED .*\[(?:.*-)?(\w+)(?:-.*)?\]", ran.stdout, re.MULTILINE)
    assert {kind.__name__ for kind in DEFECTIVE} == {name for name in caught if name[:1].isupper()}, ran.stdout
