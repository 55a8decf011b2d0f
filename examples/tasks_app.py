"""Tasks: functions whose calls are messages. One fails and is tried again, one becomes a dead letter and is redriven.

Run it as it is, or send only and let `astyqueue worker examples.tasks_app:app` do the work.
"""

from __future__ import annotations

from astyqueue import App, Reject, Retry
from astyqueue.tasks.current import current_delivery

app = App("sqlite:///tasks_app.db")
app.queue("emails", lease="1m", max_attempts=5)

ADDRESSES = {"ada": "ada@example.org"}


@app.task(queue="emails")
def welcome(name: str, lang: str = "en") -> None:
    """Pretend to welcome somebody; the mail server is down at the first attempt."""
    if name not in ADDRESSES:
        raise Reject(f"nobody knows the address of {name}")
    if current_delivery().attempt == 1:
        raise Retry("0.1s", reason="the mail server does not answer")
    print(f"welcomed {ADDRESSES[name]} ({lang}) at attempt {current_delivery().attempt}")
