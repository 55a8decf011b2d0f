"""Tasks: functions whose calls are messages. One call fails and is retried; one becomes a dead letter and is redriven.

This program runs its own worker, on a SQLite file. `astyqueue worker examples.tasks_app:app` runs a worker in another
process, on the store that ASTYQUEUE_URL names.
"""

from __future__ import annotations

import threading

from astyqueue import App, Reject, Retry, current_delivery

app = App()
app.queue("emails", lease="1m", max_attempts=5)

addresses = {"ada": "ada@example.org"}
welcomed = threading.Event()


@app.task(queue="emails")
def welcome(name: str, lang: str = "en") -> None:
    """Pretend to send a welcome mail; at the first attempt the mail server does not answer."""
    if name not in addresses:
        # A retry would not help, so Reject makes a dead letter at once.
        raise Reject(f"the address of {name} is unknown")
    attempt = current_delivery().attempt
    if attempt == 1:
        raise Retry("0.1s", reason="the mail server does not answer")
    print(f"welcomed {addresses[name]} in {lang!r} at attempt {attempt}")
    welcomed.set()


def work() -> None:
    """Run tasks in this process until one welcome mail is sent; leaving the block waits for running tasks."""
    welcomed.clear()
    with app.worker(["emails"], concurrency=2):
        welcomed.wait(timeout=30)


def main() -> None:
    """Send two calls, run them, fix the cause of the dead letter, redrive it, and run tasks again."""
    app.url = "sqlite:///tasks_app.db"
    with app:
        welcome.send("grace")
        welcome.using(key="welcome:ada").send("ada", lang="fr")
        work()

        emails = app.open("emails")
        for letter in emails.dead_letters():
            print(f"dead letter: {letter.reason}")
        addresses["grace"] = "grace@example.org"
        print(f"redriven: {emails.redrive().redriven}")
        work()
        print(f"left in the queue: {emails.counts().total}")


if __name__ == "__main__":
    main()
