"""How often one process requests a row of others, by who owns how many."""

from __future__ import annotations

import pytest

from astyqueue.queue.row_sharing.header_poller import RebalanceRequests
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND, MonotonicUs

BEGIN = TimeMachine().monotonic()


def at(seconds: float) -> MonotonicUs:
    return BEGIN + int(seconds * SECOND)


def test_where_there_are_more_processes_than_rows_one_without_a_row_requests_one_about_once_a_second() -> None:
    requests = RebalanceRequests("c")
    owners = {"row 0": "a", "row 1": "b"}
    assert requests.next(owners, at(0)) in owners
    assert requests.next(owners, at(0.49)) is None
    assert requests.next(owners, at(1.5)) in owners


@pytest.mark.parametrize(
    "owners",
    [{"row 0": "a", "row 1": "a"}, {"row 0": "a", "row 1": "a", "row 2": "a", "row 3": "c"}],
    ids=["no row", "less than its share"],
)
def test_while_another_process_has_more_than_its_share_the_next_request_comes_soon(owners: dict[str, str]) -> None:
    requests = RebalanceRequests("c")
    assert requests.next(owners, at(0)) is not None
    assert requests.next(owners, at(0.049)) is None
    assert requests.next(owners, at(0.15)) is not None
