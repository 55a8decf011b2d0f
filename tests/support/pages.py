"""The programs that a page of the documents shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

TESTING: Final = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"
_BLOCK: Final = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def written(page: Path, folder: Path) -> Path:
    """The folder, with the programs of the page, each in the file that its first line names."""
    for name, text in _BLOCK.findall(page.read_text()):
        (folder / name).write_text(text)
    return folder
