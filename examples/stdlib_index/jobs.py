"""The app that workers run: `astyqueue worker examples.stdlib_index.jobs:app -Q stdlib`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

from astyqueue import App, Reject
from examples.stdlib_index.facts import LIBRARY, facts_of
from examples.stdlib_index.index import Index

#: The folder of the demo's files. Its queue is in one of them, unless the variable STDLIB_INDEX_URL names another
#: store.
FOLDER_VARIABLE: Final = "STDLIB_INDEX_FOLDER"
FOLDER: Final = Path(os.environ.get(FOLDER_VARIABLE, "build/demo"))
URL_VARIABLE: Final = "STDLIB_INDEX_URL"
QUEUE: Final = "stdlib"

app = App(os.environ.get(URL_VARIABLE, f"sqlite:///{quote(str(FOLDER / 'queue.db'))}"))
# Messages of a killed worker are due again when their lease ends: short, because the user waits for it.
app.queue(QUEUE, lease="3s", max_attempts=3, backoff="1s")
index = Index(FOLDER / "index.db")


@app.task(queue=QUEUE)
def index_file(path: str) -> None:
    """Read one file of the library and store its facts under its path; idempotent."""
    index.begin(path)
    try:
        facts = facts_of((LIBRARY / path).read_bytes())
    except (SyntaxError, ValueError, RecursionError) as error:
        index.finish(path, None)
        # The file would be the same at a later attempt, so this message must not be retried.
        raise Reject(reason_of(error)) from error
    index.finish(path, facts)


def reason_of(error: Exception) -> str:
    """The reason why a file cannot be parsed, in one line."""
    if not isinstance(error, SyntaxError):
        return str(error)
    return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
