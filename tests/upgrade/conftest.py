from __future__ import annotations

import shutil
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

#: The version to upgrade from: the last one whose processes refuse settings that they do not know.
PREVIOUS: Final = "e22f3c00195e358e4670cdc3c4b5b6d23b291191"
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous version, taken from the history of this repository; whole, because its tables may be in `schema`."""
    git = shutil.which("git") or "git"
    archive = subprocess.run([git, "archive", PREVIOUS], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the previous version is not in the history of this copy: {archive.stderr.decode().strip()}")
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder
