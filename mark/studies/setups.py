"""Setups of the four models of the MArk paper, the same in all its studies, and the assumptions behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from mark.catalog.load import load_prices, model
from mark.catalog.type_sets import PAPER
from mark.config.footprint import footprint_of
from mark.config.settings import Settings
from mark.controller.policy import COVER_SHARE
from mark.dispatch.policy import Routing
from mark.domain.models.objective import Slo
from mark.domain.offerings.offering import Market
from mark.policies.spec import Overrides
from mark.simulator.experiment import Experiment, ExperimentSpec
from mark.simulator.faults import FaultScript
from mark.simulator.results import RunResult
from mark.simulator.workload import Workload
from mark.studies.published import ONDEMAND, SAGEMAKER, SPOT
from mark.studies.study import StudyContext

PREMIUM_2019 = 1.4
"""SageMaker's hosting price over EC2's, on CPU and GPU types alike: the list of 2019, when the paper measured."""
GPU_TYPE = "p2.xlarge"
POLICY = {ONDEMAND: "mark", SPOT: "mark", SAGEMAKER: "sagemaker"}
MARKET = {ONDEMAND: Market.ON_DEMAND, SPOT: Market.SPOT, SAGEMAKER: Market.ON_DEMAND}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One model. `mean_latency_s` None takes half of the objective; `profile_sets` are assumed profiles.

    `routing` replaces MArk's dispatch rule, `oracle` its forecaster by a perfect one, `cooldown_min` the minutes
    that it waits before it rents less. `premium` is SageMaker's price over EC2's.
    """

    model: str
    mean_latency_s: float | None = None
    profile_sets: tuple[str, ...] = ()
    types: tuple[str, ...] = (PAPER,)
    routing: Routing | None = None
    oracle: bool = False
    cooldown_min: float | None = None
    premium: float = PREMIUM_2019

    @property
    def slo(self) -> Slo:
        """The published objective with the mean latency that plans keep."""
        slo = model(self.model).slo
        return slo if self.mean_latency_s is None else replace(slo, mean_latency_s=self.mean_latency_s)


SETUPS: dict[str, Setup] = {
    "inception-v3": Setup(model="inception-v3"),
    "nasnet": Setup(model="nasnet", profile_sets=("assumed-lambda",)),
    "lstm-ptb": Setup(model="lstm-ptb", profile_sets=("assumed-lambda",)),
    # Half of 1,400 ms is under the fastest published batch (750 ms on p2.xlarge): no type at all could be planned.
    "opennmt-ende": Setup(model="opennmt-ende", mean_latency_s=0.76),
}


def experiment(
    context: StudyContext,
    setup: Setup,
    market: Market,
    workload: Workload,
    *,
    standby_share: float = COVER_SHARE,
    faults: FaultScript | None = None,
) -> Experiment:
    """The model on that load, priced as the paper's table: SageMaker at its list of 2019, no overhead."""
    spec = ExperimentSpec(
        footprint=footprint_of(Settings()),
        model=model(setup.model),
        slo=setup.slo,
        market=market,
        workload=workload,
        types=setup.types,
        profile_sets=setup.profile_sets,
        standby_share=standby_share,
        faults=faults or FaultScript(),
        managed_cpu_factor=setup.premium,
        managed_gpu_factor=setup.premium,
        tuning={} if setup.cooldown_min is None else {"cooldown_min": setup.cooldown_min},
        overhead=False,
        cache_dir=context.cache_dir,
    )
    return Experiment(spec, kernel=context.kernel, build_forecaster=context.build_forecaster)


def of_system(context: StudyContext, setup: Setup, system: str, workload: Workload) -> Experiment:
    """The experiment of one of the paper's three systems on that load."""
    return experiment(context, setup, MARKET[system], workload)


def run_system(asked: Experiment, setup: Setup, system: str) -> RunResult:
    """Replay one of the paper's three systems."""
    if system == SAGEMAKER:
        return asked.run(POLICY[system])
    overrides = Overrides(
        forecaster="oracle" if setup.oracle else None, uses_truth=setup.oracle, routing=setup.routing
    )
    return asked.run(POLICY[system], overrides=overrides)


def run_notes(asked: Experiment, result: RunResult) -> tuple[str, ...]:
    """Caveats of one run: a target missed, Lambda beyond the objective, failures."""
    return tuple(_notes(asked, result))


def _notes(asked: Experiment, result: RunResult) -> Iterator[str]:
    target = result.slo.target
    if result.attained < target:
        yield f"misses its target: {result.attained:.2%} of {target:.0%} within {result.slo.latency_s * 1000:g} ms"
    if result.served.shed:
        yield f"{result.served.shed:,} requests waited 60 s in vain"
    if asked.supply.overflow_excuse is not None and result.policy != POLICY[SAGEMAKER]:
        yield f"Lambda {asked.supply.overflow_excuse.reason}"
    yield from result.notes


def assumptions(setups: tuple[Setup, ...]) -> tuple[str, ...]:
    """Assumptions of all studies of the paper on prices, objectives, profiles and policies."""
    prices = load_prices()
    found = [
        (
            f"Prices: {prices.region} of {prices.date}; on demand the types used cost what they did in 2019 "
            "(c5.large 0.085, p2.xlarge 0.90 USD/h). Spot: 2025's, those of 2019 are not published."
        ),
        (
            f"SageMaker: EC2's price x {PREMIUM_2019:g} on every type (list of 2019); cheapest type per request "
            "without batching; target tracking on requests per instance, 2 x over-provisioned."
        ),
        "Overhead (gateways, balancer, store, running disks) is left out: the paper's costs have none.",
        (
            "Forecasts: the vanilla LSTM, trained on the load before the run. Dispatch: "
            "weighted by capacity, Bouncer at the objective, all it refuses goes to Lambda."
        ),
        f"{GPU_TYPE}: one batch size (8) is published per model; a smaller batch is taken to last as long.",
    ]
    for setup in setups:
        slo = setup.slo
        why = "half of the objective" if setup.mean_latency_s is None else "no published type keeps half of it"
        found.append(
            f"{setup.model}: {slo.target:.0%} within {slo.latency_s * 1000:g} ms (Table 4); plans keep a mean of "
            f"{slo.mean_latency_s * 1000:g} ms ({why}; the paper does not state it)."
        )
    return tuple(found)
