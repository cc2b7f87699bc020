"""Tuning of rivals: which setting of an autoscaler its users would choose, by what each would have done before.

A rival that nobody tuned is easily beaten. Each candidate is replayed on the load before the run, never on the run
itself; the cheapest among those that attained the target there is taken, else the one that attained most. The
replays are the caller's; nothing here runs one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

DAY_S = 24 * 3600.0
"""Load that is replayed: the last whole day before the run, or all there is."""
RULES = {
    "concurrency-tracking": "target tracking on concurrency",
    "ema-headroom": "a moving average by hour of day",
    "managed-instances": "managed instances' CPU target",
    "nothing": "Lambda alone",
    "pod-autoscaler": "the horizontal pod autoscaler",
    "predictive-scaling": "predictive scaling beside target tracking",
    "provisioned-concurrency": "provisioned concurrency",
    "spothedge": "SpotHedge",
    "target-tracking": "target tracking",
    "two-windows": "two windows",
}
"""Rules of autoscalers by the planner's name, as texts call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of an autoscaler: its rule (a planner's name), and the share of the capacity to keep busy."""

    rule: str
    utilisation: float
    #: Weight of the newest day in a moving average; None for a rule without one.
    alpha: float | None = None
    #: Spot instances beyond the target; None for a rule without them.
    spare: int | None = None

    @property
    def words(self) -> str:
        """`two windows at utilisation 0.7`."""
        found = RULES[self.rule]
        if self.rule != "nothing":
            found += f" at utilisation {self.utilisation:g}"
        if self.alpha is not None:
            found += f" and alpha {self.alpha:g}"
        if self.spare is not None:
            found += f" with {self.spare} spare"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One setting replayed on the load before the run: total cost in USD, and the share answered in time."""

    setting: Setting
    cost_usd: float
    attained: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedSetting:
    """The trial that was chosen, out of how many, on how many seconds of load before the run."""

    trial: Trial
    replays: int
    load_s: float

    @property
    def sentence(self) -> str:
        """The choice for a reader of the figures."""
        setting = self.trial.setting
        load = f"{self.load_s / 3600.0:.3g} h" if self.load_s >= 7200.0 else f"{self.load_s / 60.0:.3g} minutes"
        attained = math.floor(self.trial.attained * 1e4 + 1e-9) / 100  # a share below the target never reads as it
        return (
            f"tuned on the {load} before the run: {setting.words}, the best of {self.replays} there "
            f"({self.trial.cost_usd:,.2f} USD, {attained:.2f} % in time)"
        )


def choose(trials: Sequence[Trial], target: float) -> Trial:
    """The cheapest trial that attained `target`, else the one that attained most; ties go to the first."""
    attaining = [trial for trial in trials if trial.attained >= target]
    if attaining:
        return min(attaining, key=lambda trial: trial.cost_usd)
    return min(trials, key=lambda trial: (-trial.attained, trial.cost_usd))


def grid(
    rules: Sequence[str],
    tenths: range,
    *,
    alphas: Sequence[float | None] = (None,),
    spares: Sequence[int | None] = (None,),
) -> tuple[Setting, ...]:
    """All rules at all utilisations of so many tenths, with each of the other figures."""
    return tuple(
        Setting(rule=rule, utilisation=tenth / 10, alpha=alpha, spare=spare)
        for rule in rules
        for alpha in alphas
        for spare in spares
        for tenth in tenths
    )
