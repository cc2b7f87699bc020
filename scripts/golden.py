"""Golden ledgers: what fixed runs cost, to the cent and the request. `make golden` rewrites them; review the diff.

A change here says that a decision, a price or a profile has changed what a run costs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mark.catalog.load import model
from mark.catalog.type_sets import PAPER
from mark.config.footprint import footprint_of
from mark.config.settings import Settings, cache_dir
from mark.domain.offering import Market
from mark.plugins.load import build_forecaster
from mark.policies.spec import Overrides
from mark.policies.tuning import Setting
from mark.simulator.engine.compiled import Kernel, compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.traces.generators import diurnal_floods
from mark.simulator.workload import Workload

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "ledgers.json"
HOURS_S = 4 * 3600.0
POLICIES = (
    *("hedged", "mark", "greedy-oracle", "sagemaker", "sagemaker-fast", "reactive", "autoscaler"),
    *("autoscaler-spill", "predictive", "static-peak", "lambda-only"),
)
TUNED = {
    "autoscaler": Setting(rule="target-tracking", utilisation=0.6),
    "autoscaler-spill": Setting(rule="two-windows", utilisation=0.7),
    "predictive": Setting(rule="predictive-scaling", utilisation=0.5),
}
"""Settings of rivals: no day is replayed to tune them."""
UNTRAINED = {"hedged": "moving-mean", "mark": "last-value"}


def main() -> None:
    """Rewrite the golden ledgers."""
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(json.dumps(ledgers(compiled_kernel(cache_dir())), indent=1) + "\n")


def ledgers(kernel: Kernel) -> dict[str, Any]:
    """Four hours of a generated day under each policy; our own forecast by rules: nothing is trained.

    The paper's types have a GPU among them: with it, batches are in the ledgers too.
    """
    found: dict[str, Any] = {}
    for market in Market:
        experiment = Experiment(_spec(market), kernel=kernel, build_forecaster=build_forecaster)
        reference, floor, _ = experiment.yardsticks()
        found[f"{market.value} yardsticks"] = {"reference_usd": _cents(reference), "floor_usd": _cents(floor)}
        for policy in POLICIES:
            overrides = Overrides(forecaster=UNTRAINED.get(policy), setting=TUNED.get(policy))
            run = experiment.run(policy, overrides=overrides)
            found[f"{market.value} {policy}"] = {
                "bill": {f"{entry.component}: {entry.item}": _cents(entry.usd) for entry in run.bill},
                "served": [run.served.instance, run.served.standby, run.served.lambda_, run.served.shed],
                "launches": run.launches,
                "wakes": run.wakes,
            }
    return found


def _spec(market: Market) -> ExperimentSpec:
    spec = model("inception-v3")
    return ExperimentSpec(
        footprint=footprint_of(Settings()),
        model=spec,
        slo=spec.slo,
        market=market,
        types=(PAPER,),
        workload=Workload(trace=diurnal_floods(3, 2), seed=3, start_s=86_400.0, duration_s=HOURS_S),
        faults=FaultScript(interrupts=(Interrupt(at_s=3600.0, share=0.4),)),
    )


def _cents(usd: float | None) -> float | None:
    return None if usd is None else round(usd, 4)


if __name__ == "__main__":
    main()
