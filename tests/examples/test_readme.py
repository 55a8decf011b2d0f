"""What the README shows works: its blocks are typed one after the other into one shell, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

import pytest

from tests.support.places import Place

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "README.md").read_text()
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED: Final = re.compile(r"# (\w+\.py)\n")
_URL: Final = re.compile(r"sqlite:///\w+\.db")
#: Between what the blocks print.
_NEXT: Final = "--- next block ---"
_INSTALL: Final = "python3 -m venv .venv\n. .venv/bin/activate\npip install .\n"
#: In the place of `pip install .`: the environment of the tests lends what it would fetch, so that it fetches nothing.
_LENT: Final = """
purelib=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\\n%s\\n' "$ROOT" "$PACKAGES" > "$purelib/lent.pth"
printf '#!/bin/sh\\nexec "%s/.venv/bin/python" -m astyqueue "$@"\\n' "$PWD" > .venv/bin/astyqueue
chmod +x .venv/bin/astyqueue
"""
#: The reader's Python.
_PYTHON3: Final = """#!/bin/sh
[ "$*" = "-m venv .venv" ] && set -- "$@" --without-pip
exec "REAL" "$@"
"""

BLOCKS: Final = _BLOCK.findall(README)
TYPED: Final = [text for language, text in BLOCKS if language == "sh"]
EXPECTED: Final = {
    "python mail.py": ["deliver {'to': 'ada@example.org'}"],
    "python shop.py": ["welcome ada@example.org (fr)"],
    "export ASTYQUEUE_URL": ["emails ", "nobody is not an email address"],
}


def typed(blocks: list[str], folder: Path, path: str) -> dict[str, str]:
    """What each of these blocks prints, typed into a shell that finds its commands on this path; by block."""
    for language, text in BLOCKS:
        if language == "python":
            named = _NAMED.match(text)
            assert named, f"the README does not say what this file is called:\n{text}"
            folder.joinpath(named[1]).write_text(_url_in(folder, text))
    script = f"echo '{_NEXT}'\n".join(blocks)
    environment = {
        "PATH": path,
        "HOME": str(folder),
        "ROOT": str(ROOT),
        "PACKAGES": sysconfig.get_path("purelib"),
        "LANG": "C.UTF-8",
    }
    command = ["bash", "-euo", "pipefail", "-c", _url_in(folder, script)]
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    return dict(zip(blocks, ran.stdout.split(f"{_NEXT}\n"), strict=True))


def _url_in(folder: Path, text: str) -> str:
    """The text for another store, if the folder says which."""
    other = folder / "url"
    return _URL.sub(other.read_text(), text) if other.exists() else text


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each block printed to a reader who has nothing but a Python called python3.

    That Python makes environments without pip, which takes most of the time of making one: nothing is installed.
    """
    folder = tmp_path_factory.mktemp("readme")
    python3 = folder / "bin/python3"
    python3.parent.mkdir()
    python3.write_text(_PYTHON3.replace("REAL", str(Path(sys.base_prefix) / "bin/python3")))
    python3.chmod(0o755)
    lent = [text.replace("pip install .\n", _LENT) for text in TYPED]
    printed = typed(lent, folder, f"{python3.parent}:/usr/bin:/bin")
    return dict(zip(TYPED, printed.values(), strict=True))


@pytest.mark.parametrize(("begins", "says"), EXPECTED.items())
def test_a_block_of_the_readme_prints_what_the_text_around_it_promises(
    begins: str, says: list[str], said: dict[str, str]
) -> None:
    [printed] = [out for text, out in said.items() if text.startswith(begins)]
    assert [line for line in says if line not in printed] == []


@pytest.mark.stores("cassandra")
@pytest.mark.every_store
def test_the_readme_is_right_on_another_store_by_a_change_of_url(place: Place, tmp_path: Path) -> None:
    tmp_path.joinpath("url").write_text(place.url)
    blocks = [text for text in TYPED if text != _INSTALL]
    printed = "".join(
        typed(blocks, tmp_path, f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}").values()
    )
    assert [line for says in EXPECTED.values() for line in says if line not in printed] == []


def test_every_block_of_the_readme_is_a_file_or_is_typed() -> None:
    assert {language for language, _ in BLOCKS} == {"python", "sh"}
    assert TYPED[0] == _INSTALL
    assert all(any(text.startswith(begins) for begins in EXPECTED) for text in TYPED[1:])


def test_the_targets_of_make_that_the_readme_names_are_there() -> None:
    targets = re.findall(r"\bmake (\w+)", README)
    assert "demo" in targets
    assert set(targets) <= set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
