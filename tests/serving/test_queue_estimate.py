from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.serving.queue_estimate import QueueEstimate


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=60))
def test_slots_count_what_an_agent_with_slots_holds(slots: int, moves: list[bool]) -> None:
    """Sent or ended, in any order: as many run as there are slots, the others wait."""
    estimate, held = QueueEstimate(), 0
    estimate.slots = slots
    for now, is_sent in enumerate(moves):
        if is_sent:
            estimate.sent(now, 10.0)
            held += 1
        elif held:
            estimate.answered(now, 10.0)
            held -= 1
        assert (estimate.in_service, estimate.waiting) == (min(held, slots), max(0, held - slots))
        if estimate.in_service < slots:
            assert estimate.free_at <= now
