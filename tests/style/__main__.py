"""`python -m tests.style`: say what breaks the rules of the house, a line each, and fail if anything does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.style.habits import habits
from tests.style.sizes import sizes
from tests.style.source import Finding, sources
from tests.style.words import words, words_of_pages

ROOT: Final = Path(__file__).parents[2]


def findings(root: Path) -> Iterator[Finding]:
    """Everything in the project that breaks a rule of the house."""
    for source in sources(root):
        yield from sizes(source)
        yield from habits(source)
        yield from words(source)
    yield from words_of_pages(root)


def main() -> int:
    """Print the findings; 1 if there are any."""
    found = sorted(findings(ROOT))
    sys.stdout.writelines(f"{finding}\n" for finding in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
