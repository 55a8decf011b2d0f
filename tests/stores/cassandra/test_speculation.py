"""When a request is also sent to a further node.

That is after the time that requests usually take, within a budget, and not while several nodes are slow.
"""

from __future__ import annotations

import pytest
from cassandra.policies import SimpleConvictionPolicy, SpeculativeExecutionPlan
from cassandra.pool import Host

from astyqueue.stores.cassandra.requests.speculation import Speculation
from astyqueue.testing import TimeMachine
from astyqueue.units import SECOND

MILLISECOND = SECOND // 1_000
HOSTS = [Host(f"h{number}", SimpleConvictionPolicy) for number in range(3)]


@pytest.fixture
def speculation(clock: TimeMachine) -> Speculation:
    return Speculation(clock)


def begun(speculation: Speculation) -> tuple[SpeculativeExecutionPlan, float]:
    """Send a request as the driver does; returns its plan, and in how many seconds it would ask a further node."""
    speculation.asked()
    plan = speculation.new_plan(None, None)
    return plan, plan.next_execution(None)


def unanswered(speculation: Speculation, clock: TimeMachine) -> int:
    """Send a request that no node answers; returns how many further nodes it is sent to."""
    before = speculation.counters.speculations
    plan, delay = begun(speculation)
    while delay >= 0:
        clock.advance(delay)
        delay = plan.next_execution(HOSTS[0])
    return speculation.counters.speculations - before


def answered(speculation: Speculation, host: Host, took: int, *, in_time: bool = True) -> bool:
    begun(speculation)
    return speculation.answered(host, took, in_time=in_time)


def test_a_request_without_an_answer_is_asked_of_two_further_nodes(
    speculation: Speculation, clock: TimeMachine
) -> None:
    assert begun(speculation)[1] == 0.15
    assert unanswered(speculation, clock) == 2
    assert speculation.counters == (2, 2)


@pytest.mark.parametrize(("usual", "patience"), [(3, 0.1), (240, 0.24), (900, 0.5)])
def test_it_waits_as_long_as_99_of_100_requests_took_lately_within_bounds(
    speculation: Speculation, usual: int, patience: float
) -> None:
    for number in range(100):
        answered(speculation, HOSTS[number % 3], (2 if number % 20 else usual) * MILLISECOND)
    assert begun(speculation)[1] == patience
    for number in range(500):
        answered(speculation, HOSTS[number % 3], 2 * MILLISECOND)
    assert begun(speculation)[1] == 0.1


def test_when_all_is_slow_one_request_in_ten_is_asked_twice_at_most(
    speculation: Speculation, clock: TimeMachine
) -> None:
    asked_again = sum(unanswered(speculation, clock) for _ in range(2_000))
    assert speculation.counters == (2_000, asked_again)
    assert 2_000 // 10 <= asked_again <= 2_000 // 10 + 20


def test_requests_under_way_at_once_keep_to_the_budget_in_the_long_run(
    speculation: Speculation, clock: TimeMachine
) -> None:
    for _ in range(50):
        plans = [plan for plan, delay in (begun(speculation) for _ in range(40)) if delay >= 0]
        clock.advance("1s")
        for plan in plans:
            plan.next_execution(HOSTS[0])
    assert speculation.counters.speculations <= 50 * 40 // 10 + 20 + 40


def test_a_node_that_is_slow_alone_is_told_after_a_few_requests(speculation: Speculation) -> None:
    found = [answered(speculation, HOSTS[0], SECOND, in_time=False) for _ in range(5)]
    assert found == [False, False, False, True, True]
    assert begun(speculation)[1] >= 0


def test_nothing_is_asked_twice_while_more_than_one_node_is_slow(speculation: Speculation, clock: TimeMachine) -> None:
    for host in HOSTS[:2]:
        found = [answered(speculation, host, SECOND, in_time=False) for _ in range(5)]
    assert not any(found)
    assert begun(speculation)[1] == -1
    assert unanswered(speculation, clock) == 0
    clock.advance("10s")
    answered(speculation, HOSTS[2], MILLISECOND)
    assert begun(speculation)[1] >= 0


def test_one_late_answer_in_a_hundred_makes_no_node_slow(speculation: Speculation) -> None:
    for number in range(1_000):
        answered(speculation, HOSTS[number % 3], 2 * MILLISECOND, in_time=number % 100 > 0)
    assert begun(speculation)[1] >= 0


def test_a_further_page_is_no_further_node(speculation: Speculation, clock: TimeMachine) -> None:
    plan, _ = begun(speculation)
    clock.advance("50ms")
    assert plan.next_execution(HOSTS[0]) >= 0
    assert speculation.counters.speculations == 0
