"""The app whose worker `benchmarks steady` runs, on the store of ASTYQUEUE_URL.

`astyqueue worker benchmarks.processes.steady_app:app`
"""

from __future__ import annotations

from typing import Final

from astyqueue import App

QUEUE: Final = "steady"

app = App()


@app.task(queue=QUEUE)
def note(number: int) -> None:
    """Do nothing: what is measured is what it costs to be called."""
    del number
