"""How far a rollout's phase is, and how long it is expected to last yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mark.domain.models.versions import (
    LONGEST_S,
    CanaryPolicy,
    ModelVersions,
    Rollout,
    RolloutPhase,
    VersionCounts,
    rollout_notes,
    rollout_progress,
)

BEFORE = VersionCounts(version="new", answered=7)
HELD = Rollout(
    id="1",
    before="old",
    candidate="new",
    phase=RolloutPhase.DWELLING,
    weight=0.05,
    began_at=0.0,
    since=1000.0,
    counts=(BEFORE,),
)
WAITS = replace(HELD, policy=CanaryPolicy(least_answers=500))


def left_s(rollout: Rollout, now: float, answered: int = 0) -> float:
    counts = (replace(BEFORE, answered=7 + answered, compared=answered),)
    found = rollout_progress(
        ModelVersions(model="m", stable="old", rollout=rollout), counts, now=now, boot_s=90.0, target=0.98
    )
    assert found is not None
    return found.left_s


@pytest.mark.parametrize(
    ("rollout", "now", "answered", "expected_s"),
    [
        (replace(HELD, phase=RolloutPhase.PREPARING), 1030.0, 0, 60.0),
        (replace(HELD, phase=RolloutPhase.PREPARING), 1100.0, 0, 0.0),
        (HELD, 1100.0, 781, 200.0),  # the dwell
        (HELD, 1300.0, 500, 168.6),  # 281 answers are missing, at 5 in 3 s
        (HELD, 1100.0, 1, 1100.0),  # four dwells end it
        (HELD, 1100.0, 0, 1100.0),
        (WAITS, 1100.0, 0, LONGEST_S - 100.0),
        (WAITS, 2000.0, 100, 4000.0),
        (replace(HELD, phase=RolloutPhase.SHADOWING, policy=CanaryPolicy(shadow=0.1)), 1300.0, 60, 200.0),
    ],
)
def test_what_is_left_of_a_phase(rollout: Rollout, now: float, answered: int, expected_s: float) -> None:
    assert left_s(rollout, now, answered) == pytest.approx(expected_s)


def test_a_rollout_says_what_is_waited_for_and_what_its_answers_can_tell() -> None:
    versions = ModelVersions(model="m", stable="old", rollout=HELD)
    counts = (replace(BEFORE, answered=127),)
    progress = rollout_progress(versions, counts, now=1300.0, boot_s=90.0, target=0.98)
    held, evidence = rollout_notes(versions, progress)[1:]
    assert held == "version new: 120 of 781 answers; the share is held for about 15 minutes more"
    assert evidence.startswith("version new: with 120 answers, a version that misses the objective twice as often")
    assert evidence.endswith("would pass in 65 % of cases")
    none = rollout_progress(versions, (BEFORE,), now=1300.0, boot_s=90.0, target=0.98)
    assert len(rollout_notes(versions, none)) == 2, "no answers can tell nothing"
    over = replace(versions, rollout=replace(HELD, phase=RolloutPhase.ABORTED))
    assert rollout_progress(over, counts, now=1300.0, boot_s=90.0, target=0.98) is None
    assert len(rollout_notes(over, None)) == 1
