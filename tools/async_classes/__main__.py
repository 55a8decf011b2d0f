"""`python -m tools.async_classes`: write the modules of `astyqueue.aio`; `--check` only says which are out of date."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tools.async_classes.twins import ROOT, TWINS

_CHECK: Final = "--check"


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write the modules; with `--check`, 1 if any is not as it would be written; 2 for anything else, and no write."""
    if arguments not in ([], [_CHECK]):
        sys.stderr.write(f"unknown argument {' '.join(arguments)}: give {_CHECK}, or none to write the modules\n")
        return 2
    stale = 0
    for twin in TWINS:
        file, text = root / twin.path, twin.written(root)
        if file.exists() and file.read_text(encoding="utf-8") == text:
            continue
        if arguments == [_CHECK]:
            sys.stdout.write(f"{twin.path} is not what 'make aio' writes\n")
            stale = 1
        else:
            file.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {twin.path}\n")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
