"""When a message into an idle queue has to begin, where something that the documents allow delays it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from astyqueue.units import SECOND
from tests.simulation.cassandra.unreliable_log import WrittenNotice
from tests.simulation.checkers.idle_deadlines import AwaitedMessage, IdleDeadlines
from tests.simulation.engine.simulation import simulate

SENT = 1_000 * SECOND
#: Sent now by a correct clock, with a notice that is read at once.
PROMPT = AwaitedMessage(1, "idle0", "idle0:1:0", SENT, SENT, SENT, WrittenNotice(SENT, SENT))
LATENCY = 600_000


@pytest.fixture
def deadlines() -> IdleDeadlines:
    return IdleDeadlines(2, cells=1_000)


def test_a_message_with_a_notice_begins_soon_and_one_without_in_the_turn_of_its_queue(deadlines: IdleDeadlines) -> None:
    assert deadlines.of(PROMPT) == SENT + LATENCY
    assert deadlines.of(replace(PROMPT, notice=None)) == SENT + 2 * 9 * SECOND // 4 + LATENCY


def test_a_message_of_a_slow_clock_behind_one_that_began_is_found_by_the_late_scan(deadlines: IdleDeadlines) -> None:
    slow = replace(PROMPT, place=SENT - 5 * SECOND)
    assert deadlines.of(slow) == SENT + LATENCY
    deadlines.begins("idle0:1:1", SENT - SECOND)
    assert deadlines.of(slow) == SENT + LATENCY
    deadlines.begins("idle0:1:0", SENT - SECOND)
    assert deadlines.of(slow) == SENT + 10 * SECOND + LATENCY // 2


def test_without_traffic_for_a_minute_the_bell_of_a_queue_in_use_is_read_a_hundredth_of_the_time(
    deadlines: IdleDeadlines,
) -> None:
    """A process was suspended while it worked on a message, so that it goes on with its queue in use."""
    assert deadlines.of(replace(PROMPT, unhurried=True)) == SENT + 12 * SECOND // 10
    assert IdleDeadlines(2, cells=1).of(replace(PROMPT, unhurried=True)) == SENT + 15 * SECOND // 10
    unnoticed = replace(PROMPT, notice=None)
    assert deadlines.of(replace(unnoticed, unhurried=True)) == deadlines.of(unnoticed)


def test_a_message_whose_time_shard_has_just_ended_is_found_within_two_seconds_after_its_queue_was_called(
    deadlines: IdleDeadlines,
) -> None:
    """Its sender's clock is behind, and the time shard ended meanwhile."""
    past = replace(PROMPT, place=SENT - 5 * SECOND, past=True)
    assert deadlines.of(past) == deadlines.of(PROMPT) + 2 * SECOND


def test_without_a_notice_a_message_for_a_later_time_shard_waits_until_all_rows_had_their_turn() -> None:
    """The bell, which is read in each turn, shows only what was sent to current rows."""
    ahead = replace(PROMPT, due=SENT + SECOND, place=SENT + SECOND, notice=None, future=True)
    two_turns = IdleDeadlines(2, cells=1_000, turns=2)
    assert two_turns.of(ahead) == SENT + 2 * 2 * 9 * SECOND // 4 + LATENCY
    assert two_turns.of(replace(ahead, notice=PROMPT.notice)) == SENT + SECOND + LATENCY // 2


def test_turns_of_a_queue_of_one_concurrency_shard_find_a_message_from_the_beginning_of_its_time_shard_on(
    deadlines: IdleDeadlines,
) -> None:
    """Its sender's clock is ahead, so that the row is current there already."""
    begin = SENT + 4 * SECOND
    ahead = replace(PROMPT, due=begin + SECOND, place=begin + SECOND, turns_from=begin)
    assert deadlines.of(replace(ahead, notice=None)) == begin + 2 * 9 * SECOND // 4 + LATENCY
    assert deadlines.of(ahead) == begin + SECOND + LATENCY // 2


@pytest.mark.parametrize("seed", [24_229, 64_734, 43_131, 54_339, 61_060, 65_949])
def test_a_message_is_not_called_late_for_these_delays(seed: int) -> None:
    """The message before it began before its send returned; a row of the past; a queue in use without traffic; and a
    time shard that ended before its notice or the bell was read, which delays it no longer.
    """
    assert simulate(seed).violations == ()


def test_a_ring_of_a_sender_whose_clock_was_set_back_is_heard() -> None:
    """Its write time is later than that of the ring before, as in the adapter of a store."""
    assert simulate(71_809).violations == ()


def test_no_sender_rings_for_a_message_in_a_time_shard_that_has_not_begun_by_its_clock() -> None:
    """In true time it had begun when the message was sent."""
    assert simulate(204_612, idle=True).violations == ()
