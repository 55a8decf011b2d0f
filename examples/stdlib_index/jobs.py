"""The app that workers run: `astyqueue worker examples.stdlib_index.jobs:app -Q stdlib`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

from astyqueue import App, Reject
from examples.stdlib_index.facts import facts_of
from examples.stdlib_index.index import Index
from examples.stdlib_index.library import LIBRARY

#: Where the demo keeps its files, and its queue: in a file among them, unless the demo has told its workers of another store.
FOLDER_VARIABLE: Final = "STDLIB_INDEX_FOLDER"
FOLDER: Final = Path(os.environ.get(FOLDER_VARIABLE, "build/demo"))
URL_VARIABLE: Final = "STDLIB_INDEX_URL"
QUEUE: Final = "stdlib"

app = App(os.environ.get(URL_VARIABLE, f"sqlite:///{quote(str(FOLDER / 'queue.db'))}"))
# What a killed worker held is handed out again this long after it last renewed it: short, because somebody is watching.
app.queue(QUEUE, lease="3s", max_attempts=3, backoff="1s")
index = Index(FOLDER / "index.db")


@app.task(queue=QUEUE)
def index_file(path: str) -> None:
    """Read one file of the library, and keep what is found under its path: done twice, it comes to the same."""
    index.begin(path)
    try:
        facts = facts_of((LIBRARY / path).read_bytes())
    except (SyntaxError, ValueError, RecursionError) as error:
        index.finish(path, None)
        # No later attempt would find another file, so this one is not to be tried again.
        raise Reject(reason_of(error)) from error
    index.finish(path, facts)


def reason_of(error: Exception) -> str:
    """Why a file cannot be parsed, in one plain line."""
    if not isinstance(error, SyntaxError):
        return str(error)
    return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
