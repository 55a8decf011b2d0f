"""Nodes that were silent are asked last, for a while."""

from __future__ import annotations

from cassandra.policies import RoundRobinPolicy, SimpleConvictionPolicy
from cassandra.pool import Host

from astyqueue.stores.cassandra.connection.cluster import Wary
from astyqueue.testing import TimeMachine

HOSTS = [Host(f"h{number}", SimpleConvictionPolicy) for number in range(3)]


def test_a_silent_node_comes_last_until_ten_seconds_have_passed(clock: TimeMachine) -> None:
    wary = Wary(RoundRobinPolicy(), clock)
    wary.populate(None, HOSTS)
    assert {next(wary.make_query_plan()) for _ in HOSTS} == set(HOSTS)
    wary.was_silent(HOSTS[:1])
    plans = [list(wary.make_query_plan()) for _ in HOSTS]
    assert [plan[-1] for plan in plans] == [HOSTS[0]] * 3
    assert {plan[0] for plan in plans} == set(HOSTS[1:])
    clock.advance("10s")
    assert {next(wary.make_query_plan()) for _ in HOSTS} == set(HOSTS)


def test_it_goes_by_the_other_policy_for_everything_else(clock: TimeMachine) -> None:
    child = RoundRobinPolicy()
    wary = Wary(child, clock)
    wary.populate(None, HOSTS[:1])
    wary.on_add(HOSTS[1])
    wary.on_up(HOSTS[2])
    assert set(wary.make_query_plan()) == set(HOSTS)
    wary.on_down(HOSTS[1])
    wary.on_remove(HOSTS[2])
    assert set(wary.make_query_plan()) == {HOSTS[0]}
    assert wary.distance(HOSTS[0]) == child.distance(HOSTS[0])
