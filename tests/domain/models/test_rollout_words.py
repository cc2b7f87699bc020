from __future__ import annotations

import pytest

from mark.domain.models.versions import Rollout, RolloutPhase


@pytest.mark.parametrize(
    ("phase", "reason", "words"),
    [
        (RolloutPhase.DWELLING, "has 5 %", "dwelling: has 5 %"),
        (RolloutPhase.ABORTED, "by command", "aborted: by command"),
        (RolloutPhase.PREPARING, "", "preparing"),
    ],
)
def test_a_phase_is_said_once(phase, reason, words):
    rollout = Rollout(id="a", before="1", candidate="2", phase=phase, reason=reason, began_at=0.0, since=0.0)
    assert rollout.words == words
