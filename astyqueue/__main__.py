"""`python -m astyqueue` is the command `astyqueue`."""

from __future__ import annotations

from astyqueue.cli import main

if __name__ == "__main__":
    main(prog_name="astyqueue")
