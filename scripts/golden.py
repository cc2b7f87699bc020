"""Golden ledgers: what fixed runs cost, to the cent and the request. `make golden` rewrites them; review the diff.

Those of a service also say who shared what: each order of its journal of placements.

A change here says that a decision, a price or a profile has changed what a run costs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, assert_never

import yaml

from mark.catalog.load import model
from mark.catalog.type_sets import PAPER
from mark.config.footprint import footprint_of
from mark.config.settings import Settings, cache_dir, load_settings
from mark.domain.billing.costs import BillLine
from mark.domain.fleet.orders import Drain, Launch
from mark.domain.fleet.placement import Evict, Place, PlacementOrder
from mark.domain.offerings.offering import Market
from mark.offline.service_members import service_members
from mark.plugins.load import build_forecaster
from mark.policies.spec import Overrides
from mark.policies.tuning import Setting
from mark.simulator.engine.compiled import DeviceKernel, Kernel, compiled_device_kernel, compiled_kernel
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript, Interrupt
from mark.simulator.results import ServedCounts
from mark.simulator.services.service_replay import replay_service
from mark.simulator.services.service_run import join_runs
from mark.simulator.traces.generators import diurnal_floods
from mark.simulator.workload import Workload
from scripts.acceptance.zoo import ZooModel, write_zoo

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "ledgers.json"
SERVICES = GOLDEN.with_name("services.json")
HOURS_S = 2 * 3600.0
IN_MARKET = ("hedged", "mark", "greedy-oracle", "autoscaler", "autoscaler-spill", "predictive")
POLICIES = (*IN_MARKET, "sagemaker", "sagemaker-fast", "reactive", "static-peak", "lambda-only")
"""Those behind `IN_MARKET` rent no spot: they are replayed once."""
TUNED = {
    "autoscaler": Setting(rule="target-tracking", utilisation=0.6),
    "autoscaler-spill": Setting(rule="two-windows", utilisation=0.7),
    "predictive": Setting(rule="predictive-scaling", utilisation=0.5),
}
"""Settings of rivals: no day is replayed to tune them."""
UNTRAINED = {"hedged": "moving-mean", "mark": "last-value"}
ZOO = [
    ZooModel("a", latency_ms=40.0, peak_rps=8.0, peak_hour=0.0),
    ZooModel("b", latency_ms=20.0, peak_rps=12.0, peak_hour=2.0),
    ZooModel("c", latency_ms=60.0, peak_rps=6.0, peak_hour=22.0),
    ZooModel("heavy", latency_ms=30.0, peak_rps=60.0, peak_hour=1.0),
]
"""Three small models, and one that also fills instances of its own."""
SHARING = {
    "hedged": Overrides(forecaster="moving-mean"),
    "kubernetes-packed": Overrides(setting=Setting(rule="pod-autoscaler", utilisation=0.7)),
    "sagemaker-components": Overrides(setting=Setting(rule="target-tracking", utilisation=0.5)),
    "sagemaker-mme": Overrides(setting=Setting(rule="target-tracking", utilisation=0.5)),
}
"""Policies under which models share instances, untrained and untuned."""


def main() -> None:
    """Rewrite the golden ledgers."""
    kernel, devices = compiled_kernel(cache_dir()), compiled_device_kernel(cache_dir())
    for file, found in ((GOLDEN, ledgers(kernel)), (SERVICES, services(kernel, devices))):
        file.write_text(json.dumps(found, indent=1) + "\n")


def ledgers(kernel: Kernel) -> dict[str, Any]:
    """Two hours of a generated day under each policy; our own forecast by rules: nothing is trained.

    The paper's types have a GPU among them: with it, batches are in the ledgers too.
    """
    found: dict[str, Any] = {}
    for market in Market:
        experiment = Experiment(_spec(market), kernel=kernel, build_forecaster=build_forecaster)
        reference, floor, _ = experiment.yardsticks()
        found[f"{market.value} yardsticks"] = {"reference_usd": _cents(reference), "floor_usd": _cents(floor)}
        for policy in POLICIES if market is Market.SPOT else IN_MARKET:
            overrides = Overrides(forecaster=UNTRAINED.get(policy), setting=TUNED.get(policy))
            run = experiment.run(policy, overrides=overrides)
            found[f"{market.value} {policy}"] = {
                "bill": _bill(run.bill),
                "served": _served(run.served),
                "launches": run.launches,
                "wakes": run.wakes,
            }
    return found


def services(kernel: Kernel, devices: DeviceKernel) -> dict[str, Any]:
    """An hour of a service on spot: its bill, its models, and the orders of its journal of placements."""
    with tempfile.TemporaryDirectory() as folder:
        file = write_zoo(Path(folder), ZOO, seed=1)
        given = yaml.safe_load(file.read_text())
        given["trace"]["duration_s"] = 3600
        faults = {"interrupts": [{"at_min": 20, "share": 1.0}]}
        file.write_text(yaml.safe_dump(given | {"market": "spot", "faults": faults}))
        settings = load_settings(file, {})
        members = service_members(settings)
        footprint = footprint_of(settings, models=len(members))
    found: dict[str, Any] = {}
    for policy, overrides in SHARING.items():
        replayed = replay_service(members, policy, kernels=(kernel, devices), overrides=overrides)
        run = join_runs(replayed, footprint)
        found[policy] = {
            "bill": _bill(run.bill),
            "shared_instances": round(run.hosts, 3),
            "models": {
                model.model: {
                    "usd": _cents(model.cost.total),
                    "shared_usd": _cents(model.shared_usd),
                    "served": _served(model.served),
                    "on_shared": model.on_shared,
                    "instances": round(model.instances, 3),
                }
                for model in run.models
            },
            "placements": [
                f"{(decision.at - members[0].experiment.scenario.start_s) / 60:g} min: {_said(order)}"
                for decision in (replayed.shared.decisions if replayed.shared else ())
                for order in decision.orders
            ],
        }
    return found


def _said(order: PlacementOrder) -> str:
    match order:
        case Launch():
            return f"launch {order.offering}"
        case Place():
            return f"place {order.tenant.model} on {order.instance} for {order.tenant.capacity_rps:.2f} rps"
        case Evict():
            return f"evict {order.model} from {order.instance}"
        case Drain():
            return f"drain {', '.join(order.instances)}"
        case _:
            assert_never(order)


def _bill(lines: Iterable[BillLine]) -> dict[str, float | None]:
    return {f"{line.component}: {line.item}": _cents(line.usd) for line in lines}


def _served(counts: ServedCounts) -> list[int]:
    return [counts.instance, counts.standby, counts.lambda_, counts.shed]


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
