"""A task that gets many calls at once: one insert for all of them, and a bad one is settled apart from the others."""

from __future__ import annotations

from astyqueue import App, BatchedCall

app = App()
inserts: list[list[str]] = []


@app.task(queue="rows", batch=(5, "1m"))
def insert(calls: list[BatchedCall[str]]) -> None:
    """Gets up to five calls, or those that come within a minute after the first one.

    Returning acks the calls that it has not settled; raising would count as a failed attempt of each of these.
    """
    for call in calls:
        if not call.argument:
            call.delivery.reject("the row is empty")
    inserts.append([call.argument for call in calls if call.argument])


def main() -> None:
    """Send ten calls, and run them in a worker that ends after ten messages and has at most five at the same time."""
    app.url = "sqlite:///task_batches.db"
    with app:
        insert.send_many(insert.call(row) for row in ("a", "b", "", "c", "d", "e", "f", "g", "h", "i"))
        app.worker(["rows"], limits={"rows": 5}, max_messages=10).run()
        rows = app.open("rows")
        print(f"{sum(map(len, inserts))} rows in {len(inserts)} inserts")
        print(f"dead letters: {[letter.reason for letter in rows.dead_letters()]}")
        rows.purge()


if __name__ == "__main__":
    main()
