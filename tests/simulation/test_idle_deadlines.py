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
PROMPT = AwaitedMessage(1, "idle0", SENT, SENT, SENT, WrittenNotice(SENT, SENT))
LATENCY = 600_000


@pytest.fixture
def deadlines() -> IdleDeadlines:
    return IdleDeadlines(2)


def test_a_message_with_a_notice_begins_soon_and_one_without_in_the_turn_of_its_queue(deadlines: IdleDeadlines) -> None:
    assert deadlines.of(PROMPT) == SENT + LATENCY
    assert deadlines.of(replace(PROMPT, notice=None)) == SENT + 2 * 9 * SECOND // 4 + LATENCY


def test_a_message_of_a_slow_clock_behind_one_that_began_is_found_by_the_late_scan(deadlines: IdleDeadlines) -> None:
    slow = replace(PROMPT, place=SENT - 5 * SECOND)
    assert deadlines.of(slow) == SENT + LATENCY
    deadlines.begins("idle1", SENT - SECOND)
    assert deadlines.of(slow) == SENT + LATENCY
    deadlines.begins("idle0", SENT - SECOND)
    assert deadlines.of(slow) == SENT + 10 * SECOND + LATENCY // 2


def test_a_message_in_a_row_of_the_past_is_found_within_a_minute_after_its_queue_was_called(
    deadlines: IdleDeadlines,
) -> None:
    """Its sender's clock is behind, and the time shard ended meanwhile."""
    past = replace(PROMPT, place=SENT - 5 * SECOND, past=True)
    assert deadlines.of(past) == deadlines.of(PROMPT) + 60 * SECOND


@pytest.mark.parametrize("seed", [24_229, 64_734])
def test_a_message_is_not_called_late_for_these_delays(seed: int) -> None:
    """The message before it began before its send returned; a row of the past."""
    assert simulate(seed).violations == ()
