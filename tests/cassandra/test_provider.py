"""One Cassandra for all processes of a run: the first starts it, and stops it when nobody uses it any more."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread

from astyqueue.testing.cassandra import Contacts
from astyqueue.testing.cassandra.provider import provided_to_all


def test_all_that_name_one_folder_use_what_the_first_of_them_provides(tmp_path: Path) -> None:
    with provided_to_all("10.0.0.1:9043", tmp_path) as first, provided_to_all("10.0.0.2", tmp_path) as second:
        assert first.contacts == Contacts(("10.0.0.1",), 9043)
        assert second == first
    with provided_to_all("10.0.0.2", tmp_path) as later:
        assert later.contacts == Contacts(("10.0.0.2",))


def test_the_one_that_provides_it_leaves_last(tmp_path: Path) -> None:
    leaving = Event()
    left: list[str] = []
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(provided_to_all("10.0.0.1", tmp_path))
        second.enter_context(provided_to_all("10.0.0.1", tmp_path))

        def leave() -> None:
            leaving.wait()
            left.append("second")
            second.close()

        other = Thread(target=leave)
        other.start()
        leaving.set()
        first.close()
        assert left == ["second"]
        other.join()
