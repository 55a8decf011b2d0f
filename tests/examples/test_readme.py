"""What the README shows works: its blocks are run one after the other in one folder, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.places import Place

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED: Final = re.compile(r"# (\w+\.py)\n")
#: What sets up an environment; it was done before any test could run.
_URL: Final = re.compile(r"sqlite:///\w+\.db")
_INSTALLS: Final = re.compile(r"-m venv|pip install")

BLOCKS: Final = [(language, text) for language, text in _BLOCK.findall(README)]
EXPECTED: Final = {
    "from astyqueue import connect": ["deliver {'to': 'ada@example.org'}"],
    "python shop.py": ["welcome ada@example.org (fr)"],
    "export ASTYQUEUE_URL": ["emails ", "nobody is no address"],
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each block printed."""
    folder = tmp_path_factory.mktemp("readme")
    return {text: run(language, text, folder) for language, text in BLOCKS if not _INSTALLS.search(text)}


def run(language: str, text: str, folder: Path) -> str:
    if language == "python":
        named = _NAMED.match(text)
        file = folder / (named[1] if named else "block.py")
        file.write_text(text)
        if named:
            return ""
        command = [sys.executable, file.name]
    else:
        command = ["bash", "-euo", "pipefail", "-c", text]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, f"{text}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.mark.parametrize(("begins", "says"), EXPECTED.items())
def test_a_block_of_the_readme_prints_what_the_text_around_it_promises(begins: str, says: list[str], said: dict[str, str]) -> None:
    [printed] = [out for text, out in said.items() if text.startswith(begins)]
    assert [line for line in says if line not in printed] == []


@pytest.mark.stores("cassandra")
def test_the_readme_is_right_on_another_store_by_a_change_of_url(place: Place, tmp_path: Path) -> None:
    url = place.url
    printed = "".join(run(language, _URL.sub(url, text), tmp_path) for language, text in BLOCKS if not _INSTALLS.search(text))
    assert [line for says in EXPECTED.values() for line in says if line not in printed] == []


def test_every_block_of_the_readme_was_run() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
    assert list(skipped()) == ["python3 -m venv .venv\n.venv/bin/pip install .\n"]


def skipped() -> Iterator[str]:
    return (text for _, text in BLOCKS if _INSTALLS.search(text))


def test_the_targets_of_make_that_the_readme_names_are_there() -> None:
    targets = re.findall(r"\bmake (\w+)", README)
    assert "demo" in targets
    assert set(targets) <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
