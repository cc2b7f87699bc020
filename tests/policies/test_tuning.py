"""Tuning: the setting that a rival's users would choose, out of what each would have done before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mark.policies.bundles import policy_names, tuning_grid
from mark.policies.overrides import OWN_POLICIES
from mark.policies.tuning import RULES, Setting, Trial, TunedSetting, choose, grid

TARGET = 0.98
TRIALS = st.lists(
    st.builds(
        Trial,
        setting=st.builds(Setting, rule=st.sampled_from(sorted(RULES)), utilisation=st.floats(0.1, 1.0)),
        cost_usd=st.floats(0.0, 1e3),
        attained=st.floats(0.9, 1.0),
    ),
    min_size=1,
)


def trial(utilisation: float, cost_usd: float, attained: float) -> Trial:
    return Trial(
        setting=Setting(rule="two-windows", utilisation=utilisation), cost_usd=cost_usd, attained=attained
    )


@given(TRIALS)
def test_nothing_that_attains_the_target_is_cheaper_than_the_choice(trials: list[Trial]) -> None:
    best = choose(trials, TARGET)
    assert best in trials
    attaining = [one.cost_usd for one in trials if one.attained >= TARGET]
    if attaining:
        assert best.attained >= TARGET
        assert best.cost_usd == min(attaining)
    else:
        assert best.attained == max(one.attained for one in trials)


def test_grids_name_every_rule_at_every_tenth() -> None:
    settings = grid(("two-windows", "target-tracking"), range(3, 11))
    assert len(settings) == 16
    assert settings[0] == Setting(rule="two-windows", utilisation=0.3)
    assert settings[-1] == Setting(rule="target-tracking", utilisation=1.0)


def test_none_of_ours_is_tuned_by_a_grid() -> None:
    tuned = {name for name in policy_names() if tuning_grid(name)}
    assert tuned == {
        "autoscaler",
        "autoscaler-spill",
        "ema-headroom",
        "kubernetes-packed",
        "kubernetes-packed-spill",
        "managed-instances",
        "predictive",
        "sagemaker-components",
        "sagemaker-pools",
        "sagemaker-tuned",
        "serverless",
        "spothedge",
    }
    assert not tuned & set(OWN_POLICIES)


def test_the_choice_is_told_with_its_figures() -> None:
    found = TunedSetting(trial=trial(0.7, 12.345, 0.98765), replays=16, load_s=86400.0)
    assert found.sentence == (
        "tuned on the 24 h before the run: two windows at utilisation 0.7, the best of 16 there "
        "(12.35 USD, 98.76 % in time)"
    )
    short = TunedSetting(trial=trial(0.7, 12.345, 0.98765), replays=16, load_s=540.0)
    assert short.sentence.startswith("tuned on the 9 minutes before the run: ")
